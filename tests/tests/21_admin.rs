//! The admin API, over its own socket and from the shell: what it tells is so, what it is told is done, and whoever may not
//! ask, or asks nonsense, gets a reason and harms nobody.
//!
//! `BATON_RESTART_REQUESTS` sets how many requests go through the restarts under load, 100,000 by default.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_journeys::options::{
    ADMIN, ADMIN_TOKEN_FILE, MAX_THREADS, NUM_THREADS, QUEUE_WAIT_MS_MAX, THREADS, THREADS_MAX,
    WORKER,
};
use baton_journeys::{
    Account, Admin, Answer, Baton, Cases, Site, alone, baton, is_root, wait_until,
};
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const RUN: Duration = Duration::from_secs(60);
const PLAIN: &str = "<?php
    if (isset($_GET['die'])) { posix_kill(getmypid(), 11); sleep(5); }
    if (isset($_GET['only'])) { // so many at once are served
        touch($mine = __DIR__ . '/signs/connection-' . getmypid());
        usleep(300000);
        count(glob(__DIR__ . '/signs/connection-*')) > $_GET['only'] and http_response_code(500);
        usleep(300000);
        unlink($mine);
    }
    if (isset($_GET['wait'])) {
        touch(__DIR__ . '/signs/runs');
        while (!file_exists(__DIR__ . '/signs/go')) { usleep(5000); clearstatcache(); }
    }
    echo 'hello';";

struct Served {
    site: Site,
    server: Baton,
    admin: Admin,
}

/// With its socket beside the site's scripts.
fn serve(options: &[&str]) -> Served {
    let site = Site::with_index(PLAIN);
    site.writable("signs");
    serve_site(site, options)
}

fn serve_site(site: Site, options: &[&str]) -> Served {
    let socket = site.path("admin.sock");
    let place = format!("unix:{}", socket.display());
    let mut all = vec![ADMIN, &place];
    all.extend(options);
    let server = Baton::with(site.root(), &all);
    let admin = Admin::at(&socket);
    Served {
        site,
        server,
        admin,
    }
}

impl Served {
    fn threads(&self) -> Vec<Value> {
        let threads = self.admin.get("/threads");
        threads["threads"].as_array().expect("a list").clone()
    }

    fn pool(&self) -> Value {
        self.admin.get("/apps")["apps"][0]["pools"][0].clone()
    }

    #[track_caller]
    fn wait_for_threads(&self, count: usize) {
        wait_until("that many threads are idle", SOON, || {
            let threads = self.threads();
            threads.len() == count && threads.iter().all(|thread| thread["state"] == "idle")
        });
    }

    /// The value of a series of `/metrics`.
    #[track_caller]
    fn metric(&self, series: &str) -> f64 {
        let text = self.admin.ask("GET", "/metrics").body;
        let value = text.lines().find_map(|line| {
            let rest = line.strip_prefix(series)?;
            rest.strip_prefix(' ')?.parse().ok()
        });
        value.unwrap_or_else(|| panic!("no series {series} in:\n{text}"))
    }

    /// A request that runs until the value is dropped.
    #[track_caller]
    fn start_slow(&self, target: &str) -> Slow<'_> {
        let mut client = self.server.connect();
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .expect("sent");
        let runs = self.site.path("signs/runs");
        wait_until("a slow request runs", SOON, || runs.exists());
        Slow {
            served: self,
            client: Some(client),
        }
    }

    /// `baton COMMAND --admin SOCKET`.
    fn shell(&self, arguments: &[&str]) -> baton::Ended {
        let place = format!("unix:{}", self.admin.socket().display());
        let mut all = arguments.to_vec();
        all.extend([ADMIN, &place]);
        baton::run(&all, RUN)
    }
}

struct Slow<'s> {
    served: &'s Served,
    client: Option<baton_journeys::Conn>,
}

impl Slow<'_> {
    #[track_caller]
    fn end(mut self) {
        self.served.site.write("signs/go", "");
        let mut client = self.client.take().expect("it runs");
        assert_eq!(client.reply().expect("a reply").text(), "hello");
    }
}

