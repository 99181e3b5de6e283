//! Answers that the front gives by itself.

use baton_server::{ConnId, Io};

use super::resolve::UrlPath;

pub(super) fn refuse(io: &mut Io, conn: ConnId, status: u16, reason: &str) {
    let headers = [(b"Content-Type".as_slice(), b"text/plain".as_slice())];
    io.respond(conn, status, None, headers, reason.as_bytes());
}

pub(super) fn unavailable(io: &mut Io, conn: ConnId, reason: &str) {
    let headers = [
        (b"Content-Type".as_slice(), b"text/plain".as_slice()),
        (b"Retry-After".as_slice(), b"1".as_slice()),
    ];
    io.respond(conn, 503, None, headers, reason.as_bytes());
}

/// A relative reference (RFC 9110, section 10.2.2) keeps scheme, host and port, whatever is in front of this server.
pub(super) fn redirect_to_folder(io: &mut Io, conn: ConnId, path: &UrlPath, query: Option<&str>) {
    let path = path.encoded();
    let location = match query {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    };
    let headers = [(b"Location".as_slice(), location.as_bytes())];
    io.respond(conn, 301, None, headers, b"");
}
