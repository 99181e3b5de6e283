//! The admin API: what the server does, and a few ways to steer it, over HTTP on a socket of its own.
//!
//! A second server of one I/O thread, so that our own parser reads what comes in. [`place`] is where its socket lies,
//! [`token`] who may ask over TCP, [`call`] which questions there are, [`service`] takes them and [`reply`] is how they
//! are answered. What can be slow is answered by [`desk`], on a thread of its own: [`look`] asks the supervisors and the
//! I/O threads, [`usage`] asks /proc; [`threads`], [`apps`], [`status`] and [`metrics`] make text of it. [`scaling`] is
//! about the number of threads.

mod apps;
mod call;
mod desk;
mod look;
mod metrics;
pub mod place;
mod reply;
pub mod scaling;
mod service;
mod status;
mod threads;
pub mod token;
mod usage;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use baton_server::http1::Limits;
use baton_server::{Config, Handle, ListenAt, LocalAddress, Server};

use crate::app::Message;
use crate::counters::IoCounters;
use crate::live::Live;
use crate::options::ServerOptions;
use desk::Desk;
use place::At;
use service::AdminService;
use token::Token;

/// Enough for people and their monitoring.
const CONNECTIONS_MAX: usize = 32;

/// Reads the configuration anew: what has changed in words, or all that is wrong with it.
pub type Reload = Arc<dyn Fn() -> Result<String, Vec<String>> + Send + Sync>;

/// What the admin API tells about, and what it steers.
pub struct Inside {
    pub live: Arc<Live>,
    pub io_threads: Handle<Message>,
    pub counters: Arc<[IoCounters]>,
    pub started: Instant,
    /// Called on a thread that may block.
    pub reload: Reload,
}

/// The running admin server.
pub struct Admin(Server<service::Answer>);

impl Admin {
    /// `None`: it is off, or its default place cannot be had, which is no reason not to serve.
    pub fn start(options: &ServerOptions, inside: Inside) -> Result<Option<Self>, String> {
        let at = match &options.admin {
            Some(place::Asked::Off) => return Ok(None),
            Some(place::Asked::At(at)) => Some(at.clone()),
            None => None,
        };
        let is_asked = at.is_some();
        let started = at
            .map_or_else(place::default_socket, Ok)
            .and_then(|at| Self::start_at(&at, options, inside));
        match started {
            Ok(admin) => Ok(Some(admin)),
            Err(reason) if is_asked => Err(format!("--admin: {reason}")),
            Err(reason) => {
                tracing::warn!("no admin API: {reason}; --admin gives it another place");
                Ok(None)
            }
        }
    }

    fn start_at(at: &At, options: &ServerOptions, inside: Inside) -> Result<Self, String> {
        let token = options.admin_token_file.as_deref().map(Token::read);
        let token = token.transpose()?.map(Arc::new);
        let listen = match at {
            At::Tcp(_) if token.is_none() => {
                return Err(
                    "on TCP it needs a token that clients have to show; give its file with --admin-token-file"
                        .into(),
                );
            }
            At::Tcp(address) => ListenAt::Tcp(*address),
            At::Unix(path) => ListenAt::Unix {
                path: path.clone(),
                mode: Some(0o600),
            },
        };
        let inside = Arc::new(inside);
        let (questions, asked) = sync_channel(service::WAITING_MAX);
        let make = {
            let inside = inside.clone();
            move |_: usize, _: &mut baton_server::Io| {
                AdminService::new(inside.clone(), token.clone(), questions.clone())
            }
        };
        let server = Server::start(config_of(listen), make).map_err(|error| error.to_string())?;
        Desk::start(inside, asked, server.handle())?;
        Ok(Self(server))
    }

    /// For people.
    pub fn address(&self) -> String {
        match self.0.addresses().first() {
            Some(LocalAddress::Tcp(address)) => address.to_string(),
            Some(LocalAddress::Unix(path)) => format!("unix:{}", path.display()),
            None => String::new(),
        }
    }

    /// It answers until this is called, also while the server drains.
    pub fn stop(self) {
        self.0.handle().stop_now();
        if let Err(error) = self.0.join() {
            tracing::warn!("the admin API ended badly: {error}");
        }
    }
}

fn config_of(listen: ListenAt) -> Config {
    Config {
        listeners: vec![listen.into()],
        io_threads: 1,
        limits: Limits {
            target_bytes_max: 2048,
            head_bytes_max: 8192,
            headers_max: 64,
            // Nothing here reads a body.
            body_bytes_max: 4096,
            ..Limits::default()
        },
        connections_max: CONNECTIONS_MAX,
        reply_spill_bytes_max: 16 * 1024 * 1024,
        ..Config::default()
    }
}

/// How long an answer is waited for, of supervisors or I/O threads that are busy.
const ANSWER_BOUND: Duration = Duration::from_secs(1);