#[test]
fn each_thread_is_told_with_what_it_does() {
    let served = serve(&[THREADS, "2"]);
    served.wait_for_threads(2);
    for _ in 0..10 {
        served.server.get("/").expect(200);
    }
    let slow = served.start_slow("/some/path?wait=1&b=%20");
    let threads = served.threads();
    let (busy, idle): (Vec<_>, Vec<_>) = threads.iter().partition(|t| t["state"] == "busy");
    assert_eq!((busy.len(), idle.len()), (1, 1), "{threads:#?}");
    let (busy, idle) = (busy[0], idle[0]);
    assert_eq!(busy["request"]["method"], "GET");
    assert_eq!(busy["request"]["uri"], "/some/path?wait=1&b=%20");
    assert_eq!(busy["request"]["client_gone"], false);
    assert!(idle["request"].is_null());
    let pids: Vec<u32> = served
        .server
        .app_processes()
        .iter()
        .map(|p| p.pid)
        .collect();
    let mut requests = 0;
    for thread in [busy, idle] {
        let pid = thread["pid"].as_u64().expect("a pid") as u32;
        assert!(pids.contains(&pid), "{pid} is none of {pids:?}");
        assert_eq!(thread["kind"], "regular");
        assert!(thread["worker"].is_null());
        assert!(thread["state_s"].as_f64().is_some_and(|s| s < 60.0));
        assert!(
            thread["memory"]["bytes"]
                .as_u64()
                .is_some_and(|n| n > 100_000)
        );
        assert!(
            thread["cpu_share"]
                .as_f64()
                .is_some_and(|share| (0.0..=2.0).contains(&share))
        );
        requests += thread["requests"].as_u64().expect("a number");
        let id = thread["id"].as_str().expect("an id");
        assert_eq!(
            served.admin.get(&format!("/threads/{id}"))["id"],
            thread["id"]
        );
    }
    assert_eq!(requests, 11);
    let app = served.admin.get("/apps")["apps"][0]["name"].clone();
    let of_app = format!("/threads?app={}", app.as_str().expect("a name"));
    assert_eq!(
        served.admin.get(&of_app)["threads"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    slow.end();
    // A long URI is cut, in the middle of nothing else.
    let long = format!("/{}?wait=1", "x".repeat(3000));
    fs::remove_file(served.site.path("signs/runs")).expect("it has run");
    fs::remove_file(served.site.path("signs/go")).expect("it has gone");
    let slow = served.start_slow(&long);
    let threads = served.threads();
    let mut uris = threads.iter().filter_map(|t| t["request"]["uri"].as_str());
    let uri = uris.next_back().expect("one runs").to_owned();
    assert!(
        uri.starts_with("/xxx") && uri.chars().count() == 1025,
        "{uri}"
    );
    slow.end();
    served.server.stop();
}

#[test]
fn workers_are_told_from_regular_threads() {
    let site = Site::of_fixture("worker");
    site.writable("data");
    let served = serve_site(site, &[WORKER, "worker.php", THREADS, "2"]);
    wait_until("both have booted", SOON, || {
        let threads = served.threads();
        threads.iter().filter(|t| t["state"] == "idle").count() == 2
    });
    for thread in served.threads() {
        assert_eq!(
            (&thread["kind"], &thread["worker"]),
            (&"worker".into(), &"worker".into())
        );
    }
    let pools = &served.admin.get("/apps")["apps"][0]["pools"];
    assert_eq!(
        (&pools[0]["state"], &pools[1]["state"]),
        (&"dormant".into(), &"up".into())
    );
    assert_eq!(pools[1]["script"], "/worker.php");
    assert_eq!(served.admin.ask("GET", "/readyz").status, 200);
    // Those that nobody has needed cannot be added to.
    let answer = served.admin.ask("PUT", "/threads");
    assert!(
        answer.status == 409 && answer.detail().contains("no request"),
        "{answer:?}"
    );
    served.server.stop();
}

#[test]
fn the_number_of_threads_is_changed_by_hand() {
    let served = serve(&[NUM_THREADS, "2", MAX_THREADS, "6"]);
    served.wait_for_threads(2);
    let answer = served.admin.ask("PUT", "/threads?count=3");
    assert_eq!((answer.status, &answer.json()["wanted"]), (200, &5.into()));
    served.wait_for_threads(5);
    assert_eq!(served.pool()["scaling"]["by_hand"], 3);
    for (method, count) in [("PUT", 2), ("PUT", 4096), ("DELETE", 4), ("DELETE", 4096)] {
        let answer = served.admin.ask(method, &format!("/threads?count={count}"));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.detail().contains("threads"), "{answer:?}");
    }
    let answer = served.admin.ask("DELETE", "/frankenphp/threads");
    assert_eq!((answer.status, &answer.json()["wanted"]), (200, &4.into()));
    served.wait_for_threads(4);

    let added = served.shell(&["threads", "add", "--count", "2"]);
    assert!(
        added.status.success() && added.output.contains("6 threads wanted"),
        "{added:?}"
    );
    served.wait_for_threads(6);
    let added = served.shell(&["threads", "add"]);
    assert!(
        !added.status.success() && added.output.contains("max_threads"),
        "{added:?}"
    );
    let removed = served.shell(&["threads", "remove", "--count", "4"]);
    assert!(removed.status.success(), "{removed:?}");
    served.wait_for_threads(2);
    assert!(!served.server.log().contains("ERROR"));
    served.server.stop();
}

#[test]
fn what_other_threads_leave_is_a_limit_for_now_only() {
    let options = [NUM_THREADS, "1", MAX_THREADS, "6", THREADS_MAX, "3"];
    let served = serve(&options);
    served.wait_for_threads(1);
    for (count, status, part) in [(3, 409, "threads_max"), (6, 400, "max_threads")] {
        let answer = served.admin.ask("PUT", &format!("/threads?count={count}"));
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.detail().contains(part), "{answer:?}");
    }
    let answer = served.admin.ask("PUT", "/threads?count=2");
    assert_eq!(answer.status, 200, "{answer:?}");
    served.server.stop();
}

