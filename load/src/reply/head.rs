//! The status line and the header fields of a reply (RFC 9112, sections 4 and 5).

use memchr::memchr;

use super::Fault;
use crate::field::{TOKEN, has_control, trim};

/// The largest head that is taken.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub framing: Framing,
    /// The server will close the connection, or the end of the body is its close.
    pub close: bool,
}

/// Where the body ends, if the reply may have one (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// The head and its length in bytes, its empty line included. None: more bytes are needed.
pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
    let Some((line, mut at)) = next_line(bytes, 0)? else {
        return match looks_like_http(bytes) {
            true => too_large(bytes),
            false => Err(NOT_HTTP),
        };
    };
    let (version_11, status) = status_line(line)?;
    let mut fields = Fields::default();
    loop {
        let Some((line, after)) = next_line(bytes, at)? else {
            return too_large(bytes);
        };
        at = after;
        if line.is_empty() {
            break;
        }
        fields.line(line)?;
    }
    if at > HEAD_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let head = fields.head(version_11, status)?;
    Ok(Some((head, at)))
}

const NOT_HTTP: Fault =
    Fault("the reply does not begin with HTTP/1.0 or HTTP/1.1 and a status of three digits");
const TOO_LARGE: Fault = Fault("the head of the reply is larger than 32 KiB");

fn too_large(bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
    match bytes.len() >= HEAD_BYTES_MAX {
        true => Err(TOO_LARGE),
        false => Ok(None),
    }
}

/// The line that begins at `at` without its CR LF, and where the next one begins.
#[inline]
fn next_line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Fault> {
    let rest = &bytes[at..];
    let Some(feed) = memchr(b'\n', rest) else {
        return Ok(None);
    };
    match rest[..feed].split_last() {
        Some((b'\r', line)) => Ok(Some((line, at + feed + 1))),
        _ => Err(Fault(
            "a line of the reply's head ends with LF instead of CR LF",
        )),
    }
}

/// So that garbage without a line end is not waited on.
fn looks_like_http(bytes: &[u8]) -> bool {
    let prefix = b"HTTP/1.";
    let common = bytes.len().min(prefix.len());
    bytes[..common] == prefix[..common]
}

fn status_line(line: &[u8]) -> Result<(bool, u16), Fault> {
    let [
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        b'1',
        b'.',
        minor @ (b'0' | b'1'),
        b' ',
        a @ b'1'..=b'9',
        b,
        c,
        reason @ ..,
    ] = line
    else {
        return Err(NOT_HTTP);
    };
    if !(b.is_ascii_digit() && c.is_ascii_digit()) || !(reason.is_empty() || reason[0] == b' ') {
        return Err(NOT_HTTP);
    }
    if has_control(reason) {
        return Err(Fault("a control byte in the reply's status line"));
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((*minor == b'1', digit(a) * 100 + digit(b) * 10 + digit(c)))
}

/// What the fields say that matters to framing.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Fields {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let colon = memchr(b':', line).ok_or(Fault("a header line of the reply has no colon"))?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if name.is_empty() || !name.iter().all(|byte| TOKEN[usize::from(*byte)]) {
            return Err(Fault(
                "a header name of the reply is empty, or has a byte that names may not have",
            ));
        }
        if has_control(value) {
            return Err(Fault("a control byte in a header value of the reply"));
        }
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"Connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case(b"Content-Length") => self.content_length(value)?,
            17 if name.eq_ignore_ascii_case(b"Transfer-Encoding") => {
                self.transfer_encoding(value)?
            }
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = trim(option);
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        let wrong = Fault("the reply's Content-Length is not a number below 2^63");
        if value.is_empty() || value.len() > 19 {
            return Err(wrong);
        }
        let mut length = 0_u64;
        for byte in value {
            if !byte.is_ascii_digit() {
                return Err(wrong);
            }
            // 19 digits fit in 64 bits.
            length = length * 10 + u64::from(byte - b'0');
        }
        if length > i64::MAX as u64 {
            return Err(wrong);
        }
        if self.length.is_some() {
            return Err(Fault("the reply has two Content-Length fields"));
        }
        self.length = Some(length);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Fault(
                "the reply's Transfer-Encoding is not simply chunked, though nothing else was asked for",
            ));
        }
        self.chunked = true;
        Ok(())
    }

    fn head(&self, version_11: bool, status: u16) -> Result<Head, Fault> {
        let framing = match (self.chunked, self.length) {
            (true, Some(_)) => {
                return Err(Fault(
                    "the reply has both Transfer-Encoding and Content-Length",
                ));
            }
            (true, None) if !version_11 => {
                return Err(Fault("an HTTP/1.0 reply has Transfer-Encoding"));
            }
            (true, None) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        Ok(Head {
            status,
            framing,
            close: self.close || !(version_11 || self.keep_alive),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(Head, usize)>, Fault> {
        parse(text.as_bytes())
    }

    fn good(text: &str) -> Head {
        let (head, length) = head(text).expect("well-formed").expect("whole");
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn heads_say_where_the_body_ends() {
        let plain = good("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(
            (plain.status, plain.framing, plain.close),
            (200, Framing::Length(5), false)
        );
        assert_eq!(good("HTTP/1.1 204\r\n\r\n").status, 204);
        assert_eq!(good("HTTP/1.1 404 \r\n\r\n").framing, Framing::UntilClose);
        assert_eq!(
            good("HTTP/1.1 200 OK\r\ntransfer-ENCODING:\tChunked \r\n\r\n").framing,
            Framing::Chunked
        );
        assert_eq!(
            good("HTTP/1.1 200 OK\r\nX:\r\nY: \u{fc}\r\nContent-length:007\r\n\r\n").framing,
            Framing::Length(7)
        );
    }

    #[test]
    fn the_version_and_connection_say_what_becomes_of_the_connection() {
        assert!(good("HTTP/1.1 200 OK\r\nConnection: a, CLOSE\r\n\r\n").close);
        assert!(good("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").close);
        assert!(
            !good("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n").close
        );
        assert!(!good("HTTP/1.1 200 OK\r\nConnection: closed\r\n\r\n").close);
    }

    #[test]
    fn what_is_incomplete_is_waited_for() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(head(&whole[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn what_is_malformed_is_not_waited_for() {
        for text in [
            "SSH-2.0-OpenSSH_9.2",
            "<html>",
            "\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.2 200 OK\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200-OK\r\n\r\n",
            "HTTP/1.1 200 O\0K\r\n\r\n",
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: empty\r\n\r\n",
            "HTTP/1.1 200 OK\r\nspace : x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(head(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn heads_are_bounded() {
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(head(&endless), Err(TOO_LARGE));
        assert_eq!(head(&format!("{endless}\r\n\r\n")), Err(TOO_LARGE));
    }
}
