//! A machine's cores, shared evenly by all that want to compute.
//!
//! What a job still has to do is counted in a time of its own, which passes at the rate at which each of them proceeds:
//! a job that begins at `v` and needs `w` ends at `v + w`, whatever comes and goes meanwhile.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

/// Extra work of a job that finds the caches full of others' data, in nanoseconds; from four of them per core on.
/// On two cores a request of 20 us was measured to cost 2.5 us more with 8 or 16 processes than with 4; the larger
/// requests here touch more.
const COLD_NS: f64 = 10_000.0;
/// How much slower everything goes with very many jobs at once, and with how many per core half of that.
const CROWD: f64 = 0.05;
const CROWD_HALF: f64 = 32.0;

pub struct Cores {
    cores: f64,
    now: Time,
    /// What each job has been given since the beginning, in nanoseconds.
    given_ns: f64,
    /// How much of a core each job gets.
    rate: f64,
    /// By when they end, in `given_ns`.
    jobs: BinaryHeap<Reverse<(Given, usize, u32)>>,
    /// Each job's run; an entry of an older run is void.
    runs: Vec<u32>,
    running_as: Vec<Option<Kind>>,
    running: usize,
    serving: usize,
    /// Others, who always want to compute.
    hogs: usize,
    used: Used,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Starting,
    Serving,
}

/// Core time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub all: f64,
    pub hogs: f64,
    pub serving: f64,
    /// Time in which jobs that serve waited for a core.
    pub serving_delay: f64,
}

impl Cores {
    pub fn new(cores: f64) -> Self {
        Self {
            cores,
            now: 0,
            given_ns: 0.0,
            rate: 1.0,
            jobs: BinaryHeap::new(),
            runs: Vec::new(),
            running_as: Vec::new(),
            running: 0,
            serving: 0,
            hogs: 0,
            used: Used::default(),
        }
    }

    pub fn used(&self) -> Used {
        self.used
    }

    pub fn set_hogs(&mut self, hogs: usize) {
        self.hogs = hogs;
        self.share_anew();
    }

    /// `job` wants to compute for so long.
    pub fn run(&mut self, job: usize, kind: Kind, work: Time) {
        if self.runs.len() <= job {
            self.runs.resize(job + 1, 0);
            self.running_as.resize(job + 1, None);
        }
        assert_eq!(self.running_as[job], None, "one thing at a time");
        self.running += 1;
        self.serving += usize::from(kind == Kind::Serving);
        self.running_as[job] = Some(kind);
        let crowd = (self.per_core() - 1.0).clamp(0.0, 3.0) / 3.0;
        let end = Given(self.given_ns + work as f64 + crowd * COLD_NS);
        self.jobs.push(Reverse((end, job, self.runs[job])));
        self.share_anew();
    }

    /// `job` is no more.
    pub fn cancel(&mut self, job: usize) {
        if let Some(Some(_)) = self.running_as.get(job) {
            self.end(job);
        }
    }

    /// When the next job will have ended, if nothing changes.
    pub fn next_end(&mut self) -> Option<Time> {
        let wait_ns = (self.first()?.0 - self.given_ns).max(0.0) / self.rate;
        Some(self.now + wait_ns as Time + 1)
    }

    /// Of the jobs that are not void, what the first to end will have been given.
    fn first(&mut self) -> Option<Given> {
        loop {
            let Reverse((end, job, run)) = *self.jobs.peek()?;
            if self.runs[job] == run {
                return Some(end);
            }
            self.jobs.pop();
        }
    }

    pub fn advance(&mut self, now: Time) {
        let passed_ns = (now - self.now) as f64;
        let (serving, hogs) = (self.serving as f64, self.hogs as f64);
        let share_ns = passed_ns / self.per_core().max(1.0);
        self.used.all += share_ns * (self.running as f64 + hogs);
        self.used.hogs += share_ns * hogs;
        self.used.serving += share_ns * serving;
        self.used.serving_delay += (passed_ns - share_ns) * serving;
        self.given_ns += passed_ns * self.rate;
        self.now = now;
    }

    /// The job that ends now, if one does.
    pub fn pop_ended(&mut self) -> Option<usize> {
        if self.first()?.0 > self.given_ns {
            return None;
        }
        let Reverse((_, job, _)) = self.jobs.pop()?;
        self.end(job);
        Some(job)
    }

    fn end(&mut self, job: usize) {
        self.runs[job] += 1;
        self.running -= 1;
        self.serving -= usize::from(self.running_as[job] == Some(Kind::Serving));
        self.running_as[job] = None;
        self.share_anew();
    }

    fn per_core(&self) -> f64 {
        (self.running + self.hogs) as f64 / self.cores
    }

    fn share_anew(&mut self) {
        let per_core = self.per_core();
        let crowd = (per_core - 1.0).max(0.0);
        let slowdown = 1.0 + CROWD * crowd / (crowd + CROWD_HALF);
        self.rate = 1.0 / per_core.max(1.0) / slowdown;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Given(f64);

impl Eq for Given {}

impl PartialOrd for Given {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Given {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