#[test]
fn the_command_reloads_and_tells_what_is_wrong() {
    let site = Site::new();
    site.write("app/index.php", "<?php echo getenv('STAGE');");
    let socket = site.path("admin.sock");
    let admin = format!("unix:{}", socket.display());
    let of_stage = |stage: &str| {
        format!("admin = '{admin}'\n[apps.app]\nroot = 'app'\nenv = {{ STAGE = '{stage}' }}\n")
    };
    let file = site.write("baton.toml", of_stage("one"));
    let server = Baton::configured(&file);
    let reload = || baton::run(&["reload", ADMIN, &admin], RUN);
    assert_eq!(server.get("/").expect(200).text(), "one");
    site.write("baton.toml", of_stage("two"));
    let ended = reload();
    assert!(ended.status.success(), "{}", ended.output);
    assert_eq!(server.get("/").expect(200).text(), "two");
    site.write("baton.toml", of_stage("three").replace("root", "rooot"));
    let ended = reload();
    assert!(!ended.status.success(), "{}", ended.output);
    assert!(ended.output.contains("rooot"), "{}", ended.output);
    assert_eq!(server.get("/").expect(200).text(), "two");
    server.stop();
}

#[test]
fn of_two_apps_one_is_told_which() {
    let site = Site::new();
    site.write("blog/index.php", PLAIN);
    site.write("shop/index.php", PLAIN);
    site.writable("shop/signs");
    let socket = site.path("admin.sock");
    let threads = "num_threads = 1\nmax_threads = 4\n";
    let file = site.write(
        "baton.toml",
        format!(
            "admin = 'unix:{}'\n[apps.blog]\nroot = 'blog'\n{threads}[apps.shop]\nroot = 'shop'\n{threads}\
            [[routes]]\nhost = 'a'\napp = 'shop'\n[[routes]]\napp = 'blog'\n",
            socket.display()
        ),
    );
    let server = Baton::configured(&file);
    let admin = Admin::at(&socket);
    let wanted = || {
        let apps = admin.get("/apps");
        let of = |app: usize| apps["apps"][app]["pools"][0]["scaling"]["wanted"].as_u64();
        ["blog", "shop"].map(|name| {
            let at = (0..2).find(|at| apps["apps"][*at]["name"] == name);
            of(at.expect("the app")).expect("a number")
        })
    };
    let answer = admin.ask("PUT", "/threads");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.detail().contains("Several apps"), "{answer:?}");
    let answer = admin.ask("PUT", "/threads?app=shop");
    let told = answer.json();
    assert_eq!((answer.status, &told["app"]), (200, &"shop".into()));
    assert_eq!((&told["wanted"], wanted()), (&2.into(), [1, 2]));

    // Both threads sleep, and two requests wait: more are started, for that reason.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            client
                .send("GET /?wait HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("sent");
            client
        })
        .collect();
    wait_until("threads are started", SOON, || wanted() == [1, 4]);
    let decisions = admin.get("/decisions?app=shop")["decisions"].clone();
    let decisions = decisions.as_array().expect("a list");
    let started = decisions.iter().find(|one| one["action"] == "start");
    let started = started.unwrap_or_else(|| panic!("none started: {decisions:?}"));
    assert_eq!(started["app"], "shop");
    let reason = started["reason"].as_str().expect("a reason");
    assert!(reason.contains("wait"), "{reason}");
    let others = admin.get("/decisions?app=blog")["decisions"].clone();
    let others = others.as_array().expect("a list");
    assert!(
        others.iter().all(|one| one["action"] == "hold"),
        "{others:?}"
    );
    site.write("shop/signs/go", "");
    for mut client in clients {
        assert_eq!(client.reply().expect("a reply").text(), "hello");
    }
    server.stop();
}

