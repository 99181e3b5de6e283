//! Under systemd: sockets that it opens, news that it waits for, and the units that we ship.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_journeys::options::{CONFIG, INI_ADMIN, LISTEN, TRUSTED_PROXIES};
use baton_journeys::{Baton, Conn, Site, baton, get, proc, wait_until};
use rustix::process::Signal;

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

/// `systemd-socket-activate`, which starts the server when somebody connects.
fn activated(sockets: &[&str], names: &str) -> Command {
    let mut command = Command::new("systemd-socket-activate");
    for socket in sockets {
        command.args(["-l", socket]);
    }
    command.arg(format!("--fdname={names}"));
    command.arg(baton::binary());
    command
}

/// A server of which the first client is the cause. That client's request is answered, too.
fn start_by_client(command: Command, root: &Path, options: &[&str], addr: SocketAddr) -> Baton {
    let first = std::thread::spawn(move || {
        let mut conn = None;
        wait_until("systemd listens", Duration::from_secs(10), || {
            conn = Conn::try_open(addr).ok();
            conn.is_some()
        });
        let mut conn = conn.expect("waited for");
        conn.ask("GET /pid.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .expect("a reply")
            .expect(200);
    });
    let server = match Baton::start(command, root, options) {
        Ok(server) => server,
        Err(ended) => panic!("not started ({}): {}", ended.status, ended.output),
    };
    first.join().expect("the first client is served");
    server
}

#[test]
fn a_socket_of_systemd_replaces_listen() {
    let site = Site::of_fixture("php");
    let addr = free_address();
    let command = activated(&[&addr.to_string()], "web");
    // `Baton::start` gives a --listen, too.
    let server = start_by_client(command, site.root(), &[], addr);
    assert_eq!(server.addr(), addr);
    server.get("/pid.php").expect(200);
    assert_eq!(server.log().matches("serving on").count(), 1);
    server.stop();
}

#[test]
fn sockets_by_their_names() {
    let site = Site::of_fixture("php");
    let addr = free_address();
    let unix = site.writable("run").join("web.sock");
    let command = activated(
        &[&addr.to_string(), unix.to_str().expect("plain")],
        "web:proxied",
    );
    let options = [
        LISTEN,
        "systemd:web",
        LISTEN,
        "systemd:proxied proxy_protocol",
        LISTEN,
        "127.0.0.1:0",
        TRUSTED_PROXIES,
        "unix",
    ];
    let server = start_by_client(command, site.root(), &options, addr);
    assert_eq!(server.log().matches("serving on").count(), 3);
    let mut stream = UnixStream::connect(&unix).expect("the unix socket");
    stream
        .write_all(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nGET /index.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.contains("\nREMOTE_ADDR=192.0.2.1\n"), "{reply}");
    server.stop();
    assert!(unix.exists(), "the file is systemd's");
}

#[test]
fn applications_inherit_nothing_of_it() {
    let site = Site::of_fixture("php");
    site.write(
        "environment.php",
        "<?php foreach (getenv() as $name => $value) { echo $name, \"\\n\"; }",
    );
    let addr = free_address();
    let mut command = Command::new("systemd-socket-activate");
    let notify = Notify::at_path(&site);
    command.arg("-l").arg(addr.to_string());
    command.arg("-E").arg(notify.variable());
    command.arg(baton::binary());
    let server = start_by_client(command, site.root(), &[], addr);
    let listening = listening_inodes(addr);
    assert!(!listening.is_empty());
    let holds = |pid: u32| {
        let targets = proc::descriptor_targets(pid);
        listening
            .iter()
            .any(|inode| targets.contains(&format!("socket:[{inode}]")))
    };
    assert!(holds(server.pid()), "the front has the socket");
    let children = server.children();
    assert!(children.len() >= 2, "a zygote and an app process");
    for child in children {
        assert!(!holds(child.pid), "{child:?} has the listening socket");
        let environment = fs::read(format!("/proc/{}/environ", child.pid)).expect("readable");
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(
            !environment.contains("LISTEN_") && !environment.contains("NOTIFY_"),
            "{environment:?}"
        );
    }
    let reply = server.get("/environment.php").expect(200);
    assert!(
        !reply.text().contains("LISTEN_") && !reply.text().contains("NOTIFY_"),
        "{}",
        reply.text()
    );
    server.stop();
}

/// Of the sockets that listen at an address, as /proc/net/tcp has them.
fn listening_inodes(addr: SocketAddr) -> Vec<String> {
    let port = format!(":{:04X}", addr.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("readable");
    let rows = table
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1].ends_with(&port) && row[3] == "0A")
        .map(|row| row[9].to_owned())
        .collect()
}

