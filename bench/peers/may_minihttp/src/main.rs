//! `bench-may_minihttp ADDR THREADS`: answers every request with "Hello, world!".
//!
//! may's scheduler threads are the event loops; each connection is a coroutine.

use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, _: Request, response: &mut Response) -> std::io::Result<()> {
        response
            .header("Content-Type: text/plain")
            .body("Hello, world!");
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(addr), Some(threads)) = (args.next(), args.next()) else {
        return Err("usage: bench-may_minihttp ADDR THREADS".into());
    };
    may::config().set_workers(threads.parse::<usize>()?.max(1));
    let server = HttpServer(Hello).start(addr)?;
    server
        .join()
        .map_err(|_| "the server's coroutine panicked".into())
}
