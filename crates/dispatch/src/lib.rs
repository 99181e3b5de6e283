//! Dispatch: which thread gets which request, decided without a socket, a clock or a sleep.
//!
//! [`Dispatcher`] is the state of one app: its threads, and the FIFO of requests that found none
//! idle. The caller tells it what happened and when, and does what it answers. [`autoscale`] says how
//! many threads there should be. Time is given in milliseconds of a monotonic clock.
//!
//! Invariants, which the tests check over random schedules: no request waits while a thread is
//! idle; waiting requests leave in the order they came; a request is handed over, refused or
//! given back exactly once; a retired thread leaves only when another is there in its place, and
//! gets nothing afterwards.

#![forbid(unsafe_code)]

pub mod autoscale;
mod backoff;
mod dispatcher;
mod fifo;
mod gauge;
mod idle;
mod listing;
mod processes;
mod retire;
#[cfg(test)]
mod schedules;
mod standby;

pub use backoff::Backoff;
pub use dispatcher::{Dispatcher, Handoff, Limits, Released, SEATS, Submitted, ThreadId};
pub use fifo::Ticket;
pub use gauge::Glance;
pub use listing::Listed;
