//! When the service is called: descriptors, deadlines, sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use baton_server::{Config, ConnId, Handle, Io, ListenAt, Request, Server, Service};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};

use crate::client::Client;

#[derive(Default)]
struct Counts {
    ticks: AtomicU64,
    ready: AtomicU64,
    sleeps: AtomicU64,
    awakes: AtomicU64,
    messages: AtomicU64,
    /// The next `may_sleep` says no, so many times.
    refuse_sleep: AtomicU64,
    deadline_ms: AtomicU64,
    now_ms: AtomicU64,
}

/// Answers requests only in `tick`, as one does that polls the memory of other processes.
struct Hooked {
    counts: Arc<Counts>,
    asked: Vec<ConnId>,
}

impl Service for Hooked {
    type Message = u64;

    fn request(&mut self, _io: &mut Io, conn: ConnId, _request: Request<'_>) {
        self.asked.push(conn);
    }

    fn message(&mut self, _io: &mut Io, message: u64) {
        self.counts.messages.fetch_add(message, SeqCst);
    }

    fn ready(&mut self, _io: &mut Io, token: u64) {
        self.counts.ready.fetch_add(token, SeqCst);
    }

    fn tick(&mut self, io: &mut Io) {
        self.counts.ticks.fetch_add(1, SeqCst);
        self.counts.now_ms.store(io.now().mono_ms(), SeqCst);
        for conn in self.asked.drain(..) {
            io.respond(conn, 200, None, [], b"in tick");
        }
        if io.now().mono_ms() >= self.counts.deadline_ms.load(SeqCst) {
            self.counts.deadline_ms.store(u64::MAX, SeqCst);
        }
    }

    fn may_sleep(&mut self) -> bool {
        self.counts.sleeps.fetch_add(1, SeqCst);
        let refused = self
            .counts
            .refuse_sleep
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        refused.is_err()
    }

    fn awake(&mut self) {
        self.counts.awakes.fetch_add(1, SeqCst);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        Some(self.counts.deadline_ms.load(SeqCst)).filter(|ms| *ms != u64::MAX)
    }
}

struct Setup {
    server: Option<Server<u64>>,
    handle: Handle<u64>,
    counts: Arc<Counts>,
    knock: Arc<OwnedFd>,
}

impl Setup {
    fn new() -> Setup {
        let counts = Arc::new(Counts::default());
        counts.deadline_ms.store(u64::MAX, SeqCst);
        let knock = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap());
        let config = Config {
            listeners: vec![ListenAt::Tcp("127.0.0.1:0".parse().unwrap()).into()],
            ..Config::default()
        };
        let (of_service, registered) = (Arc::clone(&counts), Arc::clone(&knock));
        let server = Server::start(config, move |_, io| {
            assert!(io.register(registered.as_fd(), 1 << 62).is_err());
            io.register(registered.as_fd(), 7).unwrap();
            Hooked {
                counts: Arc::clone(&of_service),
                asked: Vec::new(),
            }
        })
        .unwrap();
        let setup = Setup {
            handle: server.handle(),
            server: Some(server),
            counts,
            knock,
        };
        setup.rest();
        setup
    }

    /// Waits until the thread sleeps.
    fn rest(&self) -> u64 {
        let mut ticks = u64::MAX;
        loop {
            let now = self.counts.ticks.load(SeqCst);
            if now == ticks {
                return ticks;
            }
            ticks = now;
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.handle.stop_now();
        self.server.take().unwrap().join().unwrap();
    }
}

#[test]
fn an_idle_server_does_not_turn() {
    let setup = Setup::new();
    let _idle = Client::tcp(setup.server.as_ref().unwrap().tcp_address().unwrap());
    let ticks = setup.rest();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(setup.counts.ticks.load(SeqCst), ticks);
}

#[test]
fn replies_in_tick_release_what_is_pipelined() {
    let setup = Setup::new();
    let mut client = Client::tcp(setup.server.as_ref().unwrap().tcp_address().unwrap());
    for _ in 0..200 {
        client.get("/");
    }
    for _ in 0..200 {
        assert_eq!(client.reply().text(), "in tick");
    }
}

#[test]
fn registered_descriptors_are_told_once_per_edge() {
    let setup = Setup::new();
    for edge in 1..4 {
        rustix::io::write(&*setup.knock, &1_u64.to_ne_bytes()).unwrap();
        setup.rest();
        assert_eq!(setup.counts.ready.load(SeqCst), 7 * edge);
    }
}

#[test]
fn messages_arrive_in_a_sleeping_thread() {
    let setup = Setup::new();
    for sum in 1..4 {
        setup.handle.post(0, 1);
        setup.rest();
        assert_eq!(setup.counts.messages.load(SeqCst), sum);
    }
}

#[test]
fn sleep_is_announced_and_may_be_refused() {
    let setup = Setup::new();
    setup.counts.refuse_sleep.store(50, SeqCst);
    let ticks = setup.rest();
    setup.handle.wake();
    assert!(
        setup.rest() >= ticks + 50,
        "it turned while sleep was refused"
    );
    let sleeps = setup.counts.sleeps.load(SeqCst);
    assert_eq!(
        setup.counts.awakes.load(SeqCst) + 1,
        sleeps,
        "it sleeps now"
    );
}

#[test]
fn tick_comes_at_the_deadline() {
    let setup = Setup::new();
    let due_ms = setup.counts.now_ms.load(SeqCst) + 200;
    setup.counts.deadline_ms.store(due_ms, SeqCst);
    setup.handle.wake();
    let start = Instant::now();
    while setup.counts.deadline_ms.load(SeqCst) != u64::MAX {
        assert!(start.elapsed() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(setup.counts.now_ms.load(SeqCst) >= due_ms);
}
