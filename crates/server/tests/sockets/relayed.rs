//! Connections that a proxy hands over with a PROXY header.

use std::net::SocketAddr;
use std::time::Duration;

use baton_server::{Config, Listen, ListenAt, ManualClock, Server};

use crate::client::Client;
use crate::service::{Running, pattern};

const LINE: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
const GET: &str = "GET /ends HTTP/1.1\r\nHost: test\r\n\r\n";

/// A server with one listener, whose connections begin with a PROXY header, and which trusts these.
fn trusting(proxies: &[&str], change: impl FnOnce(&mut Config)) -> Running {
    Running::with(|config| {
        config.listeners[0].proxy_protocol = true;
        config.trusted_proxies = proxies.iter().map(|text| text.parse().unwrap()).collect();
        change(config);
    })
}

fn serve() -> Running {
    trusting(&["127.0.0.0/8"], |_| {})
}

fn binary(version_and_command: u8, family_and_protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([version_and_command, family_and_protocol]);
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend(rest);
    bytes
}

/// What a service sees behind a PROXY header, and the client's own address.
fn seen(server: &Running, header: &[u8]) -> (String, SocketAddr) {
    let stream = std::net::TcpStream::connect(server.address()).unwrap();
    let own = stream.local_addr().unwrap();
    let mut client = Client::of(stream);
    client.send([header, GET.as_bytes()].concat());
    let first = client.reply().text().to_owned();
    // Of the whole connection, not of one request.
    let second = client.get("/ends").reply().text().to_owned();
    assert_eq!(first, second);
    (first, own)
}

#[test]
fn the_client_is_whom_the_proxy_names() {
    let server = serve();
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    let mut v6 = [0; 36];
    (v6[0], v6[15], v6[31], v6[33], v6[34]) = (0xfd, 1, 2, 3, 1);
    let tls = [&v4[..], &[0x20, 0, 5, 1, 0, 0, 0, 0]].concat();
    let expected = "Tcp(192.0.2.1:56324) Local { listener: 0, address: Tcp(198.51.100.2:443) }";
    let plain = format!("{expected} trusted=false tls=false");
    assert_eq!(seen(&server, LINE.as_bytes()).0, plain);
    assert_eq!(seen(&server, &binary(0x21, 0x11, &v4)).0, plain);
    let with_tls = format!("{expected} trusted=false tls=true");
    assert_eq!(seen(&server, &binary(0x21, 0x11, &tls)).0, with_tls);
    assert_eq!(
        seen(&server, &binary(0x21, 0x21, &v6)).0,
        "Tcp([fd00::1]:3) Local { listener: 0, address: Tcp([::2]:256) } trusted=false tls=false"
    );
    assert_eq!(server.events.count("client 192.0.2.1"), 6);
}

#[test]
fn what_the_proxy_does_not_name_keeps_its_ends_but_not_its_trust() {
    let server = serve();
    let own_ends = |header: &[u8], trusted: bool| {
        let (text, own) = seen(&server, header);
        let address = server.address();
        let local = format!("Local {{ listener: 0, address: Tcp({address}) }}");
        assert_eq!(
            text,
            format!("Tcp({own}) {local} trusted={trusted} tls=false")
        );
    };
    // The proxy speaks for itself.
    own_ends(&binary(0x20, 0x00, &[]), true);
    own_ends(&binary(0x20, 0x11, &[9; 40]), true);
    own_ends(b"PROXY UNKNOWN\r\n", false);
    own_ends(&binary(0x21, 0x00, &[]), false);
    let (text, _) = seen(&server, &binary(0x21, 0x31, &[b'/'; 216]));
    assert!(
        text.starts_with("Unix Local") && text.ends_with("trusted=false tls=false"),
        "{text}"
    );
}

#[test]
fn a_proxy_behind_the_proxy_may_be_trusted_too() {
    let server = trusting(&["127.0.0.1", "192.0.2.0/24"], |_| {});
    assert!(seen(&server, LINE.as_bytes()).0.contains("trusted=true"));
}

#[test]
fn the_header_may_come_in_pieces() {
    let server = serve();
    for header in [LINE.as_bytes().to_vec(), binary(0x21, 0x00, &[7; 300])] {
        let mut client = Client::tcp(server.address());
        for byte in &header[..20] {
            client.send([*byte]);
            std::thread::sleep(Duration::from_millis(1));
        }
        client.send(&header[20..]);
        std::thread::sleep(Duration::from_millis(5));
        for piece in GET.as_bytes().chunks(7) {
            client.send(piece);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.reply().status, 200);
    }
}

#[test]
fn requests_right_behind_the_header_are_not_lost() {
    let server = serve();
    let mut client = Client::tcp(server.address());
    client.send(format!("{LINE}{}", GET.repeat(20)));
    for _ in 0..20 {
        assert_eq!(client.reply().status, 200);
    }
}

