//! What the server writes down.

use std::fs;
use std::time::Duration;

use baton_journeys::options::{ACCESS_LOG, THREADS};
use baton_journeys::{Baton, Site, wait_until};
use rustix::process::Signal;

#[test]
fn the_access_log_has_each_request_once_and_can_be_rotated() {
    let site = Site::of_fixture("php");
    let log = site.writable("log").join("access.log");
    let path = log.to_str().expect("a plain path");
    let server = Baton::with(site.root(), &[ACCESS_LOG, path]);
    for i in 0..20 {
        server.get(&format!("/pid.php?tag=first{i}")).expect(200);
    }
    server.get("/status.php?code=418").expect(418);
    server.send("GET / HTTP/1.1\r\n\r\n").expect(400);
    let text = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the requests are logged", Duration::from_secs(5), || {
        text().lines().count() >= 21
    });
    for i in 0..20 {
        let part = format!("/pid.php?tag=first{i}");
        let lines = text()
            .lines()
            .filter(|l| l.contains(&format!("{part} ")) || l.contains(&format!("{part}\"")))
            .count();
        assert_eq!(lines, 1, "{part} in {}", text());
    }
    assert!(text().lines().any(|l| l.contains("/status.php?code=418")
        && l.contains("418")
        && l.contains("127.0.0.1")));

    // As logrotate does it.
    let old = log.with_extension("log.1");
    fs::rename(&log, &old).expect("renamed");
    server.signal(Signal::USR1);
    // Nobody hears when the signal has arrived: the log is opened anew at once or with its next line.
    std::thread::sleep(Duration::from_millis(300));
    server.get("/pid.php?tag=second").expect(200);
    wait_until("it is written to", Duration::from_secs(5), || {
        text().contains("tag=second")
    });
    assert!(
        !text().contains("tag=first0")
            && fs::read_to_string(&old)
                .expect("the old log")
                .contains("tag=first0")
    );
    server.stop();
}

#[test]
fn a_request_cannot_forge_a_line() {
    let site = Site::of_fixture("php");
    let log = site.writable("log").join("access.log");
    let server = Baton::with(
        site.root(),
        &[ACCESS_LOG, log.to_str().expect("a plain path")],
    );
    let forged = "\" 200 1\\n127.0.0.1 - - [x] \"GET /forged";
    server.send(format!("GET /pid.php?a=%22 HTTP/1.1\r\nHost: a\r\nUser-Agent: {forged}\r\nReferer: a\x1b[31m\r\nConnection: close\r\n\r\n"));
    server.send(format!("GET /pid.php?a=%22 HTTP/1.1\r\nHost: a\r\nUser-Agent: {forged}\r\nConnection: close\r\n\r\n")).expect(200);
    let text = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("it is logged", Duration::from_secs(5), || {
        !text().is_empty()
    });
    assert!(
        !text().lines().any(|l| l.starts_with("127.0.0.1 - - [x]")) && !text().contains('\x1b'),
        "{}",
        text()
    );
}

#[test]
fn the_error_log_is_json_when_nobody_watches() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[THREADS, "1"]);
    server
        .get("/fail.php?how=log&tag=\"quoted\"%0Asecond%20line")
        .expect(200);
    server.wait_for_log("journey message");
    let log = server.stop();
    for line in log.lines().filter(|l| !l.trim().is_empty()) {
        assert!(
            line.starts_with('{') && line.ends_with('}'),
            "no JSON: {line}"
        );
    }
    let line = log
        .lines()
        .find(|l| l.contains("journey message"))
        .expect("the script's message");
    assert!(
        line.contains("\"pid\"") && line.contains("\"app\"") && line.contains("request"),
        "{line}"
    );
}
