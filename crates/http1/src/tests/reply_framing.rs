//! Where a reply's body ends, and who says so.

use super::reply::{GET, encode};
use crate::{ReplyContext, ReplyFraming, Version};

const HEAD: ReplyContext = ReplyContext {
    head_request: true,
    ..GET
};
const OLD: ReplyContext = ReplyContext {
    version: Version::Http10,
    ..GET
};
const CONNECT: ReplyContext = ReplyContext {
    connect: true,
    ..GET
};

struct Case {
    ctx: ReplyContext,
    status: u16,
    claimed: &'static [&'static str],
    known: Option<u64>,
    framing: ReplyFraming,
    /// Of Content-Length and Transfer-Encoding.
    written: &'static str,
    keep_alive: bool,
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { ctx: GET, status: 200, claimed: &[], known: Some(5), framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["5"], known: Some(5), framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["6"], known: Some(5), framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["5"], known: None, framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &[" 5\t"], known: None, framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["5", "5"], known: None, framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["5", "6"], known: None, framing: ReplyFraming::Chunked, written: "Transfer-Encoding: chunked", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["5", "x", "5"], known: None, framing: ReplyFraming::Chunked, written: "Transfer-Encoding: chunked", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["+5"], known: None, framing: ReplyFraming::Chunked, written: "Transfer-Encoding: chunked", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &["5, 5"], known: None, framing: ReplyFraming::Chunked, written: "Transfer-Encoding: chunked", keep_alive: true },
    Case { ctx: GET, status: 200, claimed: &[], known: None, framing: ReplyFraming::Chunked, written: "Transfer-Encoding: chunked", keep_alive: true },
    Case { ctx: GET, status: 500, claimed: &[], known: Some(0), framing: ReplyFraming::Length(0), written: "Content-Length: 0", keep_alive: true },
    // HTTP/1.0
    Case { ctx: OLD, status: 200, claimed: &[], known: Some(5), framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: OLD, status: 200, claimed: &["5"], known: None, framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
    Case { ctx: OLD, status: 200, claimed: &[], known: None, framing: ReplyFraming::UntilClose, written: "", keep_alive: false },
    // Without a body
    Case { ctx: GET, status: 204, claimed: &["5"], known: Some(5), framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: GET, status: 204, claimed: &[], known: None, framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: OLD, status: 204, claimed: &[], known: None, framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: GET, status: 205, claimed: &["5"], known: Some(5), framing: ReplyFraming::None, written: "Content-Length: 0", keep_alive: true },
    Case { ctx: GET, status: 304, claimed: &["5"], known: Some(0), framing: ReplyFraming::None, written: "Content-Length: 5", keep_alive: true },
    Case { ctx: GET, status: 304, claimed: &[], known: Some(0), framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: GET, status: 304, claimed: &[], known: Some(5), framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: GET, status: 100, claimed: &["5"], known: Some(5), framing: ReplyFraming::None, written: "", keep_alive: false },
    Case { ctx: HEAD, status: 200, claimed: &["1234"], known: Some(0), framing: ReplyFraming::None, written: "Content-Length: 1234", keep_alive: true },
    Case { ctx: HEAD, status: 200, claimed: &[], known: Some(5), framing: ReplyFraming::None, written: "Content-Length: 5", keep_alive: true },
    Case { ctx: HEAD, status: 200, claimed: &[], known: Some(0), framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: HEAD, status: 200, claimed: &[], known: None, framing: ReplyFraming::None, written: "", keep_alive: true },
    Case { ctx: HEAD, status: 204, claimed: &["5"], known: None, framing: ReplyFraming::None, written: "", keep_alive: true },
    // No longer HTTP
    Case { ctx: GET, status: 101, claimed: &["5"], known: None, framing: ReplyFraming::UntilClose, written: "", keep_alive: false },
    Case { ctx: CONNECT, status: 200, claimed: &["5"], known: Some(5), framing: ReplyFraming::UntilClose, written: "", keep_alive: false },
    Case { ctx: CONNECT, status: 404, claimed: &[], known: Some(5), framing: ReplyFraming::Length(5), written: "Content-Length: 5", keep_alive: true },
];

#[test]
fn framing() {
    for (number, case) in CASES.iter().enumerate() {
        let headers: Vec<_> = case
            .claimed
            .iter()
            .map(|value| ("Content-Length", *value))
            .collect();
        let (head, plan) = encode(&case.ctx, case.status, &headers, case.known);
        let framing_lines: Vec<_> = head
            .split("\r\n")
            .filter(|line| {
                line.starts_with("Content-Length") || line.starts_with("Transfer-Encoding")
            })
            .collect();
        assert_eq!(
            framing_lines.join("|"),
            case.written,
            "case {number}: {head}"
        );
        assert_eq!(plan.framing, case.framing, "case {number}: {head}");
        assert_eq!(plan.keep_alive, case.keep_alive, "case {number}: {head}");
        // A 101 closes too, but must not say so.
        let says_close = !case.keep_alive && case.status != 101;
        assert_eq!(
            head.contains("Connection: close\r\n"),
            says_close,
            "case {number}: {head}"
        );
    }
}

#[test]
fn an_upgrade_keeps_its_headers() {
    let (head, _) = encode(
        &GET,
        101,
        &[("Upgrade", "websocket"), ("Connection", "Upgrade")],
        None,
    );
    assert!(
        head.contains("Upgrade: websocket\r\nConnection: upgrade\r\n"),
        "{head}"
    );
}
