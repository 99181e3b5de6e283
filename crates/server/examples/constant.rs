//! Answers every request with the same bytes, on the I/O thread itself: what the front costs without an application.
//!
//!     constant 127.0.0.1:8080 [THREADS] [body=BYTES] [write=ask-first] [clock=per-use]
//!
//! The last two switch a decision of the server off, to measure what it is worth.

use std::error::Error;
use std::net::SocketAddr;

use baton_server::{ClockMode, Config, ConnId, Io, ListenAt, Request, Server, Service, WriteMode};

const HELLO: &[u8] = b"Hello, world!";

#[derive(Clone)]
struct Constant(Vec<u8>);

impl Service for Constant {
    type Message = ();

    fn request(&mut self, io: &mut Io, conn: ConnId, _request: Request<'_>) {
        let headers: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"text/plain")];
        io.respond(conn, 200, None, headers, &self.0);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut address: SocketAddr = "127.0.0.1:8080".parse()?;
    let mut body = HELLO.to_vec();
    let mut config = Config {
        io_threads: 1,
        // Comparisons are of equal bytes: others send no such header.
        server_name: String::new(),
        ..Config::default()
    };
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("body", bytes)) => {
                body = HELLO.iter().copied().cycle().take(bytes.parse()?).collect()
            }
            Some(("write", "ask-first")) => config.write_mode = WriteMode::AskFirst,
            Some(("clock", "per-use")) => config.clock_mode = ClockMode::PerUse,
            Some(_) => return Err(format!("{argument}: not known").into()),
            None => match argument.parse() {
                Ok(threads) => config.io_threads = threads,
                Err(_) => address = argument.parse()?,
            },
        }
    }
    config.listeners = vec![ListenAt::Tcp(address).into()];
    let io_threads = config.io_threads;
    let service = Constant(body);
    let server = Server::start(config, move |_, _| service.clone())?;
    println!("listening on {address} with {io_threads} I/O threads");
    Ok(server.join()?)
}
