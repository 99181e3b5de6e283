//! What may change while the server runs: its configuration and its listeners.
//!
//! [`Handle::prepare`] opens what is not open yet, which may fail and changes nothing; [`Handle::apply`] has the I/O
//! threads go over to it, and cannot fail. What both setups listen on stays open throughout.

use std::io;
use std::sync::Arc;

use rustix::event::epoll;

use crate::accept::Accepted;
use crate::config::{Config, Listen};
use crate::io_thread::IoThread;
use crate::listener::{Bound, SocketFile};
use crate::server::Handle;
use crate::service::{LocalAddress, Service};
use crate::shared::Shared;

pub(crate) struct Setup {
    pub(crate) config: Arc<Config>,
    /// In the order of `Config::listeners`.
    pub(crate) listeners: Vec<Arc<Bound>>,
    /// Listeners are told apart by their numbers, which are not used again.
    next_number: u64,
}

/// A setup that is ready to be applied. Dropped instead, it closes what was opened for it.
pub struct Prepared(Setup);

impl Setup {
    /// Opens all listeners, but for those that are open already.
    pub(crate) fn open(config: Config, before: Option<&Setup>) -> io::Result<Setup> {
        let proxied = config.listeners.iter().any(|listen| listen.proxy_protocol);
        if proxied && config.trusted_proxies.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a listener with the PROXY protocol needs trusted proxies",
            ));
        }
        let mut next_number = before.map_or(0, |setup| setup.next_number);
        let mut left: Vec<&Arc<Bound>> =
            before.map_or(Vec::new(), |s| s.listeners.iter().collect());
        let mut open = |listen: &Listen| {
            let same = left
                .iter()
                .position(|bound| bound.is_at(&listen.at) && bound.listen.means_the_same(listen));
            if let Some(at) = same {
                return Ok(Arc::clone(left.remove(at)));
            }
            next_number += 1;
            let there = left.iter().position(|bound| bound.is_at(&listen.at));
            let bound = match there {
                Some(at) => left.remove(at).with(listen, next_number),
                None => Bound::open(listen, next_number, config.io_threads)?,
            };
            Ok(Arc::new(bound))
        };
        let listeners = config.listeners.iter().map(&mut open);
        let listeners = listeners.collect::<io::Result<_>>()?;
        Ok(Setup {
            config: Arc::new(config),
            listeners,
            next_number,
        })
    }

    pub(crate) fn files(&self) -> Vec<Arc<SocketFile>> {
        let listeners = self.listeners.iter();
        listeners.filter_map(|bound| bound.file()).collect()
    }

    pub(crate) fn addresses(&self) -> Vec<LocalAddress> {
        let listeners = self.listeners.iter();
        listeners.map(|bound| bound.address.clone()).collect()
    }
}

impl<M> Handle<M> {
    /// Opens the listeners that are in `config` and not open. The number of I/O threads, the clocks and the write mode
    /// are those with which the server was started, whatever `config` says.
    ///
    /// # Errors
    /// One that cannot be opened, with its address; an address that overlaps with one that is open is among them. Or
    /// the server is ending.
    pub fn prepare(&self, config: Config) -> io::Result<Prepared> {
        let Some(current) = self.shared.setup() else {
            return Err(io::Error::other("the server is ending"));
        };
        let config = Config {
            io_threads: current.config.io_threads,
            clock: current.config.clock.clone(),
            clock_mode: current.config.clock_mode,
            write_mode: current.config.write_mode,
            ..config
        };
        Setup::open(config, Some(&current)).map(Prepared)
    }

    /// Has all I/O threads go by this setup, from their next tick on; returns where they listen then. Connections stay,
    /// also those of a listener that goes, and what waits in its backlog is taken in. To be called by one thread at a
    /// time, with what it has prepared last.
    pub fn apply(&self, prepared: Prepared) -> Vec<LocalAddress> {
        let addresses = prepared.0.addresses();
        for bound in &prepared.0.listeners {
            bound.set_mode();
        }
        self.shared.replace_setup(prepared.0);
        addresses
    }
}

impl<S: Service> IoThread<S> {
    #[cold]
    pub(crate) fn go_by_setup(&mut self, shared: &Shared) {
        let Some(setup) = shared.setup() else { return };
        self.io.config = Arc::clone(&setup.config);
        if self.drain.is_some() {
            return;
        }
        let is_kept = |number| setup.listeners.iter().any(|bound| bound.number == number);
        for index in 0..self.listeners.len() {
            if !is_kept(self.listeners[index].number) {
                while self.accept_round(index, usize::MAX, false) == Accepted::Some {}
                // Others may have the socket open for longer. An error means that it was never registered.
                let _ = epoll::delete(&self.io.epoll, self.listeners[index].descriptor());
            }
        }
        let mut before = std::mem::take(&mut self.listeners);
        for bound in &setup.listeners {
            let known = before.iter().position(|one| one.number == bound.number);
            let listener = match known {
                Some(at) => before.swap_remove(at),
                None => {
                    let listener = bound.share(self.io.index());
                    if let Err(error) = self.io.listen(&listener) {
                        tracing::error!(%error, "cannot listen");
                    }
                    listener
                }
            };
            self.listeners.push(listener);
        }
        self.accept_again = true;
    }
}
