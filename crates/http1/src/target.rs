//! The four forms of a request target (RFC 9112 section 3.2).

use memchr::{memchr, memchr_iter};

use crate::host::{is_host_and_port, is_port};
use crate::reject::Reject;

/// A request target taken apart; nothing in it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'b> {
    /// As sent, but without a fragment.
    pub(crate) text: &'b str,
    /// Begins with `/`, or is `*`, or is empty (authority-form).
    pub(crate) path: &'b str,
    pub(crate) query: Option<&'b str>,
    /// The host that absolute-form or authority-form names: it outranks the Host header.
    pub(crate) authority: Option<&'b str>,
}

pub(crate) fn split_target<'b>(method: &str, sent: &'b str) -> Result<Target<'b>, Reject> {
    // A fragment never belongs in a request; some clients send it anyway.
    let text = match memchr(b'#', sent.as_bytes()) {
        Some(at) => &sent[..at],
        None => sent,
    };
    if method == "CONNECT" {
        return authority_form(text);
    }
    if text.starts_with('/') {
        return with_path(text, text, None);
    }
    if text == "*" {
        return match method {
            "OPTIONS" => Ok(Target {
                text,
                path: text,
                query: None,
                authority: None,
            }),
            _ => Err(Reject::bad("the target * is for OPTIONS only")),
        };
    }
    absolute_form(text)
}

fn authority_form(text: &str) -> Result<Target<'_>, Reject> {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    if !is_port(port) || !is_host_and_port(text) {
        return Err(Reject::bad("CONNECT takes host:port"));
    }
    Ok(Target {
        text,
        path: "",
        query: None,
        authority: Some(text),
    })
}

fn absolute_form(text: &str) -> Result<Target<'_>, Reject> {
    const MALFORMED: Reject = Reject::bad("malformed request target");
    let (scheme, rest) = text.split_once("://").ok_or(MALFORMED)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(MALFORMED);
    }
    let authority_len = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(authority_len);
    if !is_host_and_port(authority) {
        return Err(MALFORMED);
    }
    with_path(text, path_and_query, Some(authority))
}

fn with_path<'b>(
    text: &'b str,
    path_and_query: &'b str,
    authority: Option<&'b str>,
) -> Result<Target<'b>, Reject> {
    let (path, query) = match memchr(b'?', path_and_query.as_bytes()) {
        Some(at) => (&path_and_query[..at], Some(&path_and_query[at + 1..])),
        None => (path_and_query, None),
    };
    if hides_nul(path.as_bytes()) {
        return Err(Reject::bad("a NUL in the path"));
    }
    // An http URI with an empty path means the root (RFC 9112 section 3.2.1).
    let path = if path.is_empty() { "/" } else { path };
    Ok(Target {
        text,
        path,
        query,
        authority,
    })
}

/// `%00` would cut the path short for anything written in C.
fn hides_nul(path: &[u8]) -> bool {
    memchr_iter(b'%', path).any(|at| path[at..].starts_with(b"%00"))
}
