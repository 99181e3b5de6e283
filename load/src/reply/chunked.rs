//! The chunked coding (RFC 9112, section 7.1), a byte at a time but for the data.

use super::Fault;

/// Extensions and trailers of one reply, together. They are skipped.
const EXTRA_BYTES_MAX: u32 = 16 * 1024;
/// Digits of a chunk's size: below 2^60.
const SIZE_DIGITS_MAX: u8 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    /// At the beginning of a line behind the last chunk.
    Trailer,
    TrailerLine,
    TrailerFeed,
    EndFeed,
}

#[derive(Clone, Debug)]
pub struct Chunked {
    state: State,
    /// The size that is being read, or what is left of the data.
    size: u64,
    digits: u8,
    extra_bytes: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// All bytes are taken, and the body is not at its end.
    More,
    Data(&'a [u8]),
    End,
}

impl Chunked {
    pub fn new() -> Chunked {
        Chunked {
            state: State::Size,
            size: 0,
            digits: 0,
            extra_bytes: 0,
        }
    }

    /// Takes bytes from the front of `input`.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Fault> {
        loop {
            if self.state == State::Data {
                let take = input
                    .len()
                    .min(usize::try_from(self.size).unwrap_or(usize::MAX));
                let (data, rest) = input.split_at(take);
                if data.is_empty() {
                    return Ok(Piece::More);
                }
                *input = rest;
                self.size -= take as u64;
                if self.size == 0 {
                    self.state = State::DataReturn;
                }
                return Ok(Piece::Data(data));
            }
            let Some((byte, rest)) = input.split_first() else {
                return Ok(Piece::More);
            };
            *input = rest;
            if self.byte(*byte)? {
                return Ok(Piece::End);
            }
        }
    }

    /// True at the end of the body.
    fn byte(&mut self, byte: u8) -> Result<bool, Fault> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.digits == SIZE_DIGITS_MAX {
                    return Err(Fault("a chunk's size has more than 15 digits"));
                }
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.size = self.size * 16 + u64::from(digit);
                self.digits += 1;
                State::Size
            }
            (State::Size, _) if self.digits == 0 => {
                return Err(Fault("a chunk's size is no hexadecimal number"));
            }
            (State::Size | State::Extension, b'\r') => State::SizeFeed,
            (State::Size, b';' | b' ' | b'\t') => self.extra(State::Extension)?,
            (State::Extension, 0x20.. | b'\t') => self.extra(State::Extension)?,
            (State::SizeFeed, b'\n') => {
                self.digits = 0;
                match self.size {
                    0 => State::Trailer,
                    _ => State::Data,
                }
            }
            (State::DataReturn, b'\r') => State::DataFeed,
            (State::DataFeed, b'\n') => State::Size,
            (State::Trailer, b'\r') => State::EndFeed,
            (State::Trailer | State::TrailerLine, 0x20.. | b'\t') => {
                self.extra(State::TrailerLine)?
            }
            (State::TrailerLine, b'\r') => State::TrailerFeed,
            (State::TrailerFeed, b'\n') => State::Trailer,
            (State::EndFeed, b'\n') => return Ok(true),
            (State::Size | State::Extension | State::SizeFeed, _) => {
                return Err(Fault("a chunk's size is not followed by CR LF"));
            }
            (State::DataReturn | State::DataFeed | State::Data, _) => {
                return Err(Fault("a chunk's data is not as long as its size says"));
            }
            _ => {
                return Err(Fault(
                    "the trailers of a chunked reply do not end with CR LF",
                ));
            }
        };
        Ok(false)
    }

    fn extra(&mut self, next: State) -> Result<State, Fault> {
        self.extra_bytes += 1;
        match self.extra_bytes > EXTRA_BYTES_MAX {
            true => Err(Fault("chunk extensions and trailers of more than 16 KiB")),
            false => Ok(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Decoded<'a> = Option<(Vec<u8>, &'a [u8])>;

    /// The body, and what is left behind it; None if it does not end.
    fn decode(mut input: &[u8]) -> Result<Decoded<'_>, Fault> {
        let (mut chunked, mut body) = (Chunked::new(), Vec::new());
        loop {
            match chunked.next(&mut input)? {
                Piece::More => return Ok(None),
                Piece::Data(data) => body.extend_from_slice(data),
                Piece::End => return Ok(Some((body, input))),
            }
        }
    }

    #[test]
    fn chunks_are_put_together() {
        let text = b"5;name=\"v\"\r\nhello\r\n00A \r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\nHTTP";
        assert_eq!(
            decode(text),
            Ok(Some((b"hello, world!!!".to_vec(), &b"HTTP"[..])))
        );
        assert_eq!(decode(b"0\r\n\r\n"), Ok(Some((vec![], &b""[..]))));
        assert_eq!(decode(b"5\r\nhell"), Ok(None));
        assert_eq!(decode(b"5\r\nhello\r\n0\r\n"), Ok(None));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "5\nhello",
            "5\r\r",
            "5\r\nhello\n",
            "5\r\nhelloo\r\n",
            "4\r\nhello\r\n",
            "1000000000000000\r\n",
            "0\r\n\n",
            "0\r\nA\n",
            "0\r\nA\rB",
            "5;\0\r\n",
        ] {
            assert!(decode(text.as_bytes()).is_err(), "{text:?}");
        }
        let endless = format!("5;{}", "x".repeat(20_000));
        assert!(decode(endless.as_bytes()).is_err());
        let endless = format!("0\r\n{}", "A: b\r\n".repeat(20_000));
        assert!(decode(endless.as_bytes()).is_err());
    }
}
