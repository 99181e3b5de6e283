//! The server over real sockets, with a service that does what the request's path says.

mod client;
mod service;

mod bodies;
mod connections;
mod drain;
mod hooks;
mod relayed;
mod replies;
mod requests;
mod setup;
mod slow_readers;
mod switches;
mod timeouts;
