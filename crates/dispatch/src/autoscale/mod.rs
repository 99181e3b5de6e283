//! How many threads an app should have, decided from what was seen.
//!
//! Requests that wait want a thread each; how much of a core a busy thread needs says for how many there is work to do.
//! A thread that sleeps in a database call needs a twentieth of a core, so forty of them fill two cores, and so many can
//! be started at once. One that computes needs a whole core: when the CPU is full the answer is to hold, whatever the
//! queue's length.
//!
//! [`Meter`] remembers a second of looks and makes an [`Observation`] of them. [`decide`] is a function of that, of the
//! [`ScaleLimits`] and of the time, and of nothing else. [`DecisionLog`] keeps what was decided, for people to read.
//! `tests/simulation` judges it.

mod decision;
mod idle_least;
mod limits;
mod log;
mod meter;
mod observation;
mod policy;

pub use decision::{Action, CpuView, Decision, Reason};
pub use limits::ScaleLimits;
pub use log::{DecisionLog, Logged};
pub use meter::{Meter, Seen, Work};
pub use observation::{Cpu, CpuCounters, IdleThread, Memory, Observation, StartCost};
pub use policy::{LOOK_MS, decide};
