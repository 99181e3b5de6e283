//! One connection's replies, from bytes that come in any pieces.

use super::Fault;
use super::chunked::{Chunked, Piece};
use super::head::{self, Framing, HEAD_BYTES_MAX, Head};

/// Interim replies (1xx) before the final one.
const INTERIM_MAX: u8 = 16;

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub body_bytes: u64,
    /// Nothing may follow on this connection.
    pub close: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All bytes are taken, and the reply is not at its end.
    More,
    Body(&'a [u8]),
    Reply(Reply),
}

/// What the end of the connection means.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Between replies.
    Between,
    /// It was the end of this reply.
    Reply(Reply),
    /// A reply had begun.
    Cut,
}

#[derive(Default)]
pub struct Reader {
    stage: Stage,
    /// A head that has not come whole.
    partial: Vec<u8>,
    status: u16,
    close: bool,
    body_bytes: u64,
    interim: u8,
}

#[derive(Default)]
enum Stage {
    #[default]
    Head,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

impl Reader {
    /// Takes bytes from the front of `input`, until something is to be told. `bodiless`: the reply that is
    /// being read answers HEAD.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8], bodiless: bool) -> Result<Event<'a>, Fault> {
        loop {
            match &mut self.stage {
                Stage::Head => {
                    let Some(head) = self.head(input)? else {
                        return Ok(Event::More);
                    };
                    if head.status < 200 {
                        self.interim(head)?;
                    } else {
                        self.final_head(head, bodiless);
                    }
                }
                Stage::Length(0) => return Ok(Event::Reply(self.whole())),
                Stage::Length(left) => {
                    if input.is_empty() {
                        return Ok(Event::More);
                    }
                    let take = input
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (data, rest) = input.split_at(take);
                    *left -= take as u64;
                    self.body_bytes += take as u64;
                    *input = rest;
                    return Ok(Event::Body(data));
                }
                Stage::Chunked(chunked) => match chunked.next(input)? {
                    Piece::More => return Ok(Event::More),
                    Piece::End => self.stage = Stage::Length(0),
                    Piece::Data(data) => {
                        self.body_bytes += data.len() as u64;
                        return Ok(Event::Body(data));
                    }
                },
                Stage::UntilClose => {
                    let data = std::mem::take(input);
                    if data.is_empty() {
                        return Ok(Event::More);
                    }
                    self.body_bytes += data.len() as u64;
                    return Ok(Event::Body(data));
                }
            }
        }
    }

    /// No byte of a reply has come since the last one.
    pub fn between(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.partial.is_empty() && self.interim == 0
    }

    /// The connection has ended; another may follow.
    pub fn end(&mut self) -> Ended {
        let ended = match self.stage {
            Stage::UntilClose => Ended::Reply(self.whole()),
            _ if self.between() => Ended::Between,
            _ => Ended::Cut,
        };
        self.partial.clear();
        *self = Reader {
            partial: std::mem::take(&mut self.partial),
            ..Reader::default()
        };
        ended
    }

    #[inline]
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, Fault> {
        if self.partial.is_empty()
            && let Some((head, length)) = head::parse(input)?
        {
            *input = &input[length..];
            return Ok(Some(head));
        }
        self.partial_head(input)
    }

    #[cold]
    fn partial_head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, Fault> {
        let had = self.partial.len();
        let take = input.len().min(HEAD_BYTES_MAX - had);
        self.partial.extend_from_slice(&input[..take]);
        match head::parse(&self.partial)? {
            Some((head, length)) => {
                self.partial.clear();
                *input = &input[length - had..];
                Ok(Some(head))
            }
            None => {
                *input = &input[take..];
                Ok(None)
            }
        }
    }

    #[cold]
    fn interim(&mut self, head: Head) -> Result<(), Fault> {
        if head.status == 101 {
            return Err(Fault(
                "101 Switching Protocols, though no upgrade was asked for",
            ));
        }
        self.interim += 1;
        match self.interim > INTERIM_MAX {
            true => Err(Fault(
                "more than 16 interim replies (1xx) before the final one",
            )),
            false => Ok(()),
        }
    }

    fn final_head(&mut self, head: Head, bodiless: bool) {
        self.status = head.status;
        self.close = head.close;
        self.stage = match head.framing {
            _ if bodiless || matches!(head.status, 204 | 304) => Stage::Length(0),
            Framing::Length(length) => Stage::Length(length),
            Framing::Chunked => Stage::Chunked(Chunked::new()),
            Framing::UntilClose => {
                self.close = true;
                Stage::UntilClose
            }
        };
    }