#[test]
fn a_worker_is_named_by_name_or_script() {
    let site = Site::of_fixture("worker");
    site.writable("data");
    let file = site.path("worker.php").canonicalize().expect("there");
    let options = [WORKER, "worker.php", NUM_THREADS, "1", MAX_THREADS, "8"];
    let served = serve_site(site, &options);
    wait_until("it has booted", SOON, || {
        served.admin.ask("GET", "/readyz").status == 200
    });
    let file = file.display().to_string();
    for (more, name) in ["worker", "/worker.php", "worker.php", &file]
        .iter()
        .enumerate()
    {
        let answer = served.admin.ask("PUT", &format!("/threads?worker={name}"));
        let wanted = Value::from(2 + more);
        assert_eq!(
            (answer.status, &answer.json()["wanted"]),
            (200, &wanted),
            "{name}"
        );
    }
    let url = format!("http://{}/", served.server.addr());
    for name in ["worker", "/worker.php", "worker.php", &file] {
        let ended = served.shell(&["rehearse", &url, "--threads", "6", "--worker", name]);
        assert!(ended.status.success(), "{name}: {}", ended.output);
    }
    let answer = served.admin.ask("PUT", "/threads?worker=other");
    assert!(
        answer.status == 404 && answer.detail().contains("other"),
        "{answer:?}"
    );
    served.server.stop();
}

#[test]
fn the_metrics_follow_what_happens() {
    let served = serve(&[NUM_THREADS, "1", MAX_THREADS, "2"]);
    let app = served.admin.get("/apps")["apps"][0]["name"].clone();
    let labels = format!("app=\"{}\",worker=\"\"", app.as_str().expect("a name"));
    let of_pool = |name: &str, label: &str| served.metric(&format!("{name}{{{labels}{label}}}"));
    let of_server = || {
        [
            "baton_requests_total",
            "baton_request_duration_seconds_count",
            "baton_request_body_bytes_total",
            "baton_reply_body_bytes_total",
            "baton_ticks_total",
        ]
        .map(|name| served.metric(name))
    };
    let before = of_server();
    let mut client = served.server.connect();
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789",
    ] {
        assert_eq!(client.ask(request).expect("a reply").text(), "hello");
    }
    wait_until("both requests are counted", SOON, || {
        let now = of_server();
        let [requests, durations, received, sent, ticks] =
            std::array::from_fn(|at| now[at] - before[at]);
        (requests, durations, received, sent) == (2.0, 2.0, 10.0, 10.0) && ticks > 0.0
    });
    assert!(served.metric("baton_connections") >= 1.0);

    // Two run, one of them in a thread that was started for it, and one waits.
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = served.server.connect();
            client
                .send("GET /?wait=1 HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("sent");
            client
        })
        .collect();
    wait_until("a thread is started, and a request waits", SOON, || {
        of_pool("baton_threads", ",state=\"busy\"") == 2.0
            && of_pool("baton_queue_waiting", "") == 1.0
    });
    assert!(of_pool("baton_queue_oldest_wait_seconds", "") > 0.0);
    assert!(of_pool("baton_scaling_decisions_total", ",action=\"start\"") >= 1.0);
    served.site.write("signs/go", "");
    for mut client in clients {
        assert_eq!(client.reply().expect("a reply").text(), "hello");
    }
    let answer = served.admin.ask("POST", "/workers/restart");
    assert!(answer.status < 300, "{answer:?}");
    wait_until("the restart is counted", SOON, || {
        of_pool("baton_restarts_total", ",result=\"done\"") == 1.0
    });
    assert_eq!(of_pool("baton_restarts_total", ",result=\"failed\""), 0.0);
    served.server.stop();
}

