//! `bench-hyper ADDR THREADS`: answers every request with "Hello, world!".
//!
//! The fastest arrangement of hyper that we know, and the same as Baton's: each thread has an event
//! loop of its own and a listening socket of its own (SO_REUSEPORT), and shares nothing with the others.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

const BACKLOG: u32 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(addr), Some(threads)) = (args.next(), args.next()) else {
        return Err("usage: bench-hyper ADDR THREADS".into());
    };
    let addr: SocketAddr = addr.parse()?;
    let threads: usize = threads.parse()?;
    let loops: Vec<_> = (0..threads.max(1))
        .map(|_| std::thread::spawn(move || event_loop(addr)))
        .collect();
    for handle in loops {
        handle.join().map_err(|_| "an event loop panicked")??;
    }
    Ok(())
}

fn event_loop(addr: SocketAddr) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                // A client that leaves in the middle of a request is no error of ours.
                let _ = http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            });
        }
    })
}

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, world!")));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
