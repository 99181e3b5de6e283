//! The kinds of errors, each counted for itself.

/// What became of a request that did not get the reply that it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The connection was refused, or otherwise could not be made.
    Connect,
    /// The connection was not made within the connect timeout.
    ConnectTimeout,
    /// The generator's own machine ran out of descriptors, ports or memory.
    Local,
    /// No whole reply came within the timeout.
    Timeout,
    /// The server ended the connection before the first byte of the reply.
    Closed,
    /// The server ended the connection within the reply.
    Cut,
    /// The connection was reset.
    Reset,
    /// The bytes are no HTTP reply.
    Malformed,
    /// Bytes came behind a reply that belong to no request, as when Content-Length is too small.
    Surplus,
    /// The status is not among the expected ones.
    Status,
    /// The body does not have the expected length.
    Length,
    /// The body does not have the expected text.
    Text,
    /// The body does not have the expected SHA-256.
    Hash,
}

pub const KINDS: usize = Kind::ALL.len();

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::Connect,
        Kind::ConnectTimeout,
        Kind::Local,
        Kind::Timeout,
        Kind::Closed,
        Kind::Cut,
        Kind::Reset,
        Kind::Malformed,
        Kind::Surplus,
        Kind::Status,
        Kind::Length,
        Kind::Text,
        Kind::Hash,
    ];

    /// As in the JSON report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Connect => "connect",
            Kind::ConnectTimeout => "connect_timeout",
            Kind::Local => "local",
            Kind::Timeout => "timeout",
            Kind::Closed => "closed",
            Kind::Cut => "cut",
            Kind::Reset => "reset",
            Kind::Malformed => "malformed",
            Kind::Surplus => "surplus",
            Kind::Status => "status",
            Kind::Length => "length",
            Kind::Text => "text",
            Kind::Hash => "hash",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_counted_apart() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?}");
        }
    }
}