#[test]
fn what_went_wrong_is_counted_and_told() {
    let served = serve(&[THREADS, "1", QUEUE_WAIT_MS_MAX, "100"]);
    served.server.get("/").expect(200);
    served.server.get("/none.txt/x.css").expect(200);
    served.server.send("GET / HTTP/1.1\r\n\r\n").expect(400);
    served.server.get("/?die=1").expect(502);
    wait_until("another process is there", SOON, || {
        served.server.get("/").status() == 200
    });
    let slow = served.start_slow("/?wait=1");
    served.server.get("/").expect(503);
    let app = served.admin.get("/apps")["apps"][0].clone();
    let labels = format!(
        "app=\"{}\",worker=\"\"",
        app["name"].as_str().expect("a name")
    );
    assert_eq!(app["pools"][0]["processes_ended"]["SIGSEGV"], 1);
    let series = |name: &str, label: &str| served.metric(&format!("{name}{{{labels}{label}}}"));
    assert_eq!(
        series("baton_processes_ended_total", ",reason=\"SIGSEGV\""),
        1.0
    );
    assert_eq!(
        series("baton_requests_failed_total", ",reason=\"process ended\""),
        1.0
    );
    assert_eq!(
        series("baton_requests_failed_total", ",reason=\"waited too long\""),
        1.0
    );
    assert_eq!(series("baton_threads", ",state=\"busy\""), 1.0);
    assert_eq!(series("baton_threads_bounds", ",bound=\"max\""), 1.0);
    assert_eq!(served.metric("baton_replies_total{class=\"4xx\"}"), 1.0);
    assert!(served.metric("baton_replies_total{class=\"2xx\"}") >= 3.0);
    assert!(served.metric("baton_replies_total{class=\"5xx\"}") >= 2.0);
    slow.end();
    // Its client may have the reply a moment before it is counted.
    wait_until("the slow one is in it", SOON, || {
        series("baton_service_seconds_sum", "") >= 0.1
    });
    let handed = series("baton_queue_wait_seconds_count", "");
    assert_eq!(Some(handed as u64), served.pool()["requests"].as_u64());
    let text = served.admin.ask("GET", "/metrics");
    let content_type = text.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(text.body.ends_with("# EOF\n"));
    served.server.stop();
}

#[test]
fn one_that_cannot_be_restarted_says_why() {
    let site = Site::of_fixture("worker");
    site.writable("data");
    let served = serve_site(site, &[WORKER, "worker.php", THREADS, "1"]);
    served.site.write("worker.php", "<?php exit(3);");
    let ended = served.shell(&["restart"]);
    assert!(!ended.status.success(), "{}", ended.output);
    assert!(ended.output.contains("the restart failed"), "{ended:?}");
    let pools = &served.admin.get("/apps")["apps"][0]["pools"];
    assert_eq!(
        (&pools[1]["restarts"], &pools[1]["restarts_failed"]),
        (&0.into(), &1.into())
    );
    let reason = pools[1]["last_failure"]["reason"].as_str();
    assert!(
        reason.is_some_and(|reason| reason.contains("ended before")),
        "{pools}"
    );
    let shown = served.shell(&["status"]);
    assert!(shown.output.contains("ended before"), "{shown:?}");
    served.server.stop();
}