/// A server that gets this socket as systemd passes it, by a shell that knows its pid before it is the server.
fn with_socket(listener: &TcpListener) -> (Command, Stdio) {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg("exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"")
        .arg("sh")
        .arg(baton::binary());
    let socket = OwnedFd::from(listener.try_clone().expect("a duplicate"));
    (command, Stdio::from(socket))
}

#[test]
fn a_restart_refuses_nobody() {
    let site = Site::of_fixture("php");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let start = || {
        let (command, socket) = with_socket(&listener);
        Baton::start_with_stdin(command, socket, site.root(), &[]).expect("started")
    };
    let server = start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answered = 0;
                    while !stop.load(Ordering::Relaxed) {
                        get(addr, "/pid.php?ms=5").expect(200);
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        server.stop();
        // Nobody is there now, and everybody waits.
        std::thread::sleep(Duration::from_millis(200));
        let server = start();
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().expect("no client fails") > 0);
        }
        server.stop();
    });
}

#[test]
fn what_is_passed_wrongly_is_said() {
    let site = Site::of_fixture("php");
    let root = site.root().to_str().expect("a plain path");
    let ends = |mut command: Command, options: &[&str]| {
        let output = command
            .args(["serve", root])
            .args(options)
            .stdin(Stdio::null())
            .output()
            .expect("run");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let shell = |variables: &str| {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("exec 3<&0; export {variables}; exec \"$@\""))
            .arg("sh")
            .arg(baton::binary());
        command
    };
    let said = ends(shell("LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web"), &[]);
    assert!(said.contains("descriptor 3 (web)"), "{said}");
    let said = ends(shell("LISTEN_PID=$$ LISTEN_FDS=many"), &[]);
    assert!(said.contains("LISTEN_FDS"), "{said}");
    let said = ends(Command::new(baton::binary()), &[LISTEN, "systemd"]);
    assert!(said.contains("systemd passed no socket"), "{said}");
    // Meant for another process.
    let command = shell("LISTEN_PID=1 LISTEN_FDS=1");
    let server = Baton::start(command, site.root(), &[]).expect("started");
    server.get("/pid.php").expect(200);
    server.stop();
}

/// Where systemd would read.
struct Notify {
    socket: UnixDatagram,
    name: OsString,
}

impl Notify {
    fn at_path(site: &Site) -> Notify {
        let path: PathBuf = site.writable("notify").join("socket");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        Notify::over(socket, path.into())
    }

    fn abstract_name(tag: &str) -> Notify {
        let name = format!("baton-journey-{}-{tag}", std::process::id());
        let address = UnixAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        Notify::over(socket, format!("@{name}").into())
    }

    fn over(socket: UnixDatagram, name: OsString) -> Notify {
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        Notify { socket, name }
    }

    fn variable(&self) -> OsString {
        let mut variable = OsString::from("NOTIFY_SOCKET=");
        variable.push(&self.name);
        variable
    }

    /// The next message, as lines.
    #[track_caller]
    fn message(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).expect("a message");
        let text = std::str::from_utf8(&bytes[..count]).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    fn is_silent(&self) -> bool {
        self.socket.set_nonblocking(true).expect("set");
        let silent = self.socket.recv(&mut [0; 16]).is_err();
        self.socket.set_nonblocking(false).expect("set");
        silent
    }

    fn command(&self) -> Command {
        let mut command = Command::new(baton::binary());
        command.env("NOTIFY_SOCKET", &self.name);
        command
    }
}

