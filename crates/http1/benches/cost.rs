//! What the hot paths cost on one core, in nanoseconds: the least of many rounds, as a shared machine
//! only ever adds. A figure to compare before and after a change with, no more.

use std::hint::black_box;
use std::time::Instant;

use baton_http1::{
    BodyDecoder, Framing, HeadScanner, HeaderStore, Limits, ReplyContext, RequestHead, Version,
    encode_reply_head, http_date,
};

const WRK: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const SMALL: &str = "GET /hello?name=x HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: oha/1.4\r\nAccept: */*\r\n\r\n";
const BROWSER: &str = "GET /products/42?ref=home&sort=price HTTP/1.1\r\n\
    Host: shop.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://shop.example.com/products\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; _ga=GA1.2.123456789.1700000000; theme=dark; cart=3%3A42\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-User: ?1\r\n\
    Priority: u=0, i\r\n\
    Pragma: no-cache\r\n\
    Cache-Control: no-cache\r\n\r\n";

fn main() {
    let limits = Limits::default();
    for (name, request) in [("wrk", WRK), ("small", SMALL), ("browser", BROWSER)] {
        let bytes = request.as_bytes();
        report(&format!("scan {name} ({} bytes)", bytes.len()), || {
            black_box(HeadScanner::default().scan(black_box(bytes), &limits)).is_ok()
        });
        report(&format!("parse {name}"), || {
            let mut store = HeaderStore::new();
            black_box(RequestHead::parse(black_box(bytes), &limits, &mut store)).is_ok()
        });
    }

    let ctx = ReplyContext {
        head_request: false,
        connect: false,
        version: Version::Http11,
        keep_alive: true,
    };
    let date = http_date(1_700_000_000);
    let mut out = Vec::with_capacity(4096);
    let few: &[(&[u8], &[u8])] = &[(b"Content-Type", b"text/plain")];
    let many: &[(&[u8], &[u8])] = &[
        (b"X-Powered-By", b"PHP/8.3.6"),
        (
            b"Set-Cookie",
            b"session=0123456789abcdef0123456789abcdef; path=/; HttpOnly; SameSite=Lax",
        ),
        (b"Expires", b"Thu, 19 Nov 1981 08:52:00 GMT"),
        (b"Cache-Control", b"no-store, no-cache, must-revalidate"),
        (b"Pragma", b"no-cache"),
        (b"Vary", b"Accept-Encoding"),
        (b"Content-Type", b"text/html; charset=UTF-8"),
        (b"Content-Length", b"13"),
    ];
    for (name, headers) in [("1 header", few), ("8 headers", many)] {
        report(&format!("encode {name}"), || {
            out.clear();
            let headers = black_box(headers).iter().copied();
            let plan =
                encode_reply_head(&mut out, &ctx, 200, None, headers, Some(13), &date, "Baton");
            black_box(plan).keep_alive
        });
    }

    let chunked = [&b"1000\r\n"[..], &[b'x'; 4096], b"\r\n0\r\n\r\n"].concat();
    report("decode one chunk of 4 KiB", || {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &limits);
        let mut total = 0;
        let decoded = decoder.decode(black_box(&chunked), &mut |data| total += data.len());
        decoded.is_ok() && total == 4096
    });
}

fn report(name: &str, mut work: impl FnMut() -> bool) {
    const CALLS: u32 = 20_000;
    let mut best = f64::INFINITY;
    for _ in 0..30 {
        let start = Instant::now();
        for _ in 0..CALLS {
            assert!(work());
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    println!("{name:<32} {best:7.1} ns");
}
