//! `bench-handoff ADDR direct|queue|semaphore|none THREADS IO_THREADS WORK_NS`: how a request gets to an application thread.
//!
//! Each thread is a process of its own, as PHP's are. Front, shared memory, wake-ups and replies are Baton's; what differs is who
//! chooses the thread:
//!
//! - [`direct`]: the dispatcher, which hands each request to an idle thread, as Baton does;
//! - [`pulled`]: whichever thread comes first. What it pulls from is one blocking queue (a mutex and a condition that
//!   all processes share), or a ring with FIFO tickets behind a semaphore: see [`queue`];
//! - [`none`]: nobody. The I/O threads answer by themselves, and what latency is left is not the handoff's.
//!
//! What applications do is made up: [`app::work`] computes for so many nanoseconds.

mod app;
mod direct;
mod none;
mod pulled;
mod queue;
mod reply;

use std::error::Error;
use std::net::SocketAddr;

use baton_server::{Config, ListenAt, Server};

/// What is asked for on the command line.
pub struct Options {
    pub threads: u32,
    pub io_threads: usize,
    pub work_ns: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // How the front starts its processes.
        [app::ROLE] => Ok(app::run()?),
        [address, handoff, threads, io_threads, work_ns] => {
            let options = Options {
                threads: threads.parse()?,
                io_threads: io_threads.parse()?,
                work_ns: work_ns.parse()?,
            };
            serve(address.parse()?, handoff, &options)
        }
        _ => Err(
            "usage: bench-handoff ADDR direct|queue|semaphore|none THREADS IO_THREADS WORK_NS"
                .into(),
        ),
    }
}

fn serve(address: SocketAddr, handoff: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let config = Config {
        listeners: vec![ListenAt::Tcp(address).into()],
        io_threads: options.io_threads,
        ..Config::default()
    };
    match handoff {
        "direct" => {
            let front = direct::Front::start(options)?;
            let made = front.clone();
            let server = Server::start(config, move |index, _| {
                direct::Gateway::new(made.clone(), index)
            })?;
            front.set_handle(server.handle());
            Ok(server.join()?)
        }
        "queue" | "semaphore" => {
            let front = pulled::Front::start(options, handoff == "semaphore")?;
            let server = Server::start(config, move |index, _| {
                pulled::Gateway::new(front.clone(), index)
            })?;
            Ok(server.join()?)
        }
        "none" => Ok(Server::start(config, |_, _| none::Gateway)?.join()?),
        other => Err(format!("{other}: direct, queue, semaphore or none was expected").into()),
    }
}
