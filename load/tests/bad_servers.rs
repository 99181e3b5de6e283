//! Servers that are not there, or do not do as they should: a clear message or a counted error, and an end in time.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{HELLO, Server, answer, errors, latency, load, try_load};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

/// A run that sends 20 requests.
fn twenty(server: &Server) -> baton_load::report::Report {
    let report = load(&format!("{} -n 20 -c 4", server.url()));
    // Whatever became of them, each is accounted for; unasked bytes may come on top.
    assert_eq!(report.unfinished, 0);
    assert!(
        report.requests + report.errors.total >= 20,
        "{} good, {:?}",
        report.requests,
        report.errors.kinds
    );
    report
}

#[test]
fn unreachable_targets_are_named() {
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("bound")
        .local_addr()
        .expect("bound")
        .port();
    for arguments in [
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port} --rate 100"),
        format!("http://127.0.0.1:{port} --keep-alive false"),
        format!("http://127.0.0.1:{port} --keep-alive false --rate 100"),
        format!("http://127.0.0.1:{port} -c 1s:10,1h:10"),
    ] {
        let started = Instant::now();
        let wrong = try_load(&arguments).err().expect("nobody listens");
        assert!(
            wrong.contains(&format!("127.0.0.1:{port}")) && wrong.contains("refused"),
            "{arguments}: {wrong}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(9),
            "the run is given up, not sat out"
        );
    }
    let wrong = try_load("unix:/nonexistent/app.sock:/")
        .err()
        .expect("nobody listens");
    assert!(
        wrong.contains("/nonexistent/app.sock") && wrong.contains("No such file"),
        "{wrong}"
    );
    let wrong = try_load("http://no-such-host.invalid/")
        .err()
        .expect("no such host");
    assert!(wrong.contains("no-such-host.invalid"), "{wrong}");
}

#[test]
fn a_connection_that_is_never_made_times_out() {
    // Nobody accepts, and the backlog is full: further SYNs are dropped.
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(
        &listener,
        &std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0),
    )
    .expect("bound");
    listen(&listener, 0).expect("listening");
    let address =
        std::net::SocketAddr::try_from(getsockname(&listener).expect("bound")).expect("an address");
    let mut filling = vec![];
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        filling.push(stream);
    }
    let wrong = try_load(&format!(
        "http://{address} -c 3 --connect-timeout 200ms -d 1h"
    ))
    .err()
    .expect("no connection");
    assert!(wrong.contains("connect timeout"), "{wrong}");
}

#[test]
fn servers_that_close_are_counted() {
    let server = Server::start(drop);
    let report = twenty(&server);
    assert_eq!(report.requests, 0);
    assert_eq!(
        errors(&report, "closed") + errors(&report, "reset"),
        report.errors.total
    );

    let closed = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
    });
    let report = twenty(&closed);
    assert_eq!((report.requests, errors(&report, "closed")), (0, 20));

    let cut = [
        "H",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
    ];
    for text in cut
        .into_iter()
        .chain(["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"])
    {
        let report = twenty(&Server::writing(text));
        assert_eq!(
            (report.requests, errors(&report, "cut")),
            (0, 20),
            "{text:?}"
        );
    }
    // The end of the connection may be the end of the body, and nobody can tell that from a cut.
    let report = twenty(&Server::writing("HTTP/1.1 200 OK\r\n\r\nhello"));
    assert_eq!((report.requests, report.errors.total), (20, 0));
}

#[test]
fn resets_are_counted() {
    let server = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        // Closed with bytes unread, a connection is reset.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
    });
    let report = twenty(&server);
    assert_eq!(
        (report.requests, errors(&report, "reset")),
        (0, 20),
        "{:?}",
        report.errors.kinds
    );
}

#[test]
fn lies_about_the_length_are_found_out() {
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello";
    let report = twenty(&Server::writing(short));
    assert_eq!((report.requests, errors(&report, "surplus")), (0, 20));
    let report = twenty(&Server::answering(move |_| Some(short.into())));
    assert_eq!((report.requests, errors(&report, "surplus")), (0, 20));
    // Where the connection stays open, what is missing is waited for.
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello";
    let server = Server::answering(move |_| Some(long.into()));
    let report = load(&format!("{} -n 20 -c 4 --timeout 300ms", server.url()));
    assert_eq!((report.requests, errors(&report, "timeout")), (0, 20));
    assert!(
        latency(&report).p50 >= 300_000.0,
        "a timeout is a latency of at least that"
    );
    // The surplus comes after the next request was sent.
    let late = Server::start(|mut stream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            let _ = stream.write_all(HELLO);
            thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(b"!");
        }
    });
    let report = twenty(&late);
    assert!(
        errors(&report, "malformed") > 0,
        "{:?}",
        report.errors.kinds
    );
}

