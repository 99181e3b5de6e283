//! Another configuration, and other listeners, while the server runs.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_server::http1::Limits;
use baton_server::{Config, Listen, ListenAt, LocalAddress};

use crate::client::Client;
use crate::service::Running;

fn tcp(address: SocketAddr) -> Listen {
    ListenAt::Tcp(address).into()
}

fn any() -> Listen {
    tcp("127.0.0.1:0".parse().unwrap())
}

fn unix(name: &str, mode: Option<u32>) -> (PathBuf, Listen) {
    let name = format!("baton-server-{name}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let at = ListenAt::Unix {
        path: path.clone(),
        mode,
    };
    (path, at.into())
}

fn config(listeners: Vec<Listen>) -> Config {
    Config {
        listeners,
        ..Config::default()
    }
}

fn apply(server: &Running, config: Config) -> Vec<LocalAddress> {
    server.handle.apply(server.handle.prepare(config).unwrap())
}

fn ip(address: &LocalAddress) -> SocketAddr {
    match address {
        LocalAddress::Tcp(address) => *address,
        LocalAddress::Unix(path) => panic!("{path:?}"),
    }
}

/// Until no I/O thread listens there any more.
fn wait_refused(address: SocketAddr) {
    let end = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < end, "{address} is still open");
    }
}

#[test]
fn listeners_come_and_go_and_connections_stay() {
    for io_threads in [1, 3] {
        let server = Running::with(|config| config.io_threads = io_threads);
        let first = server.address();
        let (path, file) = unix(&format!("setup-{io_threads}"), Some(0o600));
        let mut old = Client::tcp(first);
        assert_eq!(old.get("/").reply().status, 200);

        // What was asked for as before stays as it is, also where the port was picked.
        let addresses = apply(&server, config(vec![file.clone(), any(), any()]));
        assert_eq!(ip(&addresses[1]), first);
        let second = ip(&addresses[2]);
        let mut clients: Vec<_> = (0..12).map(|_| Client::tcp(second)).collect();
        clients.extend((0..12).map(|_| Client::unix(&path)));
        for client in &mut clients {
            assert_eq!(client.get("/").reply().status, 200);
        }
        let reply = Client::tcp(second).get("/ends").reply();
        assert!(reply.text().contains("listener: 2"), "{reply:?}");

        // The first goes; its connections do not.
        apply(&server, config(vec![file.clone(), tcp(second)]));
        wait_refused(first);
        assert_eq!(old.get("/").reply().status, 200);
        apply(&server, config(vec![tcp(first)]));
        assert_eq!(Client::tcp(first).get("/").reply().status, 200);
        assert!(!path.exists(), "its file goes with a unix socket");
        for client in &mut clients {
            assert_eq!(client.get("/").reply().status, 200);
        }
    }
}

#[test]
fn who_waits_to_be_accepted_is_served() {
    let server = Running::with(|config| config.connections_max = 1);
    let address = server.address();
    let mut only = Client::tcp(address);
    assert_eq!(only.get("/").reply().status, 200);
    let mut waiting: Vec<_> = (0..10).map(|_| Client::tcp(address)).collect();
    apply(&server, config(Vec::new()));
    wait_refused(address);
    for client in &mut waiting {
        assert_eq!(client.get("/").reply().status, 200);
    }
}

#[test]
fn one_that_cannot_be_opened_changes_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Running::new();
    let (path, file) = unix("vain", None);
    let taken = taken.local_addr().unwrap();
    let error = server
        .handle
        .prepare(config(vec![file, tcp(taken)]))
        .err()
        .unwrap();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    assert!(!path.exists());
    let mut proxied = tcp(server.address());
    proxied.proxy_protocol = true;
    assert!(server.handle.prepare(config(vec![proxied])).is_err());
    assert_eq!(Client::tcp(server.address()).get("/").reply().status, 200);
}

#[test]
fn an_open_socket_is_given_another_meaning() {
    let server = Running::new();
    let address = server.address();
    let mut proxied = any();
    proxied.proxy_protocol = true;
    let changed = Config {
        trusted_proxies: ["127.0.0.0/8".parse().unwrap()].into_iter().collect(),
        ..config(vec![proxied])
    };
    assert_eq!(ip(&apply(&server, changed)[0]), address);
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let mut client = Client::tcp(address);
        client.send("PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n");
        let reply = client.get("/ends").reply();
        if reply.status == 200 {
            assert!(reply.text().contains("192.0.2.1"), "{}", reply.text());
            break;
        }
        assert!(Instant::now() < end, "{}", reply.status);
    }
}

#[test]
fn limits_are_those_of_the_request_s_beginning() {
    let server = Running::new();
    let mut uploading = Client::tcp(server.address());
    uploading.send("POST / HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length: 2\r\n\r\n1");
    let mut waiting = Client::tcp(server.address());
    assert_eq!(waiting.get("/").reply().status, 200);
    let limits = Limits {
        body_bytes_max: 1,
        headers_max: 1,
        ..Limits::default()
    };
    let changed = Config {
        limits,
        ..config(vec![any()])
    };
    apply(&server, changed);
    let large = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n12";
    let end = Instant::now() + Duration::from_secs(5);
    while Client::tcp(server.address()).send(large).reply().status == 200 {
        assert!(Instant::now() < end);
    }
    assert_eq!(uploading.send("2").reply().status, 200);
    assert_eq!(waiting.send(large).reply().status, 431);
}

#[test]
fn a_server_that_ends_takes_nothing_up() {
    let server = Running::new();
    let handle = server.handle.clone();
    let (path, file) = unix("late", None);
    let prepared = handle.prepare(config(vec![file])).unwrap();
    handle.stop_now();
    server.join();
    handle.apply(prepared);
    assert!(!path.exists());
    assert!(handle.prepare(config(vec![any()])).is_err());
}