#[test]
fn whatever_else_comes_first_is_closed_without_an_answer() {
    let server = serve();
    let long = binary(0x21, 0x11, &[0; 5_000]);
    let cases: [&[u8]; 7] = [
        GET.as_bytes(),
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 99999\r\n",
        b"\0",
        &binary(0x31, 0x11, &[0; 12]),
        &binary(0x21, 0x11, &[0; 5]),
        &long,
    ];
    for bytes in cases {
        let mut client = Client::tcp(server.address());
        // It may be closed before the last byte.
        let _ = client.stream.write_all(bytes);
        client.assert_closed();
    }
    server.wait_connections(0);
    assert!(server.events.all().is_empty(), "{:?}", server.events.all());
    // A half header and a FIN.
    let mut client = Client::tcp(server.address());
    client.send("PROXY TCP4 192").stream.shut_write();
    client.assert_closed();
    // Only the first bytes: later it is a malformed request.
    let mut client = Client::tcp(server.address());
    client.send(format!("{LINE}{GET}{LINE}{GET}"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.reply().status, 400);
    client.assert_closed();
}

#[test]
fn who_is_not_trusted_is_closed_at_once() {
    let server = trusting(&["192.0.2.0/24", "unix"], |_| {});
    let mut client = Client::tcp(server.address());
    client.assert_closed();
    server.wait_connections(0);
    let mut client = Client::tcp(server.address());
    let _ = client.stream.write_all(LINE.as_bytes());
    client.assert_closed();
    assert!(server.events.all().is_empty());
}

#[test]
fn a_listener_without_it_takes_no_header() {
    let server = trusting(&["127.0.0.1"], |config| {
        config
            .listeners
            .push(ListenAt::Tcp("127.0.0.1:0".parse().unwrap()).into());
        config.listeners.reverse();
    });
    let mut client = Client::tcp(server.address());
    assert!(
        client
            .get("/ends")
            .reply()
            .text()
            .contains("trusted=true tls=false")
    );
    let mut client = Client::tcp(server.address());
    client.send(format!("{LINE}{GET}"));
    assert_eq!(client.reply().status, 400);
}

#[test]
fn by_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("baton-server-proxy-{}.sock", std::process::id()));
    let server = trusting(&["unix"], |config| {
        let at = ListenAt::Unix {
            path: path.clone(),
            mode: None,
        };
        config.listeners.push(Listen {
            at,
            proxy_protocol: true,
        });
    });
    let mut client = Client::unix(&path);
    client.send(format!("{LINE}{GET}"));
    assert!(client.reply().text().starts_with("Tcp(192.0.2.1:56324)"));
    // A socket that is full still says when it has room, whoever the client is said to be.
    for _ in 0..3 {
        assert_eq!(
            client.get("/sized/2000000").reply().body,
            pattern(2_000_000)
        );
    }
    drop(client);
    server.handle.stop_now();
    server.join();
}

#[test]
fn the_header_timer_covers_it() {
    let clock = ManualClock::new(1_000_000_000);
    let factory = clock.factory();
    let server = trusting(&["127.0.0.1"], move |config| config.clock = factory);
    let pass_ms = |ms| {
        std::thread::sleep(Duration::from_millis(20));
        clock.advance_ms(ms);
        server.handle.wake();
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut silent = Client::tcp(server.address());
    let mut slow = Client::tcp(server.address());
    slow.send("PROXY TCP4");
    let mut in_time = Client::tcp(server.address());
    in_time.send(LINE);
    pass_ms(9_900);
    slow.send(" 192");
    in_time.send("G");
    pass_ms(200);
    silent.assert_closed();
    slow.assert_closed();
    // Its head has begun, and has its own time.
    in_time.send(&GET[1..]);
    assert_eq!(in_time.reply().status, 200);
}

#[test]
fn a_drain_does_not_wait_for_a_header() {
    let server = trusting(&["127.0.0.1"], |config| config.drain_first_request_ms = 50);
    let mut silent = Client::tcp(server.address());
    server.wait_connections(1);
    server.handle.drain();
    silent.assert_closed();
    server.join();
}

#[test]
fn the_service_may_name_the_client() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.get("/named").reply();
    client.get("/").reply();
    server.events.wait_for("served", 2);
    assert_eq!(server.events.count("client 203.0.113.9"), 1);
}

#[test]
fn somebody_must_be_trusted() {
    struct Nothing;
    impl baton_server::Service for Nothing {
        type Message = ();
        fn request(
            &mut self,
            _: &mut baton_server::Io,
            _: baton_server::ConnId,
            _: baton_server::Request<'_>,
        ) {
        }
    }
    let config = Config {
        listeners: vec![Listen {
            at: ListenAt::Tcp("127.0.0.1:0".parse().unwrap()),
            proxy_protocol: true,
        }],
        ..Config::default()
    };
    let error = Server::start(config, |_, _| Nothing).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