#[test]
fn silence_times_out() {
    let started = Instant::now();
    let server = Server::start(common::drain);
    for options in [
        "",
        "--pipeline 3",
        "--rate 1000",
        "--rate 1000 --keep-alive false",
        "--keep-alive false",
    ] {
        let report = load(&format!(
            "{} -d 400ms -c 4 --timeout 200ms {options}",
            server.url()
        ));
        assert_eq!(report.requests, 0);
        assert!(
            errors(&report, "timeout") >= 4,
            "{options}: {:?}",
            report.errors.kinds
        );
        assert_eq!(errors(&report, "timeout"), report.errors.total, "{options}");
        assert_eq!(
            report.sent - report.resent,
            report.errors.total + report.unfinished,
            "{options}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(40));
    // Nor is a listener that never accepts waited for.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let report = load(&format!("http://{address} -n 8 -c 4 --timeout 100ms"));
    assert_eq!((report.requests, errors(&report, "timeout")), (0, 8));
}

#[test]
fn the_wait_for_the_last_replies_is_bounded() {
    let server = Server::start(common::drain);
    let report = load(&format!(
        "{} -d 100ms -c 4 --timeout 1h --drain 100ms",
        server.url()
    ));
    assert_eq!(
        (report.requests, report.errors.total, report.unfinished),
        (0, 0, 4)
    );
    assert!(
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("no reply"))
    );
}

#[test]
fn garbage_is_malformed() {
    let endless_head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(100_000));
    let endless_interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
    for text in [
        "SSH-2.0-OpenSSH_9.2p1\r\n",
        "\0\0\0\0",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        &endless_head,
        &endless_interim,
    ] {
        let report = twenty(&Server::writing(text));
        assert_eq!(
            (report.requests, errors(&report, "malformed")),
            (0, 20),
            "{:?}",
            &text[..text.len().min(40)]
        );
        assert!(report.errors.examples.contains_key("malformed"));
    }
}

#[test]
fn what_comes_unasked_is_counted() {
    // A greeting, before any request.
    let server = Server::start(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        common::drain(stream);
    });
    let report = twenty(&server);
    assert_eq!(report.requests, 0);
    assert!(
        errors(&report, "surplus") + errors(&report, "malformed") >= 20,
        "{:?}",
        report.errors.kinds
    );
    // A farewell to a connection that idles, as some servers send.
    let server = Server::start(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    });
    let report = load(&format!(
        "{} --rate 1 -d 300ms -c 4 --timeout 300ms",
        server.url()
    ));
    assert!(errors(&report, "surplus") > 0);
}

#[test]
fn endless_bodies_time_out() {
    let server = Server::start(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let report = load(&format!("{} -n 4 -c 2 --timeout 100ms", server.url()));
    assert_eq!((report.requests, errors(&report, "timeout")), (0, 4));
}

#[test]
fn a_reply_that_drips_is_read() {
    let server = Server::start(|stream| {
        stream.set_nodelay(true).expect("set");
        let writer = stream.try_clone().expect("cloned");
        answer(stream, &|_| {
            for byte in
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                    .chunks(1)
            {
                (&writer).write_all(byte).expect("written");
                thread::yield_now();
            }
            Some(vec![])
        });
    });
    let report = load(&format!("{} -n 20 -c 4 --expect-text hello", server.url()));
    assert_eq!(
        (report.requests, report.errors.total),
        (20, 0),
        "{:?}",
        report.errors.examples
    );
}

#[test]
fn an_early_answer_to_a_large_body_is_an_answer() {
    let folder = std::env::temp_dir().join(format!("baton-load-early-{}", std::process::id()));
    std::fs::write(&folder, vec![b'x'; 20_000_000]).expect("written");
    // Nothing of the body is read before the connection closes.
    let server = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
        let _ = stream
            .write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        thread::sleep(Duration::from_millis(50));
    });
    let run = format!(
        "{} -n 6 -c 2 --body-file {} --timeout 30s",
        server.url(),
        folder.display()
    );
    let report = load(&run);
    std::fs::remove_file(&folder).expect("removed");
    // The reply, or its loss to the reset that closing with unread bytes is: one of them each time.
    assert_eq!(
        errors(&report, "status") + errors(&report, "reset"),
        6,
        "{:?}",
        report.errors.kinds
    );
}

#[test]
fn a_server_that_goes_away_is_counted_and_the_load_ends() {
    let count = AtomicUsize::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        answer(stream, &|_| {
            (count.fetch_add(1, Ordering::Relaxed) < 50).then(|| HELLO.to_vec())
        });
    });
    let report = load(&format!("http://{address} -c 1 -n 56"));
    server.join().expect("no panic");
    assert_eq!(report.requests, 50);
    assert_eq!(errors(&report, "closed") + errors(&report, "reset"), 1);
    assert_eq!(errors(&report, "connect"), 5, "{:?}", report.errors.kinds);
    assert!(report.errors.examples["connect"].contains("refused"));
}
