//! Answers that the front gives by itself.

use baton_server::{ConnId, Io, Request};

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

/// Keeps host and query.
pub(super) fn redirect_to_folder(io: &mut Io, conn: ConnId, request: &Request<'_>) {
    let head = request.head;
    let query = head
        .query
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    // One slash only: two would make another host of the path.
    let path = format!("/{}/", head.path.trim_start_matches('/'));
    let location = match head.host {
        Some(host) => format!("http://{host}{path}{query}"),
        None => format!("{path}{query}"),
    };
    io.respond(
        conn,
        301,
        None,
        [(b"Location".as_slice(), location.as_bytes())],
        b"",
    );
}