    /// The reply that has been read, and ready for the next one.
    #[inline]
    fn whole(&mut self) -> Reply {
        self.stage = Stage::Head;
        self.interim = 0;
        Reply {
            status: self.status,
            body_bytes: std::mem::take(&mut self.body_bytes),
            close: self.close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Read = Result<(Vec<(Reply, Vec<u8>)>, Ended), Fault>;

    /// Reads all bytes, cut at the given places, and then the end of the connection.
    fn read(bytes: &[u8], cuts: &[usize], bodiless: bool) -> Read {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut reader, mut replies, mut body) = (Reader::default(), Vec::new(), Vec::new());
        for window in cuts.windows(2) {
            let mut input = &bytes[window[0]..window[1]];
            loop {
                match reader.next(&mut input, bodiless)? {
                    Event::More => {
                        assert!(input.is_empty());
                        break;
                    }
                    Event::Body(data) => body.extend_from_slice(data),
                    Event::Reply(reply) => replies.push((reply, std::mem::take(&mut body))),
                }
            }
        }
        let ended = reader.end();
        assert!(reader.between());
        Ok((replies, ended))
    }

    fn bodies(text: &str) -> (Vec<(u16, String)>, Ended) {
        let (replies, ended) = read(text.as_bytes(), &[], false).expect("well-formed");
        let replies = replies.into_iter();
        (
            replies
                .map(|(reply, body)| (reply.status, String::from_utf8(body).expect("text")))
                .collect(),
            ended,
        )
    }

    #[test]
    fn replies_follow_each_other() {
        let (replies, ended) = bodies(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No\r\n\r\n\
             HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
             HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\n\r\nto the end",
        );
        let expected = [(200, "abc"), (204, ""), (200, "abc"), (304, "")]
            .map(|(status, body)| (status, body.to_owned()));
        assert_eq!(replies, expected);
        assert!(matches!(
            ended,
            Ended::Reply(Reply {
                status: 500,
                body_bytes: 10,
                close: true
            })
        ));
    }

    #[test]
    fn a_reply_to_head_has_no_body() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (replies, ended) = read(text.as_bytes(), &[], true).expect("well-formed");
        assert_eq!((replies.len(), ended), (2, Ended::Between));
    }

    #[test]
    fn an_end_within_a_reply_is_a_cut() {
        for text in [
            "H",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ] {
            assert_eq!(bodies(text).1, Ended::Cut, "{text:?}");
        }
    }

    #[test]
    fn interim_replies_are_bounded_and_switch_nothing() {
        let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(17);
        assert!(read(many.as_bytes(), &[], false).is_err());
        assert!(read(b"HTTP/1.1 101 Switching\r\n\r\n", &[], false).is_err());
    }

    fn a_reply() -> impl Strategy<Value = (Vec<u8>, Reply, Vec<u8>)> {
        let body = proptest::collection::vec(any::<u8>(), 0..300);
        (
            200_u16..600,
            body,
            any::<bool>(),
            1_usize..50,
            any::<bool>(),
        )
            .prop_map(|(status, body, chunked, size, hints)| {
                let body = if matches!(status, 204 | 304) {
                    vec![]
                } else {
                    body
                };
                let mut bytes = Vec::new();
                if hints {
                    bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                }
                bytes.extend_from_slice(
                    format!("HTTP/1.1 {status} Some reason\r\nX-A: b\r\n").as_bytes(),
                );
                if chunked && !matches!(status, 204 | 304) {
                    bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for chunk in body.chunks(size) {
                        bytes.extend_from_slice(format!("{:x};e\r\n", chunk.len()).as_bytes());
                        bytes.extend_from_slice(chunk);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    bytes.extend_from_slice(b"0\r\nT: x\r\n\r\n");
                } else {
                    bytes.extend_from_slice(
                        format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(),
                    );
                    bytes.extend_from_slice(&body);
                }
                let reply = Reply {
                    status,
                    body_bytes: body.len() as u64,
                    close: false,
                };
                (bytes, reply, body)
            })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_however_it_is_cut(
            replies in proptest::collection::vec(a_reply(), 1..5),
            cuts in proptest::collection::vec(any::<usize>(), 0..40),
        ) {
            let bytes: Vec<u8> = replies.iter().flat_map(|(bytes, _, _)| bytes.clone()).collect();
            let expected: Vec<_> = replies.into_iter().map(|(_, reply, body)| (reply, body)).collect();
            prop_assert_eq!(read(&bytes, &cuts, false), Ok((expected, Ended::Between)));
        }

        /// Nor does it matter to bytes that are no replies.
        #[test]
        fn cuts_change_nothing(
            replies in proptest::collection::vec(a_reply(), 1..3),
            spoiled in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
            cuts in proptest::collection::vec(any::<usize>(), 0..40),
            bodiless in any::<bool>(),
        ) {
            let mut bytes: Vec<u8> = replies.iter().flat_map(|(bytes, _, _)| bytes.clone()).collect();
            for (at, byte) in spoiled {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let whole = read(&bytes, &[], bodiless);
            let pieces = read(&bytes, &cuts, bodiless);
            prop_assert_eq!(whole.is_ok(), pieces.is_ok());
            if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
                prop_assert_eq!(whole, pieces);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), cuts in proptest::collection::vec(any::<usize>(), 0..9)) {
            let _ = read(&bytes, &cuts, false);
            let _ = read(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(), &bytes].concat(), &cuts, false);
        }
    }
}
