//! The bounds on what a client may send.

/// The most headers that [`Limits::headers_max`] can allow: the size of a [`crate::HeaderStore`].
pub const HEADERS_MAX: usize = 128;

/// Longest method, in bytes; a longer one is 501 (RFC 9112 section 3). The longest registered one has 17.
pub const METHOD_BYTES_MAX: usize = 64;

/// Empty lines (CRLF) skipped before a request line. RFC 9112 section 2.2 asks for at least one: some
/// old clients send one behind a POST body.
pub const LEADING_EMPTY_LINES_MAX: usize = 4;

/// What a request may cost. Each bound says which status answers a request that goes over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request target as sent, in bytes. Over it: 414. Default 8 KiB.
    pub target_bytes_max: usize,
    /// Longest head, in bytes: everything up to and with the empty line. Over it: 431. Default 32 KiB.
    pub head_bytes_max: usize,
    /// Most header lines, 1 to [`HEADERS_MAX`] (more means [`HEADERS_MAX`]). Over it: 431. Default 100.
    pub headers_max: usize,
    /// Longest body, in bytes after chunks are decoded. Over it: 413, from the head alone if the head
    /// announces it. Default 128 MiB.
    pub body_bytes_max: u64,
    /// Longest chunk-size line, in bytes, with its extensions and CRLF. Over it: 400. Default 1 KiB.
    pub chunk_line_bytes_max: usize,
    /// Longest trailer section, in bytes, with its closing empty line. Over it: 431. Default 8 KiB.
    pub trailer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            target_bytes_max: 8 << 10,
            head_bytes_max: 32 << 10,
            headers_max: 100,
            body_bytes_max: 128 << 20,
            chunk_line_bytes_max: 1 << 10,
            trailer_bytes_max: 8 << 10,
        }
    }
}

impl Limits {
    /// Longest request line with its CRLF. The target's own bound is checked exactly once it is known;
    /// this one ends the wait for a line that does not end.
    pub(crate) fn request_line_bytes_max(&self) -> usize {
        self.target_bytes_max
            .saturating_add(METHOD_BYTES_MAX + "  HTTP/1.1\r\n".len())
    }
}
