//! The I/O threads of an HTTP server, as a library.
//!
//! Each I/O thread owns one epoll instance, some connections and one [`Service`]. A *tick* is one batch of epoll
//! events; the clock is read once per tick. A service is told of whole requests and answers through [`Io`], at once or
//! in a later tick; it never blocks and never sees a socket.
//!
//! In the order in which a request meets them:
//!
//! | file | idea |
//! |---|---|
//! | `config`, `server` | sockets are bound, threads started and joined; `Handle` for other threads |
//! | `setup` | what may change meanwhile |
//! | `io_thread` | the loop: sleep, clock, messages, events, timers, service |
//! | `accept`, `listener` | new connections, up to the limit |
//! | `relayed`, `trusted` | what a proxy says of a connection, and who may say it |
//! | `slab`, `conn` | where connections live, and the states of one |
//! | `input`, `body` | bytes in, until a request is whole |
//! | `exchange`, `service` | the request handed over; what follows its reply |
//! | `reply`, `stream`, `source` | a reply begun, pushed, finished; what is copied for a slow reader |
//! | `output` | bytes out, and what happens when the socket is full |
//! | `close` | the ways in which a connection ends |
//! | `deadline`, `timer` | what may take how long |
//! | `drain` | the orderly end |
//! | `io`, `clock`, `mailbox`, `shared` | what an I/O thread has, and how others reach it |

#![forbid(unsafe_code)]

mod accept;
mod body;
mod clock;
mod close;
mod config;
mod conn;
mod deadline;
mod drain;
mod exchange;
mod input;
mod io;
mod io_thread;
mod listener;
mod mailbox;
mod output;
mod relayed;
mod reply;
mod server;
mod service;
mod setup;
mod shared;
mod slab;
mod source;
mod stream;
mod timer;
mod trusted;

pub use baton_http1 as http1;
pub use clock::{Clock, ClockFactory, ManualClock, Now, SystemClock, system_clock};
pub use config::{ClockMode, Config, Listen, ListenAt, WriteMode};
pub use io::Io;
pub use server::{Handle, Server};
pub use service::{
    Body, ConnId, FilePart, Local, LocalAddress, Peer, Push, Request, Served, Service,
};
pub use setup::Prepared;
pub use source::{Bytes, Source};
pub use trusted::{TrustedProxies, TrustedProxy};