#[test]
fn readiness_ends_before_the_server_does() {
    let served = serve(&[THREADS, "1"]);
    assert_eq!(served.admin.get("/healthz")["status"], "ok");
    wait_until("it is ready", SOON, || {
        served.admin.ask("GET", "/readyz").status == 200
    });
    let slow = served.start_slow("/?wait=1");
    served.server.signal(Signal::TERM);
    wait_until("it is ready no more", SOON, || {
        served.admin.ask("GET", "/readyz").status == 503
    });
    assert_eq!(served.admin.get("/healthz")["status"], "ok");
    assert_eq!(served.admin.get("/status")["state"], "draining");
    assert_eq!(served.threads().len(), 1);
    slow.end();
    wait_until("the socket goes with the server", SOON, || {
        !served.admin.socket().exists()
    });
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    let served = serve(&[NUM_THREADS, "1", MAX_THREADS, "4"]);
    served.wait_for_threads(1);
    let long = format!("/threads?app={}", "x".repeat(4000));
    let mut cases = Cases::new();
    for (method, target, status, part) in [
        ("PUT", "/threads?count=0", 400, "1 to 4096"),
        ("PUT", "/threads?count=-1", 400, "-1"),
        ("PUT", "/threads?count=abc", 400, "abc"),
        ("PUT", "/threads?count=NaN", 400, "NaN"),
        ("PUT", "/threads?count=1.5", 400, "1.5"),
        ("PUT", "/threads?count=1000000000", 400, "1000000000"),
        (
            "PUT",
            "/threads?count=99999999999999999999",
            400,
            "1 to 4096",
        ),
        ("DELETE", "/threads?count=0", 400, "1 to 4096"),
        ("DELETE", "/threads?count=1", 400, "num_threads"),
        ("PUT", "/threads?count=4", 400, "max_threads"),
        ("PUT", "/threads?count=1&count=2", 400, "twice"),
        ("PUT", "/threads?number=1", 400, "count"),
        ("PUT", "/threads?app=none", 404, "none"),
        ("PUT", "/threads?worker=none", 404, "none"),
        ("GET", "/threads?app=none", 404, "none"),
        ("GET", "/threads?app=%00%ff", 404, "no app"),
        ("GET", "/threads/1.999", 404, "1.999"),
        ("GET", "/threads/999.1", 404, "999.1"),
        ("GET", "/threads/x", 404, "GET /threads"),
        ("GET", "/decisions?app=none", 404, "none"),
        ("GET", "/readyz?app=none", 404, "none"),
        ("POST", "/workers/restart?app=none", 404, "none"),
        ("GET", "/workers/restart", 405, "POST"),
        ("POST", "/threads", 405, "GET, HEAD, PUT, DELETE"),
        ("DELETE", "/threads/1.1", 405, "GET"),
        ("POST", "/metrics", 405, "GET"),
        ("BREW", "/status", 405, "GET"),
        ("GET", "/", 404, "/threads"),
        ("GET", "/frankenphp", 404, "/threads"),
        ("GET", "/threads/../status", 404, "no"),
    ] {
        cases.case(&format!("{method} {target}"), || {
            let answer = served.admin.ask(method, target);
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.detail().contains(part), "{answer:?}");
            if status == 405 {
                assert!(
                    answer
                        .header("allow")
                        .is_some_and(|allow| allow.contains(part))
                );
            }
        });
    }
    for (name, bytes, status) in [
        (
            "a long target",
            format!("GET {long} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
            414,
        ),
        (
            "a long head",
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
                "x".repeat(9000)
            )
            .as_bytes(),
            431,
        ),
        (
            "a large body",
            b"PUT /threads HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
            413,
        ),
        (
            "garbage",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            400,
        ),
        ("no host", b"GET /status HTTP/1.1\r\n\r\n", 400),
    ] {
        cases.case(name, || {
            let answer = served.admin.send(bytes).expect("an answer");
            assert_eq!(Answer::parse(&answer).status, status);
        });
    }
    cases.finish();
    served.wait_for_threads(1);
    assert_eq!(served.pool()["restarts"], 0, "nothing was done");
    let answer = served.admin.ask("POST", "/reload");
    assert!(matches!(answer.status, 200 | 422), "{answer:?}");
    let head = "HEAD /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let head = served.admin.send(head.as_bytes()).expect("a head");
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n") && head.ends_with(b"\r\n\r\n"));
    served.server.stop();
}

#[test]
fn who_hangs_on_harms_nobody() {
    let served = serve(&[THREADS, "1"]);
    // More than it takes at once; some have begun a request.
    let hanging: Vec<UnixStream> = (0..200)
        .map(|number| {
            let mut stream = UnixStream::connect(served.admin.socket()).expect("connected");
            if number % 2 == 0 {
                stream.write_all(b"GET /sta").expect("sent");
            }
            stream
        })
        .collect();
    for _ in 0..50 {
        served.server.get("/").expect(200);
    }
    drop(hanging);
    assert_eq!(served.admin.get("/status")["state"], "serving");
    served.server.stop();
}

#[test]
fn a_rehearsal_finds_what_breaks_and_goes_back() {
    let served = serve(&[NUM_THREADS, "2", MAX_THREADS, "12"]);
    let admin = format!("unix:{}", served.site.path("admin.sock").display());
    let rehearse = |path: &str, more: &[&str]| {
        let url = format!("http://{}{path}", served.server.addr());
        let mut arguments = vec!["rehearse", &url, "--admin", &admin];
        arguments.extend(more);
        let ended = baton::run(&arguments, RUN);
        wait_until("the threads are as before", SOON, || {
            let scaling = &served.pool()["scaling"];
            scaling["wanted"] == 2 && scaling["threads"] == 2
        });
        ended
    };
    let good = rehearse("/", &[]);
    assert!(good.status.success(), "{}", good.output);
    for part in [
        "12 threads after",
        "10 of them for this",
        "with status 200",
        "back to 2 threads",
    ] {
        assert!(good.output.contains(part), "{part:?}: {}", good.output);
    }
    for (path, more, part) in [
        ("/?only=6", &[][..], "had status 500"),
        ("/?die", &["--threads", "3"], "died: SIGSEGV"),
        ("/", &["--threads", "13"], "1 threads cannot be added"),
        ("/", &["--app", "nobody"], "no such threads"),
        ("/", &["--worker", "none"], "no such threads"),
    ] {
        let bad = rehearse(path, more);
        assert_eq!(bad.status.code(), Some(1), "{path}: {}", bad.output);
        assert!(bad.output.contains(part), "{path} {part:?}: {}", bad.output);
    }
}

