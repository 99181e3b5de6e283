//! A stream of pipelined requests reads the same in one piece and in pieces, and what is accepted has one
//! meaning only.
//!
//! The first 8 bytes of the input say where to split; the rest is the stream.
#![no_main]

use baton_http1::{Framing, HeaderStore, Limits, RequestHead, Version};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/tests/stream.rs"]
mod stream;

use stream::{End, Message, read_pieces, read_whole};

/// Small enough that a fuzzer reaches every bound.
const LIMITS: Limits = Limits {
    target_bytes_max: 64,
    head_bytes_max: 512,
    headers_max: 16,
    body_bytes_max: 256,
    chunk_line_bytes_max: 32,
    trailer_bytes_max: 64,
};

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_at_checked(8) else {
        return;
    };
    let whole = read_whole(stream, &LIMITS);
    let split = read_pieces(
        Pieces {
            cuts,
            turn: 0,
            rest: stream,
        },
        &LIMITS,
    );
    assert_eq!(whole, split);

    for (index, message) in whole.messages.iter().enumerate() {
        check_head(message);
        // Only the last message can be incomplete.
        assert!(
            message.complete || (index + 1 == whole.messages.len() && whole.end != End::Boundary)
        );
        check_body(message);
    }
    // Parsing stands on its own feet, without the scanner in front of it.
    let mut store = HeaderStore::new();
    if let Ok(head) = RequestHead::parse(stream, &LIMITS, &mut store) {
        assert_eq!(
            whole.messages.first().map(|message| message.path.as_str()),
            Some(head.path)
        );
    }
});

/// Cuts the stream into pieces, as long as the bytes of `cuts` say, in turns.
struct Pieces<'i> {
    cuts: &'i [u8],
    turn: usize,
    rest: &'i [u8],
}

impl<'i> Iterator for Pieces<'i> {
    type Item = &'i [u8];

    fn next(&mut self) -> Option<&'i [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let length = usize::from(self.cuts[self.turn % self.cuts.len()]) + 1;
        self.turn += 1;
        let (piece, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        Some(piece)
    }
}

/// A second, naive reading of the same head must not find anything ambiguous in it.
fn check_head(message: &Message) {
    let head = std::str::from_utf8(&message.head);
    let text = String::from_utf8_lossy(&message.head);
    let body = text
        .strip_suffix("\r\n\r\n")
        .expect("a head ends in an empty line");
    let mut lines = body.split("\r\n").skip_while(|line| line.is_empty());
    let request_line = lines.next().expect("a request line");
    assert!(!body.contains('\0'), "{text:?}");
    for line in body.split("\r\n") {
        assert!(!line.contains(['\r', '\n']), "a bare line end: {text:?}");
    }

    let words: Vec<&str> = request_line.split(' ').collect();
    let [method, target, version] = words[..] else {
        panic!("not three words: {text:?}");
    };
    assert_eq!(method, message.method);
    assert!(target.starts_with(&message.target));
    assert_eq!(version, message.version.as_str());
    let path_ok = message.path.starts_with('/')
        || (message.path == "*" && method == "OPTIONS")
        || (message.path.is_empty() && method == "CONNECT");
    assert!(path_ok, "{text:?}");
    assert!(
        !message.path.contains("%00") && !message.path.contains(['#', '?', ' ']),
        "{text:?}"
    );
    assert!(
        !message
            .target
            .bytes()
            .any(|byte| byte <= b' ' || byte == 0x7f),
        "{text:?}"
    );

    let mut hosts = 0;
    let mut lengths = Vec::new();
    let mut codings = Vec::new();
    let mut plain_names = 0;
    for line in lines {
        let (name, value) = line.split_once(':').expect("a colon in each line");
        let value = value.trim_matches([' ', '\t']);
        assert!(!name.is_empty() && !name.contains([' ', '\t']), "{text:?}");
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" => lengths.push(value.parse::<u64>().expect("a plain number")),
            "transfer-encoding" => codings.push(value.to_ascii_lowercase()),
            _ => {}
        }
        plain_names += usize::from(!name.contains('_'));
    }
    assert!(
        hosts == 1 || (hosts == 0 && message.version == Version::Http10),
        "{text:?}"
    );
    let framing = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Framing::None,
        ([], [coding]) if coding == "chunked" && message.version == Version::Http11 => {
            Framing::Chunked
        }
        ([length, others @ ..], []) if others.iter().all(|other| other == length) => {
            assert!(*length <= LIMITS.body_bytes_max, "{text:?}");
            Framing::Length(*length)
        }
        _ => panic!("ambiguous framing: {text:?}"),
    };
    assert_eq!(message.framing, framing, "{text:?}");

    // What the application sees: one length at most, no name that a CGI variable would confuse.
    assert!(
        message.headers.iter().all(|(name, _)| !name.contains('_')),
        "{text:?}"
    );
    assert_eq!(
        message.headers.len(),
        plain_names - lengths.len().saturating_sub(1),
        "{text:?}"
    );
    for (_, value) in &message.headers {
        assert!(
            !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "{text:?}"
        );
        assert!(!matches!(value.first(), Some(b' ' | b'\t')), "{text:?}");
        assert!(!matches!(value.last(), Some(b' ' | b'\t')), "{text:?}");
    }
    if let (Ok(_), Some(host)) = (head, &message.host) {
        assert!(
            !host.is_empty() && !host.contains("..") && !host.contains(['/', ',', ' ']),
            "{text:?}"
        );
        assert!(
            message.values("host").iter().all(|value| value == host),
            "{text:?}"
        );
    }
}

fn check_body(message: &Message) {
    let length = message.body.len() as u64;
    assert!(length <= LIMITS.body_bytes_max);
    match message.framing {
        Framing::None => assert_eq!(length, 0),
        Framing::Length(announced) if message.complete => assert_eq!(length, announced),
        Framing::Length(announced) => assert!(length < announced),
        Framing::Chunked => {}
    }
}