#[test]
fn systemd_hears_how_it_goes() {
    let site = Site::of_fixture("php");
    for notify in [Notify::at_path(&site), Notify::abstract_name("states")] {
        let mut server = Baton::start(notify.command(), site.root(), &[]).expect("started");
        let ready = notify.message();
        assert_eq!(ready[0], "READY=1");
        assert!(ready[1].starts_with("STATUS=serving "), "{ready:?}");
        server.get("/pid.php").expect(200);

        server.signal(Signal::HUP);
        let reloading = notify.message();
        assert_eq!(reloading[0], "RELOADING=1");
        let now_us = reloading[1]
            .strip_prefix("MONOTONIC_USEC=")
            .expect("a time");
        assert!(now_us.parse::<u64>().expect("a number") > 0);
        assert_eq!(notify.message()[0], "READY=1");
        server.get("/pid.php").expect(200);

        let mut busy = server.connect();
        busy.send("GET /pid.php?ms=300 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        wait_until("it runs", Duration::from_secs(5), || {
            server.get("/pid.php").status() == 200
        });
        server.signal(Signal::TERM);
        assert_eq!(notify.message()[0], "STOPPING=1");
        busy.reply().expect("a reply").expect(200);
        let status = server.wait(Duration::from_secs(5)).expect("it ends");
        assert!(status.success() && notify.is_silent());
    }
}

#[test]
fn a_reload_that_fails_is_over_too() {
    let site = Site::of_fixture("php");
    let file = site.write("baton.toml", "threads = 1\n");
    let notify = Notify::abstract_name("reload");
    let arguments = [
        "serve",
        CONFIG,
        file.to_str().expect("plain"),
        LISTEN,
        "127.0.0.1:0",
    ];
    let arguments = arguments.map(OsStr::new);
    let server = Baton::launch(notify.command(), Stdio::null(), &arguments).expect("started");
    assert_eq!(notify.message()[0], "READY=1");
    for (text, status) in [
        ("thread = 1\n", "baton.toml:1:1: unknown key"),
        ("threads = 2\n", "STATUS=serving "),
    ] {
        site.write("baton.toml", text);
        server.signal(Signal::HUP);
        let reloading = notify.message();
        assert_eq!(reloading[0], "RELOADING=1");
        assert!(reloading[1].starts_with("MONOTONIC_USEC="));
        let ready = notify.message();
        assert!(
            ready[0] == "READY=1" && ready[1].contains(status),
            "{ready:?}"
        );
        assert_eq!(
            ready[1].contains("the last reload failed"),
            text.starts_with("thread ")
        );
        server.get("/pid.php").expect(200);
    }
    server.stop();
}

#[test]
fn ready_is_said_when_the_application_is() {
    let site = Site::of_fixture("php");
    let folder = site.writable("preload");
    let marker = folder.join("done");
    let preload = site.write(
        "preload/preload.php",
        format!("<?php usleep(600000); touch('{}');", marker.display()),
    );
    let notify = Notify::at_path(&site);
    let preload = format!("opcache.preload={}", preload.display());
    let options = [
        INI_ADMIN,
        preload.as_str(),
        INI_ADMIN,
        "opcache.preload_user=www-data",
    ];
    let server = Baton::start(notify.command(), site.root(), &options).expect("started");
    assert_eq!(notify.message()[0], "READY=1");
    assert!(marker.exists(), "READY came before the code was loaded");
    server.stop();

    // One that cannot start is never ready.
    let notify = Notify::abstract_name("never");
    let options = [INI_ADMIN, "opcache.preload=/does/not/exist.php"];
    let ended = Baton::start(notify.command(), site.root(), &options);
    assert!(ended.is_err_and(|ended| !ended.status.success()) && notify.is_silent());
}

#[test]
fn the_units_are_what_systemd_understands() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../share/systemd");
    let site = Site::new();
    let mut files = Vec::new();
    for name in ["baton.service", "baton.socket"] {
        let text = fs::read_to_string(units.join(name)).expect("a unit");
        // As if it were installed.
        let binary = baton::binary();
        let text = text.replace("/usr/bin/baton", binary.to_str().expect("a plain path"));
        files.push(site.write(name, text));
    }
    let verify = |files: &[PathBuf]| {
        let output = Command::new("systemd-analyze")
            .args(["--man=no", "verify"])
            .args(files)
            .output()
            .expect("systemd-analyze");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success() && said.is_empty(), said)
    };
    let (good, said) = verify(&files);
    assert!(good, "{said}");
    // It does see mistakes.
    let text = fs::read_to_string(&files[0]).expect("a unit");
    let wrong = site.write("wrong.service", text.replace("OOMPolicy", "OomPolicy"));
    assert!(!verify(&[wrong]).0);
}
