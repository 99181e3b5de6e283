//! Clients that take their time cost nobody else's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_journeys::options::WORKER;
use baton_journeys::{Baton, Site, alone, raise_descriptor_limit};

const SLOW: usize = 500;
const STRETCH: Duration = Duration::from_secs(4);

fn slow_connection(server: &Baton) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).expect("connected");
    // What the client does not read must not vanish in a large buffer of its own.
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("SO_RCVBUF");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream
}

/// How long ordinary requests take meanwhile, sorted.
fn others(server: &Baton, stretch: Duration) -> Vec<Duration> {
    let start = Instant::now();
    let mut took = Vec::new();
    let mut conn = server.connect();
    while start.elapsed() < stretch {
        let asked = Instant::now();
        conn.ask("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        took.push(asked.elapsed());
        server.get("/style.css").expect(200);
        std::thread::sleep(Duration::from_millis(20));
    }
    took.sort();
    took
}

/// The bounds are wide for a machine with two busy cores; waiting for one slow client would take a second.
#[track_caller]
fn not_delayed(took: &[Duration]) {
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{} requests: median {:?}, 99% {:?}, longest {:?}",
        took.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    assert!(
        took.len() > 60,
        "only {} requests in {STRETCH:?}",
        took.len()
    );
    assert!(
        at(0.5) < Duration::from_millis(10) && at(0.99) < Duration::from_millis(250),
        "others were delayed"
    );
}

/// Ends the slow clients with the scope, also by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn serve() -> (Site, Baton) {
    serve_fixture("php", &[])
}

fn serve_worker() -> (Site, Baton) {
    serve_fixture("worker", &[WORKER, "worker.php"])
}

fn serve_fixture(fixture: &str, options: &[&str]) -> (Site, Baton) {
    raise_descriptor_limit();
    let site = Site::of_fixture(fixture);
    site.write("style.css", "p {}");
    site.write("large.bin", vec![7u8; 4 << 20]);
    let server = Baton::with(site.root(), options);
    (site, server)
}

#[test]
fn five_hundred_slow_senders() {
    slow_senders(serve());
}

#[test]
fn five_hundred_slow_senders_to_workers() {
    slow_senders(serve_worker());
}

#[test]
fn five_hundred_slow_readers() {
    slow_readers(serve());
}

#[test]
fn five_hundred_slow_readers_of_workers() {
    slow_readers(serve_worker());
}

fn slow_senders((_site, server): (Site, Baton)) {
    let _alone = alone();
    let mut slow: Vec<TcpStream> = (0..SLOW).map(|_| slow_connection(&server)).collect();
    // Half of them are slow in the head, half in the body.
    for (i, stream) in slow.iter_mut().enumerate() {
        let begin: &[u8] = if i % 2 == 0 {
            b"GET /pid.php HTTP/1.1\r\nHost: a\r\nX-Slow: "
        } else {
            b"POST /pid.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
        };
        stream.write_all(begin).expect("sent");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for stream in &mut slow {
                    // A connection that has timed out is no concern of this journey.
                    let _ = stream.write(b"x");
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        let took = others(&server, STRETCH);
        not_delayed(&took);
    });
}

fn slow_readers((_site, server): (Site, Baton)) {
    let _alone = alone();
    // Replies of scripts small enough to be kept for the client, and files larger than any buffer.
    let mut slow: Vec<TcpStream> = (0..SLOW)
        .map(|i| {
            let mut stream = slow_connection(&server);
            let target = if i % 2 == 0 {
                "/body.php?length=100000"
            } else {
                "/large.bin"
            };
            stream
                .write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
                .expect("sent");
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .expect("a timeout");
            stream
        })
        .collect();
    let mut first = [0u8; 1];
    for stream in &mut slow {
        stream.read_exact(&mut first).expect("the reply begins");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetAtEnd(&stop);
        scope.spawn(|| {
            let mut byte = [0u8; 1];
            while !stop.load(Ordering::Relaxed) {
                for stream in &mut slow {
                    stream.read_exact(&mut byte).expect("another byte");
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        let took = others(&server, STRETCH);
        not_delayed(&took);
    });
    // One of them reads to the end after all.
    let mut patient = slow.swap_remove(0);
    drop(slow);
    patient
        .shutdown(std::net::Shutdown::Write)
        .expect("no more requests");
    let mut rest = Vec::new();
    // Ends with the connection: the FIN says that there is no next request.
    patient.read_to_end(&mut rest).expect("the rest");
    assert!(rest.len() > 99_000, "{} bytes", rest.len());
}
