//! Clients that ask again and again and account for every request: each must get exactly one answer, and its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::{Conn, Fault};

/// What became of the requests of all clients together.
#[derive(Debug, Default)]
pub struct Account {
    pub answered: AtomicU64,
    /// 502 and 504.
    pub failed: AtomicU64,
    /// Whatever must not happen, in words.
    wrong: Mutex<Vec<String>>,
    stop: AtomicBool,
    /// Requests sent before this moment must be answered; later ones may find the door closed.
    closing: Mutex<Option<Instant>>,
}

pub struct StopAtEnd<'a>(&'a Account);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Account {
    pub fn new() -> Account {
        Account::default()
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops the clients when it goes out of scope, also by a panic: a scope would wait for them for ever.
    pub fn stop_at_end(&self) -> StopAtEnd<'_> {
        StopAtEnd(self)
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// From now on the server may refuse.
    pub fn closing_now(&self) {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn wrong(&self, what: String) {
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub fn assert_nothing_wrong(&self) {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let first: Vec<&String> = wrong.iter().take(5).collect();
        assert!(
            wrong.is_empty(),
            "{} wrong answers, among them: {first:#?}",
            wrong.len()
        );
        assert!(
            self.answered.load(Ordering::Relaxed) > 0,
            "nothing was answered"
        );
    }

    /// One client: `pid.php` with this query until told to stop, on connections that are kept for a while.
    pub fn client(&self, addr: SocketAddr, number: usize, query: &str) {
        let mut conn: Option<Conn> = None;
        let mut request = 0u64;
        while !self.is_stopped() {
            request += 1;
            let tag = format!("c{number}r{request}");
            let mut open = match conn.take() {
                Some(open) => open,
                None => match Conn::try_open(addr) {
                    Ok(open) => open,
                    Err(_) if self.may_refuse(Instant::now()) => return,
                    Err(error) => {
                        self.wrong(format!("{tag}: cannot connect: {error}"));
                        std::thread::sleep(Duration::from_millis(50));
                        continue;
                    }
                },
            };
            let sent = open.send(format!(
                "GET /pid.php?{query}&tag={tag} HTTP/1.1\r\nHost: a\r\n\r\n"
            ));
            let at = Instant::now();
            let result = match sent {
                Ok(()) => open.reply(),
                Err(error) => Err(Fault::Io(error)),
            };
            match result {
                Ok(reply)
                    if reply.status() == 200 && reply.text().ends_with(&format!(" {tag}")) =>
                {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    if !reply.head.says_close() && !request.is_multiple_of(50) {
                        conn = Some(open);
                    }
                }
                Ok(reply) if matches!(reply.status(), 502 | 504) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(reply) => self.wrong(format!("{tag}: {} {:?}", reply.status(), reply.text())),
                Err(Fault::Closed | Fault::Io(_)) if self.may_refuse(at) => return,
                Err(fault) => self.wrong(format!("{tag}: {fault}")),
            }
        }
    }

    /// Whether the server had been told to end before this moment.
    fn may_refuse(&self, at: Instant) -> bool {
        self.closing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|closing| at >= closing)
    }
}
