//! Bytes to replies: a reader of HTTP/1.x that shares nothing with the server's parser, and is strict,
//! because what it lets pass would go unseen.

mod chunked;
mod head;
mod reader;

pub use reader::{Ended, Event, Reader, Reply};

/// What is wrong with the bytes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);
