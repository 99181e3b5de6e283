//! The app process's side of Baton: everything that a guest needs besides its interpreter.
//!
//! [`zygote`] is the process that loads the app and forks; [`process`] is what a forked process
//! has; [`request`] is one request with its reply; [`c_api`] is all of that as the C interface of
//! `include/baton_guest.h`, where the documentation for guests is.

pub mod c_api;
pub mod process;
pub mod request;
pub mod settings;
pub mod zygote;

#[cfg(test)]
mod tests;
