//! HTTP/1.0 and HTTP/1.1: bytes to messages and back (RFC 9110, RFC 9112).
//!
//! No I/O, no clock, no `unsafe`. The caller owns the buffers; nothing here allocates, except that
//! replies grow the `Vec` they are written to.
//!
//! A request goes through three steps:
//! 1. [`HeadScanner::scan`] finds where the head ends, however the bytes trickle in.
//! 2. [`RequestHead::parse`] turns those bytes into a head that is safe to act upon: one framing, one
//!    validated host, one path. Whatever two readers could understand differently is a [`Reject`].
//! 3. [`BodyDecoder::decode`] takes the body out of what follows.
//!
//! In front of a connection's first request a proxy may have put a [`ProxyHeader`].
//!
//! The reply goes back through [`encode_reply_head`], whose [`ReplyPlan`] says how the body is to be sent.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod body;
mod classes;
mod date;
mod framing;
mod host;
mod limits;
mod proxy_header;
mod reject;
mod reply;
mod request;
mod scan;
mod status;
mod target;

// The tests' stream reader is shared with the fuzz targets, which see this crate from outside.
#[cfg(test)]
extern crate self as baton_http1;

#[cfg(test)]
mod tests;

pub use body::{BodyDecoder, Decoded};
pub use date::http_date;
pub use framing::Framing;
pub use host::is_host_and_port;
pub use limits::{HEADERS_MAX, LEADING_EMPTY_LINES_MAX, Limits, METHOD_BYTES_MAX};
pub use proxy_header::{NoProxyHeader, Origin, PROXY_HEADER_BYTES_MAX, ProxyHeader};
pub use reject::Reject;
pub use reply::{
    CHUNK_END, LAST_CHUNK, ReplyContext, ReplyFraming, ReplyPlan, chunk_header,
    encode_informational, encode_reply_head,
};
pub use request::{Header, HeaderStore, RequestHead, Version};
pub use scan::HeadScanner;
pub use status::reason_phrase;
