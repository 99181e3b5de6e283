//! Requests as bytes: made once where nothing changes, and from a template where parameters are drawn.

use fastrand::Rng;

use crate::field::{is_field_value, is_token, is_visible};
use crate::template::{Builder, Parameters, Template};

const HEAD_BYTES_MAX: usize = 64 * 1024;
pub const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub enum Request {
    Fixed(Vec<u8>),
    Template(Template),
}

/// One request's parts, as options and scenario files say them. Path, values of headers and a body of text have
/// `{name}` where a parameter is put.
pub struct Parts<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub host: &'a str,
    pub headers: &'a [(String, String)],
    pub body: Body<'a>,
    pub parameters: &'a Parameters,
    pub close: bool,
}

pub enum Body<'a> {
    None,
    Text(&'a str),
    /// As it is.
    Bytes(&'a [u8]),
}

impl Request {
    pub fn new(parts: &Parts<'_>) -> Result<Request, String> {
        check(parts)?;
        let mut builder = Builder::new(parts.parameters);
        builder.bytes(parts.method.as_bytes());
        builder.bytes(b" ");
        builder.text(parts.path);
        builder.bytes(b" HTTP/1.1\r\n");
        let mut names = parts.headers.iter().map(|(name, _)| name);
        if !names.any(|name| name.eq_ignore_ascii_case("Host")) {
            builder.bytes(format!("Host: {}\r\n", parts.host).as_bytes());
        }
        for (name, value) in parts.headers {
            builder.bytes(format!("{name}: ").as_bytes());
            builder.text(value);
            builder.bytes(b"\r\n");
        }
        if parts.close {
            builder.bytes(b"Connection: close\r\n");
        }
        // RFC 9110, section 8.6: methods that have a meaning for a body say so when there is none.
        if matches!(parts.method, "POST" | "PUT" | "PATCH") || !matches!(parts.body, Body::None) {
            builder.bytes(b"Content-Length: ");
            builder.length();
            builder.bytes(b"\r\n");
        }
        builder.bytes(b"\r\n");
        builder.begin_body();
        match parts.body {
            Body::None => {}
            Body::Text(text) => builder.text(text),
            Body::Bytes(bytes) => builder.bytes(bytes),
        }
        let template = builder.build()?;
        if !template.is_fixed() {
            return Ok(Request::Template(template));
        }
        let mut bytes = Vec::new();
        template.write(&mut Rng::with_seed(0), &mut bytes);
        bytes.shrink_to_fit();
        Ok(Request::Fixed(bytes))
    }
}

fn check(parts: &Parts<'_>) -> Result<(), String> {
    if !is_token(parts.method) || parts.method == "CONNECT" {
        return Err(format!(
            "`{}` is no method that can be sent",
            parts.method.escape_default()
        ));
    }
    let path = parts.path;
    if !(path.starts_with('/') || (path == "*" && parts.method == "OPTIONS"))
        || !is_visible(path)
        || path.contains('#')
    {
        return Err(format!(
            "`{}` is no path: it must begin with / and have neither #, spaces nor characters that must be written as %XX",
            path.escape_default()
        ));
    }
    for (name, value) in parts.headers {
        if !is_token(name) {
            return Err(format!("`{}` is no header name", name.escape_default()));
        }
        if !is_field_value(value) {
            return Err(format!(
                "the value of the header `{name}` has a control character"
            ));
        }
        let ours = [
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Expect",
            "Upgrade",
        ];
        if ours.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            return Err(format!(
                "the header `{name}` cannot be set: it would change how replies are read"
            ));
        }
    }
    let fields = parts
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 4);
    if path.len() + fields.sum::<usize>() > HEAD_BYTES_MAX {
        return Err(format!(
            "path and headers have more than {HEAD_BYTES_MAX} bytes"
        ));
    }
    let bytes = match parts.body {
        Body::None => 0,
        Body::Text(text) => text.len(),
        Body::Bytes(bytes) => bytes.len(),
    };
    if bytes as u64 > BODY_BYTES_MAX {
        return Err(format!("the body is larger than {BODY_BYTES_MAX} bytes"));
    }
    // Braces do not occur in URLs (RFC 3986): this is a mistyped name.
    for hole in path.split('{').skip(1) {
        let name = hole.split_once('}').map_or(hole, |(name, _)| name);
        if name.len() == hole.len() || !parts.parameters.contains_key(name) {
            return Err(format!("`{path}`: there is no parameter `{name}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Choice, Range, Values};
    use proptest::prelude::{any, prop_assert_eq, proptest};

    fn parts<'a>(method: &'a str, path: &'a str, parameters: &'a Parameters) -> Parts<'a> {
        Parts {
            method,
            path,
            host: "h:1",
            headers: &[],
            body: Body::None,
            parameters,
            close: false,
        }
    }

    fn text(request: &Request, seed: u64) -> String {
        let mut out = Vec::new();
        match request {
            Request::Fixed(bytes) => out.extend_from_slice(bytes),
            Request::Template(template) => template.write(&mut Rng::with_seed(seed), &mut out),
        }
        String::from_utf8(out).expect("text")
    }

    fn range(min: u64, max: u64) -> Values {
        Values::Range(Range { min, max })
    }

    #[test]
    fn a_plain_request_is_made_once() {
        let none = Parameters::new();
        let request = Request::new(&parts("GET", "/a?b", &none)).expect("good");
        assert!(matches!(request, Request::Fixed(_)));
        assert_eq!(text(&request, 0), "GET /a?b HTTP/1.1\r\nHost: h:1\r\n\r\n");
        let headers = [
            ("hOST".to_owned(), "other".to_owned()),
            ("X".into(), "{y}".into()),
        ];
        let post = Parts {
            headers: &headers,
            close: true,
            body: Body::Text("{\"a\":1}"),
            ..parts("POST", "/", &none)
        };
        let request = Request::new(&post).expect("good");
        assert_eq!(
            text(&request, 0),
            "POST / HTTP/1.1\r\nhOST: other\r\nX: {y}\r\nConnection: close\r\nContent-Length: 7\r\n\r\n{\"a\":1}"
        );
        let request = Request::new(&parts("PUT", "/", &none)).expect("good");
        assert!(text(&request, 0).ends_with("Content-Length: 0\r\n\r\n"));
        let bytes = Parts {
            body: Body::Bytes(b"{x}"),
            ..parts("PUT", "/", &none)
        };
        assert!(
            text(&Request::new(&bytes).expect("good"), 0).ends_with("Content-Length: 3\r\n\r\n{x}")
        );
    }

    #[test]
    fn parameters_are_drawn_for_each_request_and_are_the_same_within_it() {
        let choice = Values::Choice(vec![Choice::Text("red".into()), Choice::Number(7)]);
        let parameters =
            Parameters::from([("n".to_owned(), range(5, 6)), ("c".to_owned(), choice)]);
        let headers = [("X-N".to_owned(), "<{n}>".to_owned())];
        let parts = Parts {
            headers: &headers,
            body: Body::Text("{\"n\":{n},\"c\":\"{c}\"}"),
            ..parts("POST", "/{n}?c={c}", &parameters)
        };
        let request = Request::new(&parts).expect("good");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let text = text(&request, seed);
            let (n, c) = (
                if text.contains("/5?") { 5 } else { 6 },
                if text.contains("c=7") { "7" } else { "red" },
            );
            let body = format!("{{\"n\":{n},\"c\":\"{c}\"}}");
            let expected = format!(
                "POST /{n}?c={c} HTTP/1.1\r\nHost: h:1\r\nX-N: <{n}>\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            assert_eq!(text, expected);
            seen.insert(text);
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_a_reason() {
        let none = Parameters::new();
        let n = Parameters::from([("n".to_owned(), range(1, 2))]);
        let wrong = |parts: Parts<'_>| Request::new(&parts).err().expect("refused");
        assert!(wrong(parts("CONNECT", "/", &none)).contains("method"));
        assert!(wrong(parts("GE T", "/", &none)).contains("method"));
        for path in ["", "a", "/a b", "/a\r\nX: y", "/#a", "*"] {
            assert!(
                wrong(parts("GET", path, &none)).contains("no path"),
                "{path}"
            );
        }
        assert!(Request::new(&parts("OPTIONS", "*", &none)).is_ok());
        assert!(wrong(parts("GET", "/{m}", &n)).contains("no parameter `m`"));
        assert!(wrong(parts("GET", "/", &n)).contains("not used"));
        for (name, value) in [
            ("A b", "c"),
            ("", "c"),
            ("A", "b\r\nC: d"),
            ("content-length", "3"),
            ("Transfer-Encoding", "chunked"),
        ] {
            let headers = [(name.to_owned(), value.to_owned())];
            assert!(
                wrong(Parts {
                    headers: &headers,
                    ..parts("GET", "/", &none)
                })
                .contains("header"),
                "{name}"
            );
        }
        for values in [
            range(2, 1),
            Values::Choice(vec![]),
            Values::Choice(vec![Choice::Text("a b".into())]),
        ] {
            let parameters = Parameters::from([("n".to_owned(), values)]);
            assert!(wrong(parts("GET", "/{n}", &parameters)).contains("`n`"));
        }
        let odd = Parameters::from([("a b".to_owned(), range(1, 2))]);
        assert!(wrong(parts("GET", "/", &odd)).contains("parameter name"));
    }

    proptest! {
        #[test]
        fn content_length_is_that_of_the_body(body in "[{}nx]{0,20}", min in any::<u64>(), max in any::<u64>(), seed in any::<u64>()) {
            let parameters = Parameters::from([("n".to_owned(), range(min.min(max), min.max(max)))]);
            let parts = Parts { body: Body::Text(&body), ..parts("POST", "/{n}", &parameters) };
            let text = text(&Request::new(&parts).expect("good"), seed);
            let (head, body) = text.split_once("\r\n\r\n").expect("two parts");
            let length: usize = head.rsplit(' ').next().expect("a field").parse().expect("a number");
            prop_assert_eq!(length, body.len());
        }
    }
}
