//! Time, read once per tick and handed in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// `CLOCK_MONOTONIC`, the same in all processes of the machine.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME`, since 1970.
    pub wall_ns: i64,
}

impl Now {
    pub fn mono_ms(&self) -> u64 {
        self.mono_ns / NS_PER_MS
    }

    pub fn wall_s(&self) -> i64 {
        self.wall_ns.div_euclid(NS_PER_S)
    }
}

/// Where an I/O thread takes its time from.
pub trait Clock: 'static {
    fn read(&mut self) -> Now;
}

/// Makes the clock of each I/O thread, on that thread; the argument is the thread's number.
pub type ClockFactory = Arc<dyn Fn(usize) -> Box<dyn Clock> + Send + Sync>;

/// The machine's clocks; both readings go through the vDSO and make no system call.
pub struct SystemClock;

impl Clock for SystemClock {
    fn read(&mut self) -> Now {
        let mono = clock_gettime(ClockId::Monotonic);
        let wall = clock_gettime(ClockId::Realtime);
        Now {
            mono_ns: mono.tv_sec as u64 * NS_PER_S as u64 + mono.tv_nsec as u64,
            wall_ns: wall.tv_sec * NS_PER_S + wall.tv_nsec as i64,
        }
    }
}

pub fn system_clock() -> ClockFactory {
    Arc::new(|_| Box::new(SystemClock))
}

/// A clock that stands still until it is moved. For tests: move it, then [`crate::Handle::wake`] the server.
#[derive(Clone)]
pub struct ManualClock {
    mono_ns: Arc<AtomicU64>,
    wall_start_ns: i64,
}

impl ManualClock {
    pub fn new(wall_start_s: i64) -> ManualClock {
        ManualClock {
            mono_ns: Arc::new(AtomicU64::new(NS_PER_S as u64)),
            wall_start_ns: wall_start_s * NS_PER_S,
        }
    }

    pub fn advance_ms(&self, ms: u64) {
        self.mono_ns.fetch_add(ms * NS_PER_MS, Ordering::SeqCst);
    }

    pub fn factory(&self) -> ClockFactory {
        let clock = self.clone();
        Arc::new(move |_| Box::new(clock.clone()))
    }
}

impl Clock for ManualClock {
    fn read(&mut self) -> Now {
        let mono_ns = self.mono_ns.load(Ordering::SeqCst);
        Now {
            mono_ns,
            wall_ns: self.wall_start_ns + mono_ns as i64,
        }
    }
}

/// An I/O thread's clock, its latest reading, and the `Date` that follows from it.
pub(crate) struct TickClock {
    source: Box<dyn Clock>,
    per_use: bool,
    now: Now,
    date_s: i64,
    date: [u8; 29],
}

impl TickClock {
    pub(crate) fn new(mut source: Box<dyn Clock>, per_use: bool) -> TickClock {
        let now = source.read();
        let date_s = now.wall_s();
        TickClock {
            source,
            per_use,
            now,
            date_s,
            date: baton_http1::http_date(date_s),
        }
    }

    /// Once per tick, when `epoll_wait` has returned.
    pub(crate) fn tick(&mut self) {
        self.now = self.source.read();
    }

    /// The tick's own reading.
    pub(crate) fn now(&self) -> &Now {
        &self.now
    }

    /// For a use of the time: the tick's reading, or a fresh one when the benchmark asks for that.
    pub(crate) fn used(&mut self) -> Now {
        if self.per_use {
            self.now = self.source.read();
        }
        self.now
    }

    pub(crate) fn date(&mut self) -> &[u8; 29] {
        let s = self.used().wall_s();
        if s != self.date_s || self.per_use {
            self.date_s = s;
            self.date = baton_http1::http_date(s);
        }
        &self.date
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_follows_the_second() {
        let manual = ManualClock::new(784_111_776);
        let mut clock = TickClock::new(Box::new(manual.clone()), false);
        assert_eq!(clock.date(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        manual.advance_ms(1_000);
        assert_eq!(
            clock.date(),
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            "not read before the tick"
        );
        clock.tick();
        assert_eq!(clock.date(), b"Sun, 06 Nov 1994 08:49:38 GMT");
    }

    #[test]
    fn system_clock_goes_forward() {
        let first = SystemClock.read();
        let second = SystemClock.read();
        assert!(second.mono_ns >= first.mono_ns && first.wall_s() > 1_600_000_000);
    }
}
