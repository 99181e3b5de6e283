//! Large bodies, both ways: memory stays where it is, threads are free as soon as they can be.

use std::path::Path;
use std::time::{Duration, Instant};

use baton_journeys::client::request;
use baton_journeys::options::{INI_ADMIN, THREADS};
use baton_journeys::{Baton, Conn, Multipart, Site, alone, pattern, proc, wait_until};

const GIB: usize = 1 << 30;
const GROWTH_KIB_MAX: u64 = 2048;

fn serve(options: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture("php");
    site.writable("data");
    let server = Baton::with(site.root(), options);
    (site, server)
}

/// A connection that has asked and reads nothing, into a small buffer.
fn ask_and_wait(server: &Baton, target: &str) -> Conn {
    let mut conn = server.connect();
    // Not smaller: below loopback's segment size the kernel itself sends by timers.
    rustix::net::sockopt::set_socket_recv_buffer_size(conn.stream(), 65_536).expect("SO_RCVBUF");
    conn.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .expect("sent");
    conn
}

#[test]
fn a_gibibyte_for_a_slow_reader_grows_nobody() {
    let _alone = alone();
    let (_site, server) = serve(&[THREADS, "1"]);
    // The script has run before: what it takes for itself is not counted.
    server.get("/body.php?length=4000000").expect(200);
    let watched: Vec<u32> = std::iter::once(server.pid())
        .chain(server.children().iter().map(|p| p.pid))
        .collect();
    let sizes = || -> Vec<u64> { watched.iter().map(|pid| proc::resident_kib(*pid)).collect() };
    let before = sizes();
    let mut most = before.clone();
    let mut look = || {
        for (most, now) in most.iter_mut().zip(sizes()) {
            *most = now.max(*most);
        }
    };

    let mut conn = server.connect();
    conn.send(format!(
        "GET /body.php?length={GIB} HTTP/1.1\r\nHost: a\r\n\r\n"
    ))
    .expect("sent");
    conn.head("GET").expect("a head");
    let period = pattern(251 * 253);
    let mut total = 0usize;
    let start = Instant::now();
    while let Some(piece) = conn.piece(1 << 16).expect("a piece") {
        // The first byte of each piece tells whether one was lost or doubled.
        assert_eq!(piece[0], period[total % period.len()], "at byte {total}");
        total += piece.len();
        if start.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(50));
            look();
        } else if total % (1 << 24) < piece.len() {
            look();
        }
    }
    assert_eq!(total, GIB);
    look();
    for ((pid, before), most) in watched.iter().zip(&before).zip(&most) {
        let grown = most - before;
        println!("process {pid}: {before} KiB, at most {most} KiB");
        assert!(grown <= GROWTH_KIB_MAX, "process {pid} grew by {grown} KiB");
    }
}

#[test]
fn a_reply_of_256_kib_frees_its_thread() {
    let _alone = alone();
    let (_site, server) = serve(&[THREADS, "1"]);
    for query in [
        "length=262144",
        "length=262144&known",
        "length=262144&flush&part=4096",
    ] {
        let mut stalled: Vec<Conn> = (0..8)
            .map(|_| ask_and_wait(&server, &format!("/body.php?{query}")))
            .collect();
        let start = Instant::now();
        server.get("/pid.php").expect(200);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{query}: others waited {:?}",
            start.elapsed()
        );
        // Nothing was lost: each gets all of it when it reads at last.
        for conn in &mut stalled {
            assert!(
                conn.reply().expect("a reply").expect(200).body == pattern(262_144),
                "{query}"
            );
        }
    }
}

#[test]
fn a_slow_upload_holds_no_thread() {
    let _alone = alone();
    let (_site, server) = serve(&[THREADS, "1"]);
    let body = pattern(6_000_000);
    let bytes = request(
        "POST",
        "/index.php",
        &[("Content-Type", "application/octet-stream")],
        &body,
    );
    let mut uploads: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    let half = bytes.len() / 2;
    for conn in &mut uploads {
        conn.send(&bytes[..half]).expect("sent");
    }
    let start = Instant::now();
    for _ in 0..20 {
        server.get("/pid.php").expect(200);
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "others waited {:?}",
        start.elapsed()
    );
    for conn in &mut uploads {
        conn.send(&bytes[half..]).expect("sent");
        let reply = conn.reply_to("POST").expect("a reply").expect(200);
        assert_eq!(reply.line("body_length").as_deref(), Some("6000000"));
        assert_eq!(
            reply.line("body_md5").as_deref(),
            Some("a8dc09f6f893c2de6154bc2d3a8dd871")
        );
    }
}

#[test]
fn uploads_of_all_sizes_leave_no_files() {
    let _alone = alone();
    let (site, server) = serve(&[
        THREADS,
        "2",
        INI_ADMIN,
        "upload_max_filesize=32M",
        INI_ADMIN,
        "post_max_size=40M",
    ]);
    let content_type = Multipart::content_type();
    server.get("/pid.php").expect(200);
    let descriptors = proc::descriptors(server.pid());
    let mut conn = server.connect();
    for size in [100 << 10, 1 << 20, 8 << 20, 20 << 20] {
        let content = pattern(size);
        for target in ["/upload.php", "/upload.php?move=kept"] {
            let body = Multipart::new().field("a", "1").file(
                "f",
                "data.bin",
                "application/octet-stream",
                &content,
            );
            let bytes = request(
                "POST",
                target,
                &[("Content-Type", &content_type)],
                &body.finish(),
            );
            let reply = conn.ask(&bytes).expect("a reply").expect(200);
            let line = reply.line("file").expect("the file");
            assert!(
                line.starts_with(&format!("f data.bin {size} 0 ")) && line.ends_with(" true"),
                "{line}"
            );
            let temporary = reply.line("tmp").expect("its place");
            wait_until("the temporary file is gone", Duration::from_secs(2), || {
                !Path::new(&temporary).exists()
            });
        }
        assert!(
            std::fs::read(site.path("data/kept")).expect("the moved file") == content,
            "{size} bytes"
        );
    }
    drop(conn);
    wait_until("spooled bodies are closed", Duration::from_secs(3), || {
        proc::descriptors(server.pid()) <= descriptors + 1
    });
    assert!(
        !proc::descriptor_targets(server.pid())
            .iter()
            .any(|t| t.contains("(deleted)") && t.contains("/tmp"))
    );
}

#[test]
fn many_large_replies_at_once_stay_within_the_budget() {
    let _alone = alone();
    let (_site, server) = serve(&[THREADS, "4"]);
    server.get("/body.php?length=300000").expect(200);
    let before = proc::anonymous_kib(server.pid());
    // 100 stalled clients with 200 KiB each: 20 MB, which the front holds so that its threads are free.
    let mut stalled: Vec<Conn> = (0..100)
        .map(|_| ask_and_wait(&server, "/body.php?length=204800"))
        .collect();
    let start = Instant::now();
    server.get("/pid.php").expect(200);
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "others waited {:?}",
        start.elapsed()
    );
    let held = proc::anonymous_kib(server.pid()).saturating_sub(before);
    println!("held for 100 stalled clients: {held} KiB");
    assert!(held < 70 << 10, "the front holds {held} KiB");
    for conn in &mut stalled {
        assert!(conn.reply().expect("a reply").expect(200).body == pattern(204_800));
    }
}
