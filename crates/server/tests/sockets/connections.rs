//! Connections: limits, ends, listeners.

use std::os::unix::fs::PermissionsExt;

use baton_server::{Config, Listen, ListenAt, Server};

use crate::client::Client;
use crate::service::{Message, Running, pattern};

#[test]
fn connection_limit_holds_back_until_one_closes() {
    for io_threads in [1, 2] {
        let server = Running::with(|config| {
            config.connections_max = 2;
            config.io_threads = io_threads;
        });
        let mut first = Client::tcp(server.address());
        let mut second = Client::tcp(server.address());
        assert_eq!(first.get("/").reply().status, 200);
        assert_eq!(second.get("/").reply().status, 200);
        let mut third = Client::tcp(server.address());
        third.get("/").assert_silent(50);
        assert_eq!(server.handle.connections(), 2);
        drop(first);
        assert_eq!(third.reply().status, 200);
        assert_eq!(second.get("/").reply().status, 200);
    }
}

#[test]
fn half_close_still_gets_its_reply() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.get("/later").stream.shut_write();
    server.events.wait_for("half_closed", 1);
    server.handle.post(0, Message::Release);
    assert_eq!(client.reply().text(), "released");
    client.assert_closed();
    server.wait_connections(0);
    assert_eq!(
        (
            server.events.count("half_closed"),
            server.events.count("gone")
        ),
        (1, 0)
    );
}

#[test]
fn half_close_behind_pipelined_requests() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.get("/").get("/later").get("/").stream.shut_write();
    assert_eq!(client.reply().text(), "Hello, world!");
    server.events.wait_for("half_closed", 1);
    server.handle.post(0, Message::Release);
    assert_eq!(client.reply().text(), "released");
    assert_eq!(client.reply().text(), "Hello, world!");
    client.assert_closed();
}

#[test]
fn reset_while_waiting_is_gone() {
    let server = Running::new();
    let stream = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut &stream, b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.events.wait_for("request", 1);
    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
    server.events.wait_for("gone", 1);
    server.wait_connections(0);
    // An answer that comes too late finds nobody, and harms nobody.
    server.handle.post(0, Message::Release);
    assert_eq!(Client::tcp(server.address()).get("/").reply().status, 200);
    assert_eq!(server.events.count("gone"), 1);
}

#[test]
fn unix_socket_serves_and_cleans_up() {
    let path = std::env::temp_dir().join(format!("baton-server-test-{}.sock", std::process::id()));
    // A file that a killed server left behind is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listen = Listen::from(ListenAt::Unix {
        path: path.clone(),
        mode: Some(0o600),
    });
    let server = Running::with(|config| {
        config.listeners.push(listen.clone());
        config.io_threads = 2;
    });
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut clients: Vec<Client> = (0..8).map(|_| Client::unix(&path)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").reply().text(), "Hello, world!");
        assert!(
            client
                .get("/ends")
                .reply()
                .text()
                .starts_with("Unix Local { listener: 1")
        );
        assert!(client.get("/windows/2000000").reply().body == pattern(2_000_000));
    }
    let taken = Server::start(
        Config {
            listeners: vec![listen],
            ..Config::default()
        },
        |_, _| Nothing,
    );
    assert_eq!(taken.err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
    assert!(path.exists(), "and the other server's socket is left alone");
    server.handle.stop_now();
    server.join();
    assert!(!path.exists());
}

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

#[test]
fn taken_port_is_named() {
    for io_threads in [1, 2] {
        let server = Running::with(|config| config.io_threads = io_threads);
        let config = Config {
            listeners: vec![ListenAt::Tcp(server.address()).into()],
            io_threads,
            ..Config::default()
        };
        let error = Server::start(config, |_, _| Nothing).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(
            error.to_string().contains(&server.address().to_string()),
            "{error}"
        );
    }
}

#[test]
fn wildcard_listener_tells_the_connections_own_address() {
    let server = Running::with(|config| {
        config.listeners = vec![ListenAt::Tcp("0.0.0.0:0".parse().unwrap()).into()]
    });
    let port = server.address().port();
    let mut client = Client::tcp(format!("127.0.0.2:{port}").parse().unwrap());
    assert!(
        client
            .get("/ends")
            .reply()
            .text()
            .contains(&format!("address: Tcp(127.0.0.2:{port})"))
    );
}

#[test]
fn sockets_that_listen_already_are_taken_over() {
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;
    let path = std::env::temp_dir().join(format!("baton-server-made-{}.sock", std::process::id()));
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    for io_threads in [1, 3] {
        let made = [
            OwnedFd::from(tcp.try_clone().unwrap()),
            OwnedFd::from(unix.try_clone().unwrap()),
        ];
        let server = Running::with(|config| {
            config.io_threads = io_threads;
            config.listeners = made.map(|fd| ListenAt::Made(Arc::new(fd)).into()).into();
        });
        assert_eq!(server.address(), address);
        let mut clients: Vec<Client> = (0..10).map(|_| Client::tcp(address)).collect();
        for client in &mut clients {
            assert_eq!(client.get("/").reply().status, 200);
        }
        let reply = Client::unix(&path).get("/ends").reply();
        assert!(
            reply.text().contains(&path.display().to_string()),
            "{reply:?}"
        );
        server.handle.stop_now();
        server.join();
        // Whoever made them keeps them, and the socket's file.
        assert!(path.exists());
    }
    std::fs::remove_file(&path).unwrap();

    let (pair, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for wrong in [OwnedFd::from(pair), OwnedFd::from(datagrams)] {
        let config = Config {
            listeners: vec![ListenAt::Made(Arc::new(wrong)).into()],
            ..Config::default()
        };
        let error = Server::start(config, |_, _| Nothing).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn several_threads_share_a_port() {
    let server = Running::with(|config| config.io_threads = 3);
    let mut clients: Vec<Client> = (0..30).map(|_| Client::tcp(server.address())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").reply().status, 200);
    }
    assert_eq!(server.handle.connections(), 30);
}

#[test]
fn connect_and_close_says_nothing() {
    let server = Running::new();
    for _ in 0..50 {
        drop(Client::tcp(server.address()));
    }
    assert_eq!(Client::tcp(server.address()).get("/").reply().status, 200);
    server.wait_connections(0);
    assert_eq!(server.events.all().len(), 2, "{:?}", server.events.all());
}
