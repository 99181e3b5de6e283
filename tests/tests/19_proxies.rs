//! Behind other servers: who asks is whom a trusted proxy names, and nobody else's word counts.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use baton_journeys::options::{
    ACCESS_LOG, CONFIG, HEADER_MS, LISTEN, TRUSTED_HEADERS, TRUSTED_PROXIES,
};
use baton_journeys::{Baton, Cases, Conn, Fault, Reply, Site, baton, wait_until};

const LOOPBACK: &str = "127.0.0.1";

#[track_caller]
fn line(reply: &Reply, name: &str, value: &str) {
    assert_eq!(reply.line(name).as_deref(), Some(value), "{name}");
}

#[track_caller]
fn absent(reply: &Reply, name: &str) {
    assert!(
        reply.line(name).is_none_or(|value| value.is_empty()),
        "{name} is {:?}",
        reply.line(name)
    );
}

fn request(headers: &[(&str, &str)]) -> String {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("GET /index.php HTTP/1.1\r\nHost: example.org\r\n{headers}Connection: close\r\n\r\n")
}

#[track_caller]
fn ask(server: &Baton, headers: &[(&str, &str)]) -> Reply {
    server.send(request(headers)).expect(200)
}

#[test]
fn nobody_is_believed_unless_told() {
    let site = Site::of_fixture("php");
    let lies = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Port", "443"),
        ("Forwarded", "for=6.6.6.6;proto=https;host=evil.example"),
    ];
    for options in [
        &[][..],
        &[TRUSTED_PROXIES, "192.0.2.0/24", TRUSTED_PROXIES, "unix"],
    ] {
        let server = Baton::with(site.root(), options);
        let reply = ask(&server, &lies);
        line(&reply, "REMOTE_ADDR", LOOPBACK);
        absent(&reply, "HTTPS");
        line(&reply, "REQUEST_SCHEME", "http");
        line(&reply, "HTTP_HOST", "example.org");
        line(&reply, "SERVER_NAME", "example.org");
        line(&reply, "SERVER_PORT", &server.addr().port().to_string());
        // As headers they are there, for an application that knows better.
        line(&reply, "HTTP_X_FORWARDED_FOR", "6.6.6.6");
        server.stop();
    }
}

