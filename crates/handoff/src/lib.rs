//! The handoff: how the front and an app process exchange a request and its reply through
//! memory that both have mapped, without a system call unless one of them sleeps.
//!
//! The room is read in this order: [`layout`] says where each word lies and who may write it,
//! [`wake`], [`slot`] and [`ring`] are the three protocols on those words (each argued above its
//! code and checked with loom), [`request`] and [`reply`] are the byte formats, [`memory`] makes
//! and maps the segments, [`front`] and [`app`] are the two sides, and [`control`] is the socket
//! over which descriptors and commands travel.
//!
//! Trust is one-sided. The app believes the front. The front believes nothing: it keeps its own
//! record of what it handed to whom, reads each of the peer's words once, checks it, and then
//! uses the copy.

#[cfg(not(loom))]
pub mod app;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod front;
#[cfg_attr(loom, allow(dead_code, reason = "most of its users need a kernel"))]
pub mod layout;
#[cfg(not(loom))]
mod memory;
pub mod reply;
pub mod request;
pub mod ring;
#[cfg(not(loom))]
pub mod schedule;
pub mod slot;
mod sync;
pub mod wake;

#[cfg(all(test, loom))]
mod model;
