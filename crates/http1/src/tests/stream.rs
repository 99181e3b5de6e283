//! Reads a stream of requests the way a server does. Shared by the tests and the fuzz targets, so it
//! uses the public interface only.

use baton_http1::{
    BodyDecoder, Framing, HeadScanner, HeaderStore, Limits, Reject, RequestHead, Version,
};

/// A request with its body, copied out of the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) head: Vec<u8>,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) version: Version,
    pub(crate) host: Option<String>,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expect_continue: bool,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) complete: bool,
}

impl Message {
    /// All values of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = self
            .headers
            .iter()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named
            .map(|(_, value)| std::str::from_utf8(value).expect("a text value"))
            .collect()
    }
}

/// Where the stream stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Boundary,
    MidHead,
    MidBody,
    Rejected(Reject),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) messages: Vec<Message>,
    pub(crate) end: End,
}

pub(crate) struct Reader {
    limits: Limits,
    buffer: Vec<u8>,
    scanner: HeadScanner,
    body: Option<BodyDecoder>,
    messages: Vec<Message>,
    rejected: Option<Reject>,
}

impl Reader {
    pub(crate) fn new(limits: &Limits) -> Reader {
        Reader {
            limits: *limits,
            buffer: Vec::new(),
            scanner: HeadScanner::default(),
            body: None,
            messages: Vec::new(),
            rejected: None,
        }
    }

    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
        while self.rejected.is_none() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(reject) => self.rejected = Some(reject),
            }
        }
    }

    pub(crate) fn finish(self) -> Reading {
        let end = match (self.rejected, &self.body) {
            (Some(reject), _) => End::Rejected(reject),
            (None, Some(_)) => End::MidBody,
            (None, None) if self.buffer.is_empty() => End::Boundary,
            (None, None) => End::MidHead,
        };
        Reading {
            messages: self.messages,
            end,
        }
    }

    /// One head or one helping of a body; false if more bytes are needed.
    fn advance(&mut self) -> Result<bool, Reject> {
        if let Some(decoder) = &mut self.body {
            let message = self.messages.last_mut().expect("a body follows a head");
            let mut sink = |data: &[u8]| {
                assert!(!data.is_empty());
                message.body.extend_from_slice(data);
            };
            let decoded = decoder.decode(&self.buffer, &mut sink)?;
            assert!(decoded.done || decoded.consumed == self.buffer.len());
            assert_eq!(decoded.done, decoder.is_done());
            message.complete = decoded.done;
            self.buffer.drain(..decoded.consumed);
            if decoded.done {
                self.body = None;
            }
            return Ok(decoded.done);
        }
        if self.buffer.is_empty() {
            return Ok(false);
        }
        let Some(length) = self.scanner.scan(&self.buffer, &self.limits)? else {
            return Ok(false);
        };
        self.scanner.reset();
        let mut store = HeaderStore::new();
        let head = RequestHead::parse(&self.buffer[..length], &self.limits, &mut store)?;
        self.body = Some(BodyDecoder::new(head.framing, &self.limits));
        self.messages.push(Message {
            head: self.buffer[..length].to_vec(),
            method: head.method.to_owned(),
            target: head.target.to_owned(),
            path: head.path.to_owned(),
            query: head.query.map(str::to_owned),
            version: head.version,
            host: head.host.map(str::to_owned),
            framing: head.framing,
            keep_alive: head.keep_alive,
            expect_continue: head.expect_continue,
            headers: head
                .headers()
                .map(|h| (h.name.to_owned(), h.value.to_vec()))
                .collect(),
            body: Vec::new(),
            complete: false,
        });
        self.buffer.drain(..length);
        Ok(true)
    }
}

pub(crate) fn read_whole(bytes: &[u8], limits: &Limits) -> Reading {
    read_pieces([bytes], limits)
}

pub(crate) fn read_pieces<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    limits: &Limits,
) -> Reading {
    let mut reader = Reader::new(limits);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.finish()
}