#[test]
fn a_trusted_proxy_speaks_for_its_client() {
    let site = Site::of_fixture("php");
    let log = site.writable("log").join("access.log");
    let server = Baton::with(
        site.root(),
        &[
            TRUSTED_PROXIES,
            LOOPBACK,
            TRUSTED_PROXIES,
            "10.0.0.0/8",
            ACCESS_LOG,
            log.to_str().expect("a plain path"),
        ],
    );
    let own_port = server.addr().port().to_string();
    let mut cases = Cases::new();
    cases.case("what nginx is told to send", || {
        let reply = ask(
            &server,
            &[
                ("X-Forwarded-For", "6.6.6.6, 192.0.2.7, 10.0.0.9"),
                ("X-Forwarded-Proto", "https"),
            ],
        );
        line(&reply, "REMOTE_ADDR", "192.0.2.7");
        absent(&reply, "REMOTE_PORT");
        line(&reply, "HTTPS", "on");
        line(&reply, "REQUEST_SCHEME", "https");
        line(&reply, "SERVER_PORT", "443");
        line(&reply, "HTTP_HOST", "example.org");
        line(&reply, "SERVER_ADDR", LOOPBACK);
    });
    cases.case("an address alone changes the address alone", || {
        let reply = ask(&server, &[("X-Forwarded-For", "[2001:db8::1]:4711")]);
        line(&reply, "REMOTE_ADDR", "2001:db8::1");
        line(&reply, "REMOTE_PORT", "4711");
        absent(&reply, "HTTPS");
        line(&reply, "SERVER_PORT", &own_port);
    });
    cases.case("the port is the one that was told, or that of the URL", || {
        let port = |headers: &[(&str, &str)]| {
            ask(&server, headers).line("SERVER_PORT").expect("a port")
        };
        let proto = |proto| ("X-Forwarded-Proto", proto);
        assert_eq!(port(&[proto("http")]), "80");
        assert_eq!(port(&[proto("https"), ("X-Forwarded-Port", "8443")]), "8443");
        assert_eq!(port(&[("X-Forwarded-Port", "8443")]), "8443");
        let reply = server.send(
            "GET /index.php HTTP/1.1\r\nHost: example.org:444\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n",
        );
        line(&reply.expect(200), "SERVER_PORT", "444");
    });
    cases.case("Forwarded", || {
        let value = "for=6.6.6.6;host=evil, for=192.0.2.8;proto=https;host=\"www.example.org:444\", for=10.1.1.1";
        let reply = ask(&server, &[("Forwarded", value)]);
        line(&reply, "REMOTE_ADDR", "192.0.2.8");
        line(&reply, "HTTPS", "on");
        line(&reply, "HTTP_HOST", "www.example.org:444");
        line(&reply, "SERVER_NAME", "www.example.org");
        line(&reply, "SERVER_PORT", "444");
    });
    cases.case(
        "X-Forwarded-* goes before Forwarded, and no host without being asked",
        || {
            let reply = ask(
                &server,
                &[
                    ("Forwarded", "for=6.6.6.6;proto=https;host=evil.example"),
                    ("X-Forwarded-For", "192.0.2.7"),
                    ("X-Forwarded-Host", "evil.example"),
                ],
            );
            line(&reply, "REMOTE_ADDR", "192.0.2.7");
            absent(&reply, "HTTPS");
            line(&reply, "HTTP_HOST", "example.org");
            line(&reply, "SERVER_NAME", "example.org");
        },
    );
    cases.case("what is malformed is not passed on", || {
        for (name, value) in [
            ("X-Forwarded-For", "<script>alert(1)</script>"),
            ("X-Forwarded-For", "192.0.2.7' OR 1=1"),
            ("X-Forwarded-For", "192.0.2.7, unknown"),
            ("X-Forwarded-For", "999.0.2.7"),
            ("X-Forwarded-For", "192.0.2.7\u{e9}"),
            ("X-Forwarded-Proto", "https\u{e9}"),
            ("X-Forwarded-Proto", "javascript"),
            ("X-Forwarded-Port", "443abc"),
            ("X-Forwarded-Port", "70000"),
            ("Forwarded", "for=\"192.0.2.7"),
            ("Forwarded", "for=192.0.2.7;for=192.0.2.8"),
            ("Forwarded", "for=_hidden;proto=gopher;host=\"a/b\""),
        ] {
            let reply = ask(&server, &[(name, value)]);
            let shown = format!("{name}: {value}");
            let says = |variable: &str| reply.line(variable).unwrap_or_default();
            assert_eq!(says("REMOTE_ADDR"), LOOPBACK, "{shown}");
            assert_eq!(says("HTTPS"), "", "{shown}");
            assert_eq!(says("REQUEST_SCHEME"), "http", "{shown}");
            assert_eq!(says("SERVER_PORT"), own_port, "{shown}");
            assert_eq!(says("HTTP_HOST"), "example.org", "{shown}");
        }
    });
    cases.case("underscores do not pass for hyphens", || {
        let reply = ask(&server, &[("X_Forwarded_For", "6.6.6.6")]);
        line(&reply, "REMOTE_ADDR", LOOPBACK);
        absent(&reply, "HTTP_X_FORWARDED_FOR");
    });
    cases.case("each request of a connection has its own client", || {
        let mut conn = server.connect();
        for address in ["192.0.2.1", "192.0.2.2"] {
            let reply = conn
                .ask(format!(
                    "GET /index.php HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n"
                ))
                .expect("a reply")
                .expect(200);
            line(&reply, "REMOTE_ADDR", address);
        }
        let reply = conn
            .ask("GET /index.php HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        line(&reply, "REMOTE_ADDR", LOOPBACK);
    });
    cases.case("the access log shows the client", || {
        let text = || fs::read_to_string(&log).unwrap_or_default();
        wait_until("the client is logged", Duration::from_secs(5), || {
            text()
                .lines()
                .any(|line| line.starts_with("192.0.2.8 - - "))
        });
        assert!(!text().contains("6.6.6.6 - - "), "{}", text());
    });
    cases.finish();
    server.stop();
}

#[test]
fn the_host_is_believed_when_asked_for() {
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[
            TRUSTED_PROXIES,
            LOOPBACK,
            TRUSTED_HEADERS,
            "x-forwarded-host",
            TRUSTED_HEADERS,
            "x-forwarded-proto",
        ],
    );
    let told = [
        ("X-Forwarded-Host", "www.example.org:8443"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-For", "6.6.6.6"),
    ];
    let reply = ask(&server, &told);
    line(&reply, "HTTP_HOST", "www.example.org:8443");
    line(&reply, "SERVER_NAME", "www.example.org");
    line(&reply, "SERVER_PORT", "8443");
    line(&reply, "REMOTE_ADDR", LOOPBACK);
    for wrong in ["a/b", "<script>", "..", "a@b"] {
        let reply = ask(&server, &[("X-Forwarded-Host", wrong)]);
        line(&reply, "HTTP_HOST", "example.org");
    }
    server.stop();
}

#[test]
fn unix_sockets_can_be_trusted() {
    let site = Site::of_fixture("php");
    let socket = site.writable("run").join("web.sock");
    let listen = format!("unix:{} mode=0606", socket.display());
    let server = Baton::with(
        site.root(),
        &[
            LISTEN,
            "127.0.0.1:0",
            LISTEN,
            &listen,
            TRUSTED_PROXIES,
            "unix",
        ],
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(&socket).expect("there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o606);
    let mut stream = UnixStream::connect(&socket).expect("the unix socket");
    stream
        .write_all(
            request(&[
                ("X-Forwarded-For", "192.0.2.7"),
                ("X-Forwarded-Proto", "https"),
            ])
            .as_bytes(),
        )
        .expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(
        reply.contains("\nREMOTE_ADDR=192.0.2.7\n") && reply.contains("\nHTTPS=on\n"),
        "{reply}"
    );
    // By TCP nobody is trusted.
    line(
        &ask(&server, &[("X-Forwarded-For", "192.0.2.7")]),
        "REMOTE_ADDR",
        LOOPBACK,
    );
    server.stop();
}

fn proxied(options: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture("php");
    let mut all = vec![
        LISTEN,
        "127.0.0.1:0 proxy_protocol",
        TRUSTED_PROXIES,
        LOOPBACK,
    ];
    all.extend(options);
    let server = Baton::with(site.root(), &all);
    (site, server)
}

fn binary(version_and_command: u8, family_and_protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([version_and_command, family_and_protocol]);
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend(rest);
    bytes
}

#[test]
fn the_proxy_protocol() {
    let (_site, server) = proxied(&[]);
    let with = |header: &[u8], headers: &[(&str, &str)]| {
        server
            .send([header, request(headers).as_bytes()].concat())
            .expect(200)
    };
    let text = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    let lies = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
    ];
    let mut cases = Cases::new();
    for (name, header) in [
        ("version 1", text.to_vec()),
        ("version 2", binary(0x21, 0x11, &v4)),
    ] {
        cases.case(name, || {
            let reply = with(&header, &lies);
            line(&reply, "REMOTE_ADDR", "192.0.2.1");
            line(&reply, "REMOTE_PORT", "56324");
            line(&reply, "SERVER_ADDR", "198.51.100.2");
            line(&reply, "SERVER_PORT", "443");
            absent(&reply, "HTTPS");
        });
    }
    cases.case("version 2 with TLS", || {
        let tls = [&v4[..], &[0x20, 0, 5, 1, 0, 0, 0, 0]].concat();
        let reply = with(&binary(0x21, 0x11, &tls), &[]);
        line(&reply, "HTTPS", "on");
        line(&reply, "REQUEST_SCHEME", "https");
    });
    cases.case("IPv6", || {
        let reply = with(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 8443\r\n", &[]);
        line(&reply, "REMOTE_ADDR", "2001:db8::1");
        line(&reply, "SERVER_ADDR", "2001:db8::2");
        line(&reply, "SERVER_PORT", "8443");
    });
    cases.case("the proxy for itself", || {
        let reply = with(&binary(0x20, 0, &[]), &lies);
        // It is trusted, and speaks for a client.
        line(&reply, "REMOTE_ADDR", "6.6.6.6");
        line(&reply, "SERVER_ADDR", LOOPBACK);
    });
    cases.case("somebody whom the proxy cannot name", || {
        let reply = with(b"PROXY UNKNOWN\r\n", &lies);
        line(&reply, "REMOTE_ADDR", LOOPBACK);
        absent(&reply, "HTTPS");
    });
    cases.case("anything else is closed without an answer", || {
        for bytes in [
            request(&[]).as_bytes(),
            b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"PROXY TCP4 192.0.2.1' 198.51.100.2 56324 443\r\n",
            &binary(0x21, 0x11, &v4[..3]),
        ] {
            let mut conn = server.connect();
            // It may be closed before all of it is sent.
            let _ = conn.send(bytes);
            assert!(matches!(conn.reply(), Err(Fault::Closed)));
        }
        server.wait_for_log("it does not begin with a PROXY header");
    });
    cases.finish();
    server.stop();
}

#[test]
fn a_proxy_header_that_does_not_come_holds_nothing() {
    let (_site, server) = proxied(&[HEADER_MS, "300"]);
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.send("PROXY TCP4 192.0.2.1").expect("sent");
    for conn in [&mut silent, &mut slow] {
        assert!(matches!(conn.reply(), Err(Fault::Closed)));
    }
    let mut waiting = server.connect();
    waiting.send("PROXY").expect("sent");
    server.stop();
    assert!(matches!(waiting.reply(), Err(Fault::Closed)));
}

#[test]
fn only_trusted_peers_may_send_it() {
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[
            LISTEN,
            "127.0.0.1:0 proxy_protocol",
            TRUSTED_PROXIES,
            "192.0.2.1",
        ],
    );
    let mut conn = server.connect();
    let _ = conn.send(format!("PROXY UNKNOWN\r\n{}", request(&[])));
    assert!(matches!(conn.reply(), Err(Fault::Closed)));
    server.wait_for_log("it is not one of the trusted proxies");
    server.stop();
    let ended = baton::run(
        &[
            "serve",
            site.root().to_str().expect("plain"),
            LISTEN,
            "127.0.0.1:0 proxy_protocol",
        ],
        Duration::from_secs(10),
    );
    assert!(
        !ended.status.success() && ended.output.contains("--trusted-proxies"),
        "{}",
        ended.output
    );
}

#[test]
fn all_of_it_in_a_file() {
    let site = Site::of_fixture("php");
    let file = site.write(
        "baton.toml",
        "listen = [\"127.0.0.1:0\", \"127.0.0.1:0 proxy_protocol\"]\n\
         trusted_proxies = [\"127.0.0.0/8\", \"fd00::/8\", \"unix\"]\n\
         trusted_headers = [\"forwarded\"]\n",
    );
    let file = file.to_str().expect("a plain path");
    // The listener on the command line wins.
    let server = Baton::with(site.root(), &[CONFIG, file]);
    let reply = ask(
        &server,
        &[
            ("Forwarded", "for=192.0.2.1"),
            ("X-Forwarded-For", "6.6.6.6"),
        ],
    );
    line(&reply, "REMOTE_ADDR", "192.0.2.1");
    server.stop();
    for (wrong, said) in [
        ("trusted_proxies = [\"localhost\"]", "10.0.0.0/8"),
        ("trusted_headers = [\"x-real-ip\"]", "x-forwarded-for"),
        ("listen = \"127.0.0.1:1 proxy\"", "proxy_protocol"),
    ] {
        fs::write(file, wrong).expect("written");
        let root = site.root().to_str().expect("a plain path");
        let ended = baton::run(&["serve", root, CONFIG, file], Duration::from_secs(10));
        assert!(
            !ended.status.success() && ended.output.contains(said),
            "{wrong}: {}",
            ended.output
        );
    }
}

/// Another server in front, with a configuration from `docs/deployment.md`. Ended when dropped.
struct Front {
    child: Child,
    folder: PathBuf,
    addr: SocketAddr,
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The n-th block of that language in the documentation.
fn block(language: &str, n: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/deployment.md");
    let text = fs::read_to_string(path).expect("the documentation");
    let fence = format!("```{language}\n");
    let block = text.split(&fence).nth(n + 1).expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    block.to_owned()
}

#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(
        text.contains(from),
        "{from:?} is not in the documentation: {text}"
    );
    text.replace(from, to)
}

impl Front {
    fn start(program: &str, config: &str, arguments: &[&str], addr: SocketAddr) -> Front {
        let folder = std::env::temp_dir().join(format!(
            "baton-front-{}-{}",
            std::process::id(),
            addr.port()
        ));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("front.conf");
        let folder_name = folder.to_str().expect("a plain path");
        fs::write(&file, config.replace("FOLDER", folder_name)).expect("written");
        let child = Command::new(program)
            .args(arguments)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {program}: {e}"));
        let front = Front {
            child,
            folder,
            addr,
        };
        wait_until(
            &format!("{program} listens"),
            Duration::from_secs(10),
            || TcpStream::connect(addr).is_ok(),
        );
        front
    }

    fn nginx(upstream: &str) -> Front {
        let addr = free_address();
        let documented = block("nginx", 0);
        let documented = replaced(&documented, "127.0.0.1:8080", upstream);
        let documented = replaced(&documented, "listen 80;", &format!("listen {addr};"));
        let config = format!(
            "daemon off;\npid FOLDER/pid;\nerror_log FOLDER/log;\nworker_processes 1;\nuser root;\n\
             events {{ worker_connections 100; }}\nhttp {{\naccess_log off;\n\
             client_body_temp_path FOLDER/body;\nproxy_temp_path FOLDER/proxy;\n{documented}}}\n"
        );
        Front::start("nginx", &config, &["-e", "stderr", "-c"], addr)
    }

    fn haproxy(documented: &str, upstream: (&str, &str)) -> Front {
        let addr = free_address();
        let documented = replaced(documented, upstream.0, upstream.1);
        let documented = replaced(&documented, "bind :80", &format!("bind {addr}"));
        let config = format!(
            "global\n    maxconn 100\n\
             defaults\n    timeout connect 5s\n    timeout client 20s\n    timeout server 20s\n{documented}"
        );
        Front::start("haproxy", &config, &["-db", "-q", "-f"], addr)
    }

    /// Asks from 127.0.0.2: Baton trusts 127.0.0.1 only, where the front is.
    #[track_caller]
    fn ask(&self, headers: &[(&str, &str)]) -> Reply {
        let client: IpAddr = CLIENT.parse().expect("an address");
        let mut conn = Conn::open_from(client, self.addr);
        conn.ask(request(headers)).expect("a reply").expect(200)
    }
}

const CLIENT: &str = "127.0.0.2";

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

/// What a client may try behind a proxy that does as documented.
const LIES: [(&str, &str); 5] = [
    ("X-Forwarded-For", "6.6.6.6"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Port", "1"),
    ("X-Forwarded-Host", "evil.example"),
    ("Forwarded", "for=6.6.6.6;proto=https;host=evil.example"),
];

#[track_caller]
fn is_told_truly(reply: &Reply, port: u16) {
    line(reply, "REMOTE_ADDR", CLIENT);
    absent(reply, "HTTPS");
    line(reply, "REQUEST_SCHEME", "http");
    line(reply, "SERVER_PORT", &port.to_string());
    line(reply, "HTTP_HOST", "example.org");
    line(reply, "SERVER_NAME", "example.org");
}

#[test]
fn behind_nginx_as_documented() {
    let site = Site::of_fixture("php");
    let socket = site.writable("run").join("web.sock");
    let listen = format!("unix:{} mode=0666", socket.display());
    let server = Baton::with(
        site.root(),
        &[
            LISTEN,
            "127.0.0.1:0",
            LISTEN,
            &listen,
            TRUSTED_PROXIES,
            LOOPBACK,
            TRUSTED_PROXIES,
            "unix",
        ],
    );
    for upstream in [
        server.addr().to_string(),
        format!("unix:{}", socket.display()),
    ] {
        let nginx = Front::nginx(&upstream);
        for _ in 0..3 {
            is_told_truly(&nginx.ask(&[]), nginx.addr.port());
            is_told_truly(&nginx.ask(&LIES), nginx.addr.port());
        }
    }
    server.stop();
}

#[test]
fn behind_haproxy_as_documented() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[TRUSTED_PROXIES, LOOPBACK]);
    let address = server.addr().to_string();
    let haproxy = Front::haproxy(&block("haproxy", 0), ("127.0.0.1:8080", &address));
    is_told_truly(&haproxy.ask(&[]), haproxy.addr.port());
    is_told_truly(&haproxy.ask(&LIES), haproxy.addr.port());
    drop(haproxy);
    server.stop();

    let (_site, server) = proxied(&[]);
    let address = server.addr().to_string();
    let documented = block("haproxy", 1);
    let version_1 = replaced(&documented, "send-proxy-v2-ssl", "send-proxy");
    for config in [documented, version_1] {
        let haproxy = Front::haproxy(&config, ("127.0.0.1:8081", &address));
        is_told_truly(&haproxy.ask(&[]), haproxy.addr.port());
        is_told_truly(&haproxy.ask(&LIES), haproxy.addr.port());
    }
    server.stop();
}
