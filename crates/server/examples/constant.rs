//! Answers every request with the same 13 bytes, on the I/O thread itself: what the front costs without an application.
//!
//!     constant 127.0.0.1:8080 1

use std::net::SocketAddr;

use baton_server::{Config, ConnId, Io, Listen, Request, Server, Service};

struct Constant;

impl Service for Constant {
    type Message = ();

    fn request(&mut self, io: &mut Io, conn: ConnId, _request: Request<'_>) {
        let headers: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"text/plain")];
        io.respond(conn, 200, None, headers, b"Hello, world!");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments
        .next()
        .unwrap_or_else(|| String::from("127.0.0.1:8080"))
        .parse()?;
    let io_threads = arguments.next().map_or(Ok(1), |count| count.parse())?;
    let config = Config {
        listeners: vec![Listen::Tcp(address)],
        io_threads,
        // Comparisons are of equal bytes: others send no such header.
        server_name: String::new(),
        ..Config::default()
    };
    let server = Server::start(config, |_, _| Constant)?;
    println!("listening on {address} with {io_threads} I/O threads");
    Ok(server.join()?)
}
