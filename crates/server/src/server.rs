//! A server: its sockets bound, its threads started; and the handle by which other threads reach it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::config::Config;
use crate::io::Io;
use crate::io_thread::IoThread;
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::service::{LocalAddress, Service};
use crate::setup::Setup;
use crate::shared::{Shared, Stage};

/// A running server. Dropping it neither stops nor joins it.
pub struct Server<M> {
    handle: Handle<M>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    addresses: Vec<LocalAddress>,
}

impl<M: Send + 'static> Server<M> {
    /// Binds all listeners, then starts the I/O threads; `make` is called on each of them, with its number. Returns
    /// when all are ready to serve. An error names the address that could not be bound.
    pub fn start<S, F>(config: Config, make: F) -> io::Result<Server<M>>
    where
        S: Service<Message = M>,
        F: Fn(usize, &mut Io) -> S + Send + Sync + 'static,
    {
        if config.io_threads == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "at least one I/O thread is needed",
            ));
        }
        let io_threads = config.io_threads;
        let setup = Setup::open(config, None)?;
        let (config, addresses) = (Arc::clone(&setup.config), setup.addresses());
        let shares = |index| setup.listeners.iter().map(move |bound| bound.share(index));
        let mut listeners: Vec<Vec<Listener>> = (0..io_threads)
            .map(|index| shares(index).collect())
            .collect();
        let mailboxes: Arc<[Mailbox<M>]> = (0..io_threads).map(|_| Mailbox::new()).collect();
        let shared = Arc::new(Shared::new(setup)?);
        let handle = Handle {
            shared: Arc::clone(&shared),
            mailboxes: Arc::clone(&mailboxes),
        };
        let make = Arc::new(make);
        let (ready, is_ready) = mpsc::channel();
        let mut threads = Vec::new();
        for (index, listeners) in listeners.drain(..).enumerate() {
            let (shared, mailboxes) = (Arc::clone(&shared), Arc::clone(&mailboxes));
            let config = Arc::clone(&config);
            let (make, ready) = (Arc::clone(&make), ready.clone());
            let run = move || -> io::Result<()> {
                let mut io = Io::new(shared, config, index)?;
                for listener in &listeners {
                    io.listen(listener)?;
                }
                let service = make(index, &mut io);
                let mut thread = IoThread::new(io, service, listeners, mailboxes);
                // The starter may have given up meanwhile.
                let _ = ready.send(());
                let ended = thread.run();
                thread.close_all();
                Ok(ended?)
            };
            threads.push(
                std::thread::Builder::new()
                    .name(format!("io-{index}"))
                    .spawn(run)?,
            );
        }
        drop(ready);
        if is_ready.iter().take(threads.len()).count() < threads.len() {
            handle.stop_now();
            return Err(first_error(threads)
                .unwrap_or_else(|| io::Error::other("an I/O thread did not start")));
        }
        Ok(Server {
            handle,
            threads,
            addresses,
        })
    }

    pub fn handle(&self) -> Handle<M> {
        self.handle.clone()
    }

    /// Of each listener at the start, in the order of `Config::listeners`, with the port that was picked.
    pub fn addresses(&self) -> &[LocalAddress] {
        &self.addresses
    }

    /// The first TCP listener's address.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.addresses.iter().find_map(|address| match address {
            LocalAddress::Tcp(address) => Some(*address),
            LocalAddress::Unix(_) => None,
        })
    }

    /// Waits until all I/O threads have ended, after `drain` or `stop_now`.
    pub fn join(self) -> io::Result<()> {
        let ended = first_error(self.threads);
        self.handle.shared.remove_files();
        ended.map_or(Ok(()), Err)
    }
}

fn first_error(threads: Vec<JoinHandle<io::Result<()>>>) -> Option<io::Error> {
    let mut first = None;
    for thread in threads {
        let ended = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("an I/O thread panicked")));
        first = first.or(ended.err());
    }
    first
}

/// Reaches a server from any thread. Costs a system call only if the I/O thread sleeps.
pub struct Handle<M> {
    pub(crate) shared: Arc<Shared>,
    mailboxes: Arc<[Mailbox<M>]>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        Handle {
            shared: Arc::clone(&self.shared),
            mailboxes: Arc::clone(&self.mailboxes),
        }
    }
}

impl<M> Handle<M> {
    /// Has [`Service::message`] called on I/O thread `io_index`. Lost if that thread has ended.
    pub fn post(&self, io_index: usize, message: M) {
        self.mailboxes[io_index].put(message);
        self.shared.knocks[io_index].notify();
    }

    /// Finishes what was begun, takes in what waits in the backlog, accepts nothing new, then ends all I/O threads.
    pub fn drain(&self) {
        self.shared.raise_stage(Stage::Draining);
    }

    /// Ends all I/O threads at once.
    pub fn stop_now(&self) {
        self.shared.raise_stage(Stage::Stopped);
    }

    /// Has every I/O thread take a turn, such as after a manual clock was moved.
    pub fn wake(&self) {
        self.shared.notify_all();
    }

    /// `drain` or `stop_now` was called.
    pub fn is_draining(&self) -> bool {
        self.shared.stage() != Stage::Running
    }

    pub fn io_threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Open connections of all I/O threads.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Bytes that wait in the server's memory for slow readers.
    pub fn spilled_bytes(&self) -> usize {
        self.shared.spill.used()
    }
}
