//! Servers that behave as a test wants, and runs of the load tester against them.

#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use baton_load::LoadOptions;
use baton_load::plan::Plan;
use baton_load::report::{Report, Times};
use clap::Parser;

/// Far beyond what any run here takes: a run that needs longer hangs.
const HANG: Duration = Duration::from_secs(60);

pub const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: LoadOptions,
}

pub fn plan(arguments: &str) -> Result<Plan, String> {
    let words = ["load"].into_iter().chain(arguments.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    Plan::new(&line.options)
}

/// A run with these options; fails if it hangs, or if its figures do not add up.
pub fn try_load(arguments: &str) -> Result<Report, String> {
    let plan = plan(arguments)?;
    let started = Instant::now();
    let address = baton_load::run::reach(&plan)?;
    let outcome = baton_load::run::run(&plan, &address, &AtomicBool::new(false), &mut |_| {})?;
    assert!(
        started.elapsed() < HANG,
        "{arguments}: took {:?}",
        started.elapsed()
    );
    let report = Report::new(&plan, outcome);
    let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
    assert!(json["requests_per_second"].is_number());
    Ok(report)
}

pub fn load(arguments: &str) -> Report {
    try_load(arguments).expect(arguments)
}

pub fn latency(report: &Report) -> &Times {
    report.latency_us.as_ref().expect("good replies")
}

pub fn errors(report: &Report, kind: &str) -> u64 {
    report.errors.kinds[kind]
}

/// A TCP server; each connection has a thread that runs the same function.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Server {
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ended = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (its_end, its_connections) = (Arc::clone(&ended), Arc::clone(&connections));
        thread::spawn(move || {
            let serve = Arc::new(serve);
            for stream in listener.incoming().map_while(Result::ok) {
                if its_end.load(Ordering::Relaxed) {
                    return;
                }
                its_connections.fetch_add(1, Ordering::Relaxed);
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Server {
            address,
            connections,
            ended,
        }
    }

    /// Answers each request with what `reply` makes of its head, until that is None.
    pub fn answering(reply: impl Fn(&Asked) -> Option<Vec<u8>> + Send + Sync + 'static) -> Server {
        Server::start(move |stream| answer(stream, &reply))
    }

    /// Reads a request, writes these bytes, and closes.
    pub fn writing(bytes: impl Into<Vec<u8>>) -> Server {
        let bytes = bytes.into();
        Server::start(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            drain(stream);
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads on until the client closes, so that the kernel does not reset what was written.
pub fn drain(mut stream: TcpStream) {
    while stream.read(&mut [0; 65536]).is_ok_and(|count| count > 0) {}
}

/// A request as a server saw it.
pub struct Asked {
    pub method: String,
    pub path: String,
    pub head: String,
    pub body: Vec<u8>,
}

pub fn answer<S: Read + Write>(stream: S, reply: &impl Fn(&Asked) -> Option<Vec<u8>>) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read_request(&mut stream) {
        let Some(bytes) = reply(&asked) else {
            return;
        };
        if stream.get_mut().write_all(&bytes).is_err() {
            return;
        }
        if bytes
            .windows(17)
            .any(|window| window == b"Connection: close")
        {
            return;
        }
    }
}

pub fn read_request(stream: &mut impl BufRead) -> Option<Asked> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).ok()?;
    let mut words = head.split(' ');
    Some(Asked {
        method: words.next()?.into(),
        path: words.next()?.into(),
        head,
        body,
    })
}