#[test]
fn a_rehearsal_without_a_bound_asks_for_one() {
    let served = serve(&[NUM_THREADS, "1"]);
    let admin = format!("unix:{}", served.site.path("admin.sock").display());
    let url = format!("http://{}/", served.server.addr());
    let ended = baton::run(&["rehearse", &url, "--admin", &admin], RUN);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.output.contains("--threads"), "{}", ended.output);
    served.server.stop();

    // Beside another pool's threads there are fewer than 4096 left: that is no bound that anybody has set.
    let site = Site::of_fixture("worker");
    site.writable("data");
    let served = serve_site(site, &[WORKER, "worker.php", NUM_THREADS, "1"]);
    let pools = served.admin.get("/apps")["apps"][0]["pools"].clone();
    let scaling = &pools[1]["scaling"];
    assert!(scaling["threads_max"].as_u64().is_some_and(|n| n < 4096));
    assert_eq!(scaling["auto"], true, "{scaling}");
    let url = format!("http://{}/", served.server.addr());
    let ended = served.shell(&["rehearse", &url, "--worker", "worker"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.output.contains("--threads"), "{}", ended.output);
    served.server.stop();
}

#[test]
fn restarts_by_the_api_lose_no_request() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let served = serve_site(site, &[THREADS, "8"]);
    served.wait_for_threads(8);
    let wanted = std::env::var("BATON_RESTART_REQUESTS").ok();
    let wanted = wanted.and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let account = Account::new();
    let mut restarts = 0;
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..16 {
            let (account, addr) = (&account, served.server.addr());
            let query = if number % 8 == 0 { "ms=20" } else { "ms=0" };
            scope.spawn(move || account.client(addr, number, query));
        }
        while restarts < 5 || account.answered.load(Ordering::Relaxed) < wanted {
            let target = ["/workers/restart", "/frankenphp/workers/restart"][restarts % 2];
            let answer = served.admin.ask("POST", target);
            assert_eq!(answer.status, 202, "{answer:?}");
            restarts += 1;
            wait_until("a restart", SOON, || {
                let pool = served.pool();
                pool["restarting"] == false && pool["restarts"] == restarts
            });
        }
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    println!("{:?} requests, {restarts} restarts", account.answered);
    let log = served.server.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn its_socket_is_for_the_server_s_account_alone() {
    let served = serve(&[THREADS, "1"]);
    let found = fs::symlink_metadata(served.admin.socket()).expect("a socket");
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o777, 0o600);
    if is_root() {
        let path = served.admin.socket().display();
        let script = format!(
            "<?php $s = @stream_socket_client('unix://{path}', $code); echo $s ? 'in' : $code;"
        );
        served.site.write("try.php", script);
        // EACCES: applications may not ask it.
        assert_eq!(served.server.get("/try.php").expect(200).text(), "13");
    }
    served.server.stop();
}

/// The default place, as the server says it.
fn default_socket(server: &Baton) -> PathBuf {
    let log = server.log();
    let at = log.find("admin API on unix:").expect("it is told");
    let rest = &log[at + "admin API on unix:".len()..];
    rest[..rest.find('"').expect("an end")].into()
}

