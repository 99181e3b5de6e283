//! Bad servers again, in every way of asking: none of them hangs, or takes for good what is not.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use baton_load::LoadOptions;
use clap::Parser;
use common::{HELLO, Server, errors, load, read_request, try_load};

const WAYS: [&str; 6] = [
    "-n 20",
    "-n 20 --pipeline 8",
    "-n 20 --keep-alive false",
    "-n 20 --body x",
    "-d 300ms --rate 200",
    "-d 300ms --rate 200 --keep-alive false",
];

/// Reads one request, then writes the same again and again until the client has enough.
fn endless(first: &'static str, chunk: String) -> Server {
    Server::start(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(first.as_bytes());
        while stream.write_all(chunk.as_bytes()).is_ok() {}
    })
}

#[test]
fn no_way_of_asking_hangs_or_takes_a_bad_reply_for_good() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bad = [
        ("closes", Server::start(drop)),
        (
            "half-closes",
            Server::start(|stream| {
                let _ = stream.shutdown(Shutdown::Write);
                common::drain(stream);
            }),
        ),
        (
            "resets",
            Server::start(|mut stream| {
                let _ = stream.read(&mut [0; 4096]);
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
                    .expect("set");
            }),
        ),
        ("is silent", Server::start(common::drain)),
        (
            "says that it works on it, and nothing more",
            Server::start(|mut stream| {
                let _ = stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n");
                common::drain(stream);
            }),
        ),
        (
            "has no length and does not close",
            Server::start(|mut stream| {
                while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
                }
            }),
        ),
        ("cuts", Server::writing("HTTP/1.1 200 OK\r\nContent-Le")),
        ("speaks TLS", Server::writing("\x15\x03\x01\0\x02\x02\x46")),
        (
            "echoes",
            Server::start(|mut stream| {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    let _ = stream.write_all(&bytes[..count]);
                }
            }),
        ),
        (
            "switches protocols",
            Server::writing("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        ),
        (
            "has an endless head",
            endless("HTTP/1.1 200 OK\r\n", "A: b\r\n".repeat(1000)),
        ),
        (
            "has an endless body",
            endless("HTTP/1.1 200 OK\r\n\r\n", "x".repeat(65_536)),
        ),
        (
            "has endless small chunks",
            endless(chunked, "1\r\nx\r\n".repeat(1000)),
        ),
        (
            "has endless trailers",
            endless(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                "A: b\r\n".repeat(1000),
            ),
        ),
    ];
    thread::scope(|scope| {
        for (what, server) in &bad {
            scope.spawn(move || WAYS.map(|way| expect_no_good_reply(what, server, way)));
        }
    });
}

fn expect_no_good_reply(what: &str, server: &Server, way: &str) {
    let report = load(&format!(
        "{} -c 4 --timeout 100ms --drain 200ms {way}",
        server.url()
    ));
    let accounted = report.errors.total + report.unfinished;
    assert_eq!(report.requests + report.requests_late, 0, "{what}, {way}");
    assert!(accounted > 0, "{what}, {way}");
    assert!(
        accounted + report.resent >= report.sent,
        "{what}, {way}: {} sent, {} accounted for: {:?}",
        report.sent,
        accounted,
        report.errors.kinds
    );
}

#[test]
fn what_is_too_much_is_an_error_in_every_way_of_asking() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello",
        "HTTP/1.1 204 No Content\r\n\r\nhello",
    ] {
        let server = Server::writing(text);
        for way in WAYS {
            let report = load(&format!("{} -c 4 --timeout 100ms {way}", server.url()));
            // With another request on its way, the rest is taken for the beginning of the next reply, and is none.
            if way.contains("pipeline") {
                assert!(errors(&report, "malformed") >= report.requests, "{way}");
            } else {
                assert_eq!(report.requests, 0, "{way}");
            }
            assert!(report.errors.total > 0, "{way}");
        }
    }
}

#[test]
fn the_timeout_is_of_the_whole_reply_however_it_drips() {
    // Each byte comes in time; all of them would take two seconds and more.
    let server = Server::start(|mut stream| {
        let _ = stream.set_nodelay(true);
        let _ = stream.read(&mut [0; 4096]);
        for byte in HELLO.chunks(1) {
            if stream.write_all(byte).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    let report = load(&format!("{} -n 4 -c 2 --timeout 200ms", server.url()));
    assert_eq!((report.requests, errors(&report, "timeout")), (0, 4));
}

#[test]
fn a_server_that_freezes_is_counted() {
    let server = Server::start(|stream: TcpStream| {
        let mut reader = std::io::BufReader::new(stream.try_clone().expect("cloned"));
        for _ in 0..50 {
            if read_request(&mut reader).is_none() {
                return;
            }
            let _ = (&stream).write_all(HELLO);
        }
        common::drain(stream);
    });
    let report = load(&format!("{} -n 102 -c 2 --timeout 300ms", server.url()));
    assert_eq!((report.requests, errors(&report, "timeout")), (100, 2));
}

#[test]
fn sockets_of_another_kind_are_named() {
    let folder = std::env::temp_dir().join(format!("baton-load-kinds-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("made");
    let (file, datagrams) = (folder.join("file"), folder.join("datagrams"));
    std::fs::write(&file, "").expect("written");
    let _bound = UnixDatagram::bind(&datagrams).expect("bound");
    for path in [&folder, &file, &datagrams] {
        let wrong = try_load(&format!("unix:{}", path.display()))
            .err()
            .expect("nobody listens");
        assert!(wrong.contains(&path.display().to_string()), "{wrong}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: LoadOptions,
}

fn whole_run(arguments: &str) {
    let words = ["load"].into_iter().chain(arguments.split_whitespace());
    baton_load::run(&Line::try_parse_from(words).expect("good").options);
}

#[test]
fn where_the_report_cannot_go_is_said_before_the_load() {
    let server = Server::answering(|_| Some(HELLO.to_vec()));
    whole_run(&format!(
        "{} -n 4 -c 2 -q --save /nonexistent/report.json",
        server.url()
    ));
    let asked = || {
        server
            .connections
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!(asked(), 0);

    let path = std::env::temp_dir().join(format!("baton-load-report-{}", std::process::id()));
    std::fs::write(&path, "x".repeat(1_000_000)).expect("written");
    // A load that does not come about leaves an older report as it was.
    whole_run(&format!("unix:/nonexistent -q --save {}", path.display()));
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 1_000_000);
    whole_run(&format!(
        "{} -n 4 -c 2 -q --save {}",
        server.url(),
        path.display()
    ));
    assert!(asked() > 0);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    assert_eq!(report["requests"], 4);
    std::fs::remove_file(&path).expect("removed");
}
