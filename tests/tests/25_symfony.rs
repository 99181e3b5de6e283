//! Symfony from Debian's packages, whose kernel knows nothing of Baton: as a worker, and booted for each request.

use baton_journeys::client::request;
use baton_journeys::options::{THREADS, WORKER};
use baton_journeys::{Baton, Browser, Multipart, Reply, Site, pattern};
use serde_json::{Value, json};

const USERS: usize = 20;
const VISITS: usize = 5;
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

fn serve(options: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture("symfony");
    site.writable("var");
    let server = Baton::with(site.root(), options);
    (site, server)
}

#[track_caller]
fn seen(reply: Reply) -> Value {
    serde_json::from_str(&reply.expect(200).text()).expect("JSON")
}

/// Each has a session, and nobody gets another's.
fn users_come_together(server: &Baton) {
    std::thread::scope(|scope| {
        for user in 0..USERS {
            scope.spawn(move || {
                let mut browser = Browser::new(server.addr());
                for visit in 1..=VISITS {
                    let page = browser.get(&format!("/visit?who=user-{user}")).expect(200);
                    assert_eq!(page.text(), format!("user-{user} {visit}"));
                }
            });
        }
    });
}

fn pages_are_answered(server: &Baton) {
    let photo = pattern(100_000);
    let form = Multipart::new().file("file", "photo.bin", "application/octet-stream", &photo);
    let mut browser = Browser::new(server.addr());
    let uploaded = browser.post_multipart("/upload", form).expect(200).text();
    assert!(uploaded.starts_with("100000 "), "{uploaded}");
    assert_eq!(server.get("/stream").expect(200).text(), "one two three");
    server.get("/fail").expect(500);
    server.get("/nowhere").expect(404);
    server.wait_for_log("this page fails");
    server.wait_for_log("terminated /stream");
}

#[test]
fn a_kernel_that_boots_once() {
    let (_site, server) = serve(&[WORKER, "public/index.php", THREADS, "1"]);
    let marked = request("POST", "/seen?a=1", &[("X-Mark", "m"), FORM], b"b=2");
    let first = seen(server.send(marked));
    let expected = json!({"handled": 1, "method": "POST", "query": {"a": "1"}, "form": {"b": "2"}, "mark": "m",
        "address": "127.0.0.1"});
    assert_eq!(first, expected);
    let second = seen(server.get("/seen"));
    let expected = json!({"handled": 2, "method": "GET", "query": [], "form": [], "mark": null, "address": "127.0.0.1"});
    assert_eq!(second, expected, "nothing is left of the request before");
    pages_are_answered(&server);
    assert_eq!(
        seen(server.get("/seen"))["handled"],
        3,
        "it is the same kernel"
    );
    server.stop();
}

#[test]
fn users_of_several_kernels() {
    let (_site, server) = serve(&[WORKER, "public/index.php", THREADS, "4"]);
    users_come_together(&server);
    server.stop();
}

#[test]
fn a_kernel_for_each_request() {
    let (_site, server) = serve(&[THREADS, "4"]);
    assert_eq!(seen(server.get("/seen"))["handled"], 1);
    assert_eq!(seen(server.get("/seen"))["handled"], 1);
    pages_are_answered(&server);
    users_come_together(&server);
    server.stop();
}
