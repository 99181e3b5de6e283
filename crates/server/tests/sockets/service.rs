//! The service under test, and how a test starts it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use baton_server::{
    Body, Bytes, Config, ConnId, FilePart, Handle, Io, ListenAt, Push, Request, Served, Server,
    Service, Source,
};

/// The longest body that `pattern` knows.
const PATTERN_BYTES: usize = 16_000_100;

/// Byte `i` of every generated body.
pub fn pattern(length: usize) -> Vec<u8> {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        (0..PATTERN_BYTES)
            .map(|i| (i.wrapping_mul(31) ^ (i >> 8)) as u8)
            .collect()
    });
    all[..length].to_vec()
}

pub enum Message {
    /// Answer all requests for `/later`.
    Release,
    /// Push the next piece to all requests for `/parts`; true: the last one.
    Part(&'static [u8], bool),
}

/// What the service was told, in order.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn add(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn count(&self, start: &str) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|event| event.starts_with(start))
            .count()
    }

    pub fn wait_for(&self, start: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.count(start) < count {
            assert!(
                Instant::now() < deadline,
                "no {count} of {start:?} in {:?}",
                self.all()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

struct Owned {
    bytes: Vec<u8>,
    at: usize,
    /// At most so many bytes are shown at a time, as a ring would.
    window: usize,
}

impl Owned {
    fn shown(&self) -> &[u8] {
        &self.bytes[self.at..self.bytes.len().min(self.at + self.window)]
    }

    fn last_shown(&self) -> bool {
        self.at + self.window >= self.bytes.len()
    }
}

impl Source for Owned {
    fn remaining(&self) -> usize {
        self.shown().len()
    }

    fn send(
        &mut self,
        socket: rustix::fd::BorrowedFd<'_>,
        before: &[u8],
        limit: usize,
        after: &[u8],
    ) -> rustix::io::Result<usize> {
        Bytes(self.shown()).send(socket, before, limit, after)
    }

    fn copy_to(&mut self, out: &mut Vec<u8>, n: usize) {
        out.extend_from_slice(&self.shown()[..n]);
        self.at += n;
    }

    fn consume(&mut self, n: usize) {
        assert!(n <= self.remaining());
        self.at += n;
    }
}

pub struct Scripted {
    events: Events,
    later: Vec<ConnId>,
    parts: Vec<ConnId>,
    streams: HashMap<ConnId, Owned>,
}

impl Scripted {
    fn stream_on(&mut self, io: &mut Io, conn: ConnId) {
        let Some(source) = self.streams.get_mut(&conn) else {
            return;
        };
        loop {
            let last = source.last_shown();
            let push = io.push(conn, source, last);
            self.events.add(format!("push {push:?} {last}"));
            if push != Push::Done || last {
                break;
            }
        }
        if source.remaining() == 0 {
            self.streams.remove(&conn);
        }
    }

    fn stream(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        length: usize,
        window: usize,
        announced: Option<u64>,
    ) {
        io.start(conn, 200, None, [], announced);
        self.streams.insert(
            conn,
            Owned {
                bytes: pattern(length),
                at: 0,
                window,
            },
        );
        self.stream_on(io, conn);
    }
}

impl Service for Scripted {
    type Message = Message;

    fn request(&mut self, io: &mut Io, conn: ConnId, request: Request<'_>) {
        self.events.add(format!(
            "request {} {}",
            request.head.method, request.head.target
        ));
        let path: Vec<&str> = request.head.path.split('/').skip(1).collect();
        let number = path
            .get(1)
            .and_then(|number| number.parse::<usize>().ok())
            .unwrap_or(0);
        let plain: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"text/plain")];
        match path[0] {
            "echo" => {
                let (kind, content): (&[u8], Vec<u8>) = match request.body {
                    Body::Empty => (b"empty", Vec::new()),
                    Body::Memory(bytes) => (b"memory", bytes.to_vec()),
                    Body::File(mut file, length) => {
                        let mut content = Vec::new();
                        file.read_to_end(&mut content).unwrap();
                        assert_eq!(content.len() as u64, length);
                        (b"file", content)
                    }
                };
                io.respond(conn, 200, None, [(&b"X-Body"[..], kind)], &content);
            }
            "status" => io.respond(conn, number as u16, None, plain, b"some body"),
            "ends" => {
                let text = format!(
                    "{:?} {:?} trusted={} tls={}",
                    request.peer, request.local, request.trusted, request.tls
                );
                io.respond(conn, 200, None, plain, text.as_bytes());
            }
            "named" => {
                io.name_client(conn, [203, 0, 113, 9].into());
                io.respond(conn, 200, None, plain, b"named");
            }
            "later" => self.later.push(conn),
            "parts" => {
                io.start(conn, 200, None, plain, None);
                self.parts.push(conn);
            }
            "hints" => {
                io.inform(conn, 103, [(&b"Link"[..], &b"</style.css>"[..])]);
                io.respond(conn, 200, None, plain, b"hinted");
            }
            "respond" => io.respond(conn, 200, None, plain, &pattern(number)),
            "sized" => self.stream(io, conn, number, usize::MAX / 2, Some(number as u64)),
            "chunked" => self.stream(io, conn, number, usize::MAX / 2, None),
            "windows" => self.stream(io, conn, number, 70_000, None),
            "sized-windows" => self.stream(io, conn, number, 70_000, Some(number as u64)),
            "short" => self.stream(io, conn, number, usize::MAX / 2, Some(number as u64 + 10)),
            "long" => self.stream(io, conn, number + 10, usize::MAX / 2, Some(number as u64)),
            "abort" => {
                io.start(conn, 200, None, plain, None);
                let _ = io.push(conn, &mut Bytes(b"a part"), false);
                io.abort(conn);
                assert!(!io.is_open(conn));
            }
            "twice" => {
                io.respond(conn, 200, None, plain, b"first");
                io.respond(conn, 200, None, plain, b"second");
            }
            "file" => {
                let mut file = rustix_temp_file();
                file.write_all(b"skip").unwrap();
                file.write_all(&pattern(number)).unwrap();
                io.send_file(conn, 200, plain, file.into(), 4, number as u64);
            }
            "file-parts" => {
                // Both halves of the pattern, with other bytes around them.
                let mut file = rustix_temp_file();
                file.write_all(&pattern(number)).unwrap();
                let part = |before: &[u8], offset, len| FilePart {
                    before: before.to_vec(),
                    offset,
                    len,
                };
                let half = number as u64 / 2;
                let others = vec![
                    part(b"", 0, 0),
                    part(b"<second>", half, number as u64 - half),
                    part(b"<end>", 0, 0),
                ];
                let first = part(b"<first>", 0, half);
                io.send_file_parts(conn, 200, plain, file.into(), first, others);
            }
            "cut-file" => {
                let mut file = rustix_temp_file();
                file.write_all(&pattern(number)).unwrap();
                io.send_file(conn, 200, plain, file.into(), 0, number as u64 + 1);
            }
            _ => io.respond(conn, 200, None, plain, b"Hello, world!"),
        }
    }

    fn message(&mut self, io: &mut Io, message: Message) {
        match message {
            Message::Release => {
                for conn in self.later.drain(..) {
                    io.respond(conn, 200, None, [], b"released");
                }
            }
            Message::Part(bytes, last) => {
                for conn in &self.parts {
                    let push = io.push(*conn, &mut Bytes(bytes), last);
                    self.events.add(format!("push {push:?} {last}"));
                }
            }
        }
    }

    fn writable(&mut self, io: &mut Io, conn: ConnId) {
        self.events.add("writable");
        self.stream_on(io, conn);
    }

    fn half_closed(&mut self, _io: &mut Io, _conn: ConnId) {
        self.events.add("half_closed");
    }

    fn gone(&mut self, io: &mut Io, conn: ConnId) {
        assert!(!io.is_open(conn));
        self.streams.remove(&conn);
        self.events.add("gone");
    }

    fn draining(&mut self, _io: &mut Io) {
        self.events.add("draining");
    }

    fn served(&mut self, _io: &mut Io, _conn: ConnId, served: &Served<'_>) {
        if let Some(client) = served.client.filter(|client| !client.is_loopback()) {
            self.events.add(format!("client {client}"));
        }
        self.events.add(format!(
            "served {} {} {} {} {}",
            served.status, served.body_bytes, served.complete, served.method, served.target
        ));
    }
}

fn rustix_temp_file() -> std::fs::File {
    let flags =
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    std::fs::File::from(rustix::fs::open(std::env::temp_dir(), flags, mode).unwrap())
}

/// A server on a free port of the loopback. Stopped when dropped.
pub struct Running {
    server: Option<Server<Message>>,
    pub handle: Handle<Message>,
    pub events: Events,
}

impl Running {
    pub fn new() -> Running {
        Running::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config {
            listeners: vec![ListenAt::Tcp("127.0.0.1:0".parse().unwrap()).into()],
            log_requests: true,
            ..Config::default()
        };
        change(&mut config);
        let events = Events::default();
        let of_service = events.clone();
        let server = Server::start(config, move |_, _| Scripted {
            events: of_service.clone(),
            later: Vec::new(),
            parts: Vec::new(),
            streams: HashMap::new(),
        })
        .unwrap();
        Running {
            handle: server.handle(),
            server: Some(server),
            events,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().tcp_address().unwrap()
    }

    /// Waits for the end of all I/O threads.
    pub fn join(mut self) {
        self.server.take().unwrap().join().unwrap();
    }

    pub fn wait_connections(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.handle.connections() != count {
            assert!(
                Instant::now() < deadline,
                "{} connections, not {count}",
                self.handle.connections()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.handle.stop_now();
            server.join().unwrap();
        }
    }
}
