//! Pages of HTML, as the journeys look at them.

use crate::browser::unescape;
use crate::client::Reply;

/// What PHP and its applications say when something went wrong, in a page or in a log.
const ERRORS: [&str; 8] = [
    "Fatal error",
    "<b>Warning</b>",
    "<b>Notice</b>",
    "<b>Deprecated</b>",
    "Uncaught",
    "Segmentation",
    "panicked",
    "a process has ended",
];

/// The page; no error of PHP's may be in it, and it must have its end.
#[track_caller]
pub fn page(reply: Reply) -> String {
    let reply = reply.expect(200);
    let html = reply.text();
    without_errors(&html);
    assert!(
        html.trim_end().ends_with("</html>"),
        "cut off: ...{}",
        &html[html.len().saturating_sub(200)..]
    );
    html
}

#[track_caller]
pub fn without_errors(text: &str) {
    for error in ERRORS {
        assert!(!text.contains(error), "{error} in {}", brief(text));
    }
}

/// What a page says: its text without markup, scripts and drawings.
pub fn brief(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html.find("<body").map_or(html, |at| &html[at..]);
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = ["script", "style", "svg"]
            .iter()
            .find(|name| rest[at + 1..].starts_with(*name))
            .map_or(">".to_owned(), |name| format!("</{name}>"));
        rest = rest[at..].split_once(&end).map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(4_000).collect()
}

/// The sources of a page's images, in order.
pub fn images(html: &str) -> Vec<String> {
    html.split("<img ")
        .skip(1)
        .filter_map(|tag| {
            tag.split('>')
                .next()?
                .split("src=\"")
                .nth(1)?
                .split('"')
                .next()
        })
        .map(unescape)
        .collect()
}

/// What stands between the first `before` and the next `after`.
#[track_caller]
pub fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    text.split_once(before)
        .and_then(|(_, rest)| rest.split_once(after))
        .map(|(found, _)| found)
        .unwrap_or_else(|| panic!("nothing between {before:?} and {after:?}: {}", brief(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_brief() {
        let html = "<html><body class=x> One <b>two</b>\n<script>three</script><img alt=\"\" src=\"/a?b&amp;c\"> four";
        assert_eq!(brief(html), "One two four");
        assert_eq!(images(html), ["/a?b&c"]);
        assert_eq!(between(html, "class=", ">"), "x");
    }
}
