//! Taking a request's body out of the stream (RFC 9112 sections 6 and 7).

use crate::classes::{is_token_byte, is_value_byte};
use crate::framing::Framing;
use crate::limits::Limits;
use crate::reject::{BODY_TOO_LARGE, Reject};

/// What one call of [`BodyDecoder::decode`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that belong to this body; the next request begins behind them.
    pub consumed: usize,
    /// Whether the body is complete. If not, all of the input was consumed.
    pub done: bool,
}

/// Decodes one request body, however its bytes are split.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes that the body may still grow by; only for chunked bodies.
    room: u64,
    /// Bytes that the current chunk line, or the trailer section, may still take.
    line_room: usize,
    chunk_line_bytes_max: usize,
    trailer_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes of a body with a length are left.
    Length(u64),
    /// In front of the first digit of a chunk size.
    SizeStart,
    /// In a chunk size, of which this much was read.
    Size(u64),
    /// Blanks behind a chunk size: only an extension may follow them.
    SizeBlank(u64),
    Extension(u64),
    /// Behind the CR of a chunk line.
    SizeLf(u64),
    /// So many bytes of the chunk are left.
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Done,
    Broken(Reject),
}

impl BodyDecoder {
    /// For a body that is framed like this.
    pub fn new(framing: Framing, limits: &Limits) -> BodyDecoder {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) if length > limits.body_bytes_max => {
                State::Broken(BODY_TOO_LARGE)
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::SizeStart,
        };
        BodyDecoder {
            state,
            room: limits.body_bytes_max,
            line_room: limits.chunk_line_bytes_max,
            chunk_line_bytes_max: limits.chunk_line_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        }
    }

    /// Whether the body is complete.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Consumes from `input`, and hands the body's bytes to `sink` in order, in slices of `input` that
    /// are never empty.
    ///
    /// # Errors
    /// 400 for a malformed chunk (RFC 9112 section 7.1) or a chunk line over its bound; 413 for a body that
    /// announces more than [`Limits::body_bytes_max`]; 431 for trailers over their bound. The same reject is
    /// returned from then on. Trailers are checked and dropped; extensions are dropped.
    #[inline]
    pub fn decode(
        &mut self,
        input: &[u8],
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<Decoded, Reject> {
        let mut rest = input;
        loop {
            rest = match self.state {
                State::Done => {
                    return Ok(Decoded {
                        consumed: input.len() - rest.len(),
                        done: true,
                    });
                }
                State::Broken(reject) => return Err(reject),
                _ if rest.is_empty() => {
                    return Ok(Decoded {
                        consumed: input.len(),
                        done: false,
                    });
                }
                State::Length(left) => {
                    let (rest, left) = take(rest, left, sink);
                    self.state = if left == 0 {
                        State::Done
                    } else {
                        State::Length(left)
                    };
                    rest
                }
                State::Data(left) => {
                    let (rest, left) = take(rest, left, sink);
                    self.state = if left == 0 {
                        State::DataCr
                    } else {
                        State::Data(left)
                    };
                    rest
                }
                state => {
                    self.state = self.step(state, rest[0]).unwrap_or_else(State::Broken);
                    &rest[1..]
                }
            };
        }
    }

    /// One byte of chunked syntax.
    fn step(&mut self, state: State, byte: u8) -> Result<State, Reject> {
        const SIZE: Reject = Reject::bad("malformed chunk size");
        const MISMATCH: Reject = Reject::bad("a chunk that does not match its size");
        const TRAILER: Reject = Reject::bad("malformed trailer");
        self.spend(state)?;
        Ok(match (state, byte) {
            (State::SizeStart, _) => State::Size(self.size(0, byte)?),
            (State::Size(size) | State::SizeBlank(size), b';') => State::Extension(size),
            (State::Size(size) | State::SizeBlank(size), b' ' | b'\t') => State::SizeBlank(size),
            (State::Size(size) | State::Extension(size), b'\r') => State::SizeLf(size),
            (State::Size(size), _) => State::Size(self.size(size, byte)?),
            (State::SizeBlank(_), _) => return Err(SIZE),
            (State::Extension(size), _) if is_value_byte(byte) => State::Extension(size),
            (State::Extension(_), _) => return Err(Reject::bad("malformed chunk extension")),
            (State::SizeLf(0), b'\n') => {
                self.line_room = self.trailer_bytes_max;
                State::TrailerStart
            }
            (State::SizeLf(size), b'\n') => {
                self.room -= size;
                State::Data(size)
            }
            (State::SizeLf(_), _) => return Err(SIZE),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line_room = self.chunk_line_bytes_max;
                State::SizeStart
            }
            (State::DataCr | State::DataLf, _) => return Err(MISMATCH),
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                State::TrailerName
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if is_value_byte(byte) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::LastLf, b'\n') => State::Done,
            _ => return Err(TRAILER),
        })
    }

    /// Counts one byte against the bound of the line, or the section, that it stands in.
    fn spend(&mut self, state: State) -> Result<(), Reject> {
        if matches!(state, State::DataCr | State::DataLf) {
            return Ok(());
        }
        match self.line_room.checked_sub(1) {
            Some(room) => {
                self.line_room = room;
                Ok(())
            }
            None if state.is_trailer() => Err(Reject::new(431, "the trailers are too large")),
            None => Err(Reject::bad("the chunk line is too long")),
        }
    }

    /// Adds a hexadecimal digit. The bound is checked at each, so nothing overflows.
    fn size(&self, size: u64, digit: u8) -> Result<u64, Reject> {
        let value = char::from(digit)
            .to_digit(16)
            .ok_or(Reject::bad("malformed chunk size"))?;
        match size.checked_mul(16).map(|size| size | u64::from(value)) {
            Some(size) if size <= self.room => Ok(size),
            _ => Err(BODY_TOO_LARGE),
        }
    }
}

impl State {
    fn is_trailer(self) -> bool {
        matches!(
            self,
            State::TrailerStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::LastLf
        )
    }
}

/// Hands up to `left` bytes to the sink; returns what remains of the input and of the count.
#[inline]
fn take<'i>(input: &'i [u8], left: u64, sink: &mut impl FnMut(&[u8])) -> (&'i [u8], u64) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
    let (data, rest) = input.split_at(length);
    sink(data);
    (rest, left - length as u64)
}