#[test]
fn by_default_each_server_has_a_place_that_the_shell_finds() {
    let _alone = alone();
    let site = Site::with_index(PLAIN);
    let folder = std::env::temp_dir().join(format!("baton-runtime-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let command = || {
        let mut command = std::process::Command::new(baton::binary());
        command.env("RUNTIME_DIRECTORY", &folder);
        command
    };
    let shell = |arguments: &[&str]| {
        let output = command().args(arguments).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8(said).expect("UTF-8"),
        )
    };
    let (done, said) = shell(&["status"]);
    assert!(
        !done && said.contains("no server") && said.contains("--admin"),
        "{said}"
    );

    fs::create_dir(&folder).expect("made");
    // Of a process that cannot be (proc(5), pid_max), and a file that is none of ours.
    let stale = folder.join("4194400.sock");
    drop(UnixListener::bind(&stale).expect("bound"));
    fs::write(folder.join("web.sock"), "").expect("written");
    let first = Baton::start(command(), site.root(), &[THREADS, "1"]).expect("it starts");
    let socket = default_socket(&first);
    assert_eq!(socket, folder.join(format!("{}.sock", first.pid())));
    assert!(!stale.exists() && folder.join("web.sock").exists());

    let (done, said) = shell(&["status"]);
    assert!(
        done && said.contains(&format!("pid {}", first.pid())),
        "{said}"
    );
    let (done, said) = shell(&["threads"]);
    assert!(done && said.contains("idle"), "{said}");
    let (done, said) = shell(&["threads", "--json"]);
    let json: Value = serde_json::from_str(&said).expect("JSON");
    assert!(done && json["threads"].is_array());
    let (done, said) = shell(&["restart"]);
    assert!(done && said.contains("restarted"), "{said}");
    let (done, said) = shell(&["restart", "--app", "none"]);
    assert!(!done && said.contains("There is no app \"none\""), "{said}");

    let second = Baton::start(command(), site.root(), &[THREADS, "1"]).expect("it starts");
    let (done, said) = shell(&["status"]);
    let both = [&first, &second].map(|server| format!("{}.sock", server.pid()));
    assert!(
        !done && both.iter().all(|name| said.contains(name)),
        "{said}"
    );
    let place = format!("unix:{}", default_socket(&second).display());
    let (done, said) = shell(&["status", ADMIN, &place]);
    assert!(
        done && said.contains(&format!("pid {}", second.pid())),
        "{said}"
    );
    first.stop();
    second.stop();
    assert!(!socket.exists());

    // A place that cannot be had is no reason not to serve.
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("changed");
    let third = Baton::start(command(), site.root(), &[THREADS, "1"]).expect("it starts");
    third.wait_for_log("no admin API");
    third.get("/").expect(200);
    drop(third);
    let off = Baton::start(command(), site.root(), &[THREADS, "1", ADMIN, "off"]);
    let log = off.expect("it starts").stop();
    assert!(!log.contains("admin API"), "{log}");
    fs::remove_dir_all(&folder).expect("removed");
}

/// Where it listens on TCP.
fn tcp_address(server: &Baton) -> SocketAddr {
    let log = server.log();
    let at = log.find("admin API on 127").expect("it is told");
    let rest = &log[at + "admin API on ".len()..];
    let end = rest.find('"').expect("an end");
    rest[..end].parse().expect("an address")
}

#[test]
fn on_tcp_it_takes_a_token() {
    let site = Site::with_index(PLAIN);
    let refused = |options: &[&str], part: &str| {
        let mut all = vec![ADMIN, "127.0.0.1:0"];
        all.extend(options);
        let ended = Baton::try_with(site.root(), &all).err().expect("no start");
        assert!(ended.output.contains(part), "{}", ended.output);
    };
    let write = |text: &str, mode| {
        let path = site.write("token", text);
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
        path.display().to_string()
    };
    const TOKEN: &str = "correct-horse-battery";
    refused(&[], "--admin-token-file");
    refused(
        &[ADMIN_TOKEN_FILE, "/nonexistent/token"],
        "/nonexistent/token",
    );
    refused(&[ADMIN_TOKEN_FILE, &write(TOKEN, 0o644)], "chmod 600");
    refused(&[ADMIN_TOKEN_FILE, &write("short", 0o600)], "16");
    let file = write(&format!("{TOKEN}\n"), 0o600);
    let options = [ADMIN, "127.0.0.1:0", ADMIN_TOKEN_FILE, &file];
    let server = Baton::with(site.root(), &options);
    let address = tcp_address(&server);
    let ask = |authorization: &str| {
        let mut stream = TcpStream::connect(address).expect("connected");
        let request =
            format!("GET /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        Answer::parse(&answer)
    };
    let answer = ask(&format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(
        (answer.status, &answer.json()["state"]),
        (200, &"serving".into())
    );
    for wrong in [
        "".to_owned(),
        "Authorization: Bearer correct-horse-batterx\r\n".into(),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        "Authorization: Bearer \r\n".into(),
        "Authorization: Basic Y29ycmVjdA==\r\n".into(),
        format!("Authorization: {TOKEN}\r\n"),
    ] {
        let answer = ask(&wrong);
        assert_eq!(answer.status, 401, "{wrong:?}");
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"baton\"")
        );
        assert!(!answer.detail().is_empty());
    }
    let place = address.to_string();
    let ended = baton::run(&["status", ADMIN, &place], RUN);
    assert!(
        !ended.status.success() && ended.output.contains("--admin-token-file"),
        "{ended:?}"
    );
    let ended = baton::run(&["status", ADMIN, &place, ADMIN_TOKEN_FILE, &file], RUN);
    assert!(
        ended.status.success() && ended.output.contains("serving"),
        "{ended:?}"
    );
    server.stop();
}
