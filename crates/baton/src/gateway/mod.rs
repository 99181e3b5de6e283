//! The service on each I/O thread: takes requests to the app and replies back to clients.
//!
//! A request's way through this room: [`resolve`] says what the path means, [`static_file`] sends
//! a file, [`fields`] encodes what goes to the app, [`service`] submits it to the dispatcher, and
//! [`running`] follows it until its reply is through.

mod fields;
mod resolve;
mod running;
mod service;
mod static_file;

pub use running::Running;
pub use service::Gateway;
pub use static_file::Root;
