//! SIGTERM ends the server, and loses nothing that it had accepted.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use baton_journeys::options::{THREADS, WORKER};
use baton_journeys::{Account, Baton, Conn, Site, alone, proc, wait_until};
use rustix::process::Signal;

fn serve(threads: &str) -> (Site, Baton) {
    serve_fixture("php", &[THREADS, threads])
}

fn serve_worker(threads: &str) -> (Site, Baton) {
    serve_fixture("worker", &[THREADS, threads, WORKER, "worker.php"])
}

fn serve_fixture(fixture: &str, options: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture(fixture);
    let server = Baton::with(site.root(), options);
    server.get("/pid.php").expect(200);
    (site, server)
}

fn ask(server: &Baton, query: &str) -> Conn {
    let mut conn = server.connect();
    conn.send(format!("GET /pid.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .expect("sent");
    conn
}

#[track_caller]
fn ends_well(server: &mut Baton, bound: Duration) {
    let status = server
        .wait(bound)
        .unwrap_or_else(|| panic!("still running after {bound:?}: {}", server.log()));
    assert!(status.success(), "{status}: {}", server.log());
}

#[test]
fn under_load_nothing_accepted_is_lost() {
    nothing_accepted_is_lost(serve);
}

#[test]
fn under_load_nothing_that_workers_were_to_do_is_lost() {
    nothing_accepted_is_lost(serve_worker);
}

fn nothing_accepted_is_lost(serve: impl Fn(&str) -> (Site, Baton)) {
    let _alone = alone();
    for round in 0..4 {
        let (_site, mut server) = serve("4");
        let account = Account::new();
        std::thread::scope(|scope| {
            let _stop = account.stop_at_end();
            for number in 0..12 {
                let (account, addr) = (&account, server.addr());
                scope.spawn(move || {
                    account.client(
                        addr,
                        number,
                        if number % 2 == 0 { "busy=1" } else { "ms=20" },
                    )
                });
            }
            std::thread::sleep(Duration::from_millis(400 + 70 * round));
            account.closing_now();
            server.signal(if round % 2 == 0 {
                Signal::TERM
            } else {
                Signal::INT
            });
            ends_well(&mut server, Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(100));
            account.stop();
        });
        account.assert_nothing_wrong();
        assert_eq!(account.failures(), 0, "round {round}");
    }
}

#[test]
fn of_ten_in_flight_ten_are_answered() {
    ten_are_answered(serve("2"));
}

#[test]
fn of_ten_that_workers_have_ten_are_answered() {
    ten_are_answered(serve_worker("2"));
}

/// Two threads: most of the ten still wait in the queue when the signal comes.
fn ten_are_answered((_site, mut server): (Site, Baton)) {
    let _alone = alone();
    let mut asked: Vec<Conn> = (0..10)
        .map(|i| ask(&server, &format!("ms=300&tag=t{i}")))
        .collect();
    std::thread::sleep(Duration::from_millis(150));
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        TcpStream::connect(server.addr()).is_err(),
        "new connections are refused"
    );
    for (i, conn) in asked.iter_mut().enumerate() {
        let reply = conn
            .reply()
            .unwrap_or_else(|f| panic!("request {i}: {f}"))
            .expect(200);
        assert!(reply.text().ends_with(&format!(" t{i}")));
        assert!(reply.head.says_close());
        conn.expect_close();
    }
    ends_well(&mut server, Duration::from_secs(3));
}

#[test]
fn what_waits_in_the_backlog_is_served() {
    let _alone = alone();
    let (_site, mut server) = serve("4");
    // A front that does not run: the kernel takes the connections, and the signal is there before it goes on.
    server.signal(Signal::STOP);
    wait_until("the front is stopped", Duration::from_secs(2), || {
        proc::process(server.pid()).is_some_and(|p| p.state == 'T')
    });
    let mut asked: Vec<Conn> = (0..30)
        .map(|i| ask(&server, &format!("tag=t{i}")))
        .collect();
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    for (i, conn) in asked.iter_mut().enumerate() {
        let reply = conn
            .reply()
            .unwrap_or_else(|f| panic!("request {i}: {f}"))
            .expect(200);
        assert!(reply.text().ends_with(&format!(" t{i}")));
    }
    drop(asked);
    ends_well(&mut server, Duration::from_secs(4));
}

#[test]
fn idle_connections_end_at_once() {
    let _alone = alone();
    let (_site, mut server) = serve("2");
    let mut idle: Vec<Conn> = (0..50)
        .map(|_| {
            let mut conn = server.connect();
            conn.ask("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("a reply")
                .expect(200);
            conn
        })
        .collect();
    let start = Instant::now();
    server.signal(Signal::TERM);
    idle.iter_mut().for_each(Conn::expect_close);
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
    ends_well(&mut server, Duration::from_secs(2));
}

#[test]
fn a_reply_in_progress_is_finished() {
    let _alone = alone();
    let (_site, mut server) = serve("2");
    let mut stream = server.connect();
    stream
        .send("GET /stream.php?gap=400 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    stream.head("GET").expect("a head");
    let mut slow = server.connect();
    // More than all buffers between the two hold.
    slow.send("GET /body.php?length=30000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    slow.head("GET").expect("a head");
    // An upload that was begun is read to its end and answered.
    let mut upload = server.connect();
    upload
        .send("POST /index.php HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
        .expect("sent");
    std::thread::sleep(Duration::from_millis(100));
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    upload.send("world").expect("sent");
    assert_eq!(
        upload
            .reply_to("POST")
            .expect("a reply")
            .expect(200)
            .line("body")
            .as_deref(),
        Some("helloworld")
    );
    assert_eq!(
        stream.body().expect("the whole stream"),
        b"one\ntwo\nthree\n"
    );
    let mut total = 0;
    while let Some(piece) = slow.piece(100_000).expect("a piece") {
        total += piece.len();
    }
    assert_eq!(total, 30_000_000);
    ends_well(&mut server, Duration::from_secs(3));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let _alone = alone();
    for (first, second) in [
        (Signal::TERM, Signal::TERM),
        (Signal::INT, Signal::INT),
        (Signal::TERM, Signal::INT),
    ] {
        let (_site, mut server) = serve("2");
        let children = server.children();
        let _running = ask(&server, "ms=15000");
        std::thread::sleep(Duration::from_millis(150));
        server.signal(first);
        assert!(
            server.wait(Duration::from_millis(400)).is_none(),
            "it did not wait for the running request"
        );
        server.signal(second);
        assert!(
            server.wait(Duration::from_secs(2)).is_some(),
            "still running after a second signal"
        );
        wait_until("its processes end with it", Duration::from_secs(2), || {
            children.iter().all(|p| !proc::is_alive(p.pid))
        });
    }
}
