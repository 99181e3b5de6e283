//! Several applications behind one front, from a configuration file: which of them gets a request, what each has of its
//! own, and that none suffers from another.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use baton_journeys::options::LISTEN;
use baton_journeys::{Baton, Cases, Reply, Site, baton, proc, wait_until};
use rustix::process::Signal;

/// Who runs it, and with what.
const WHO: &str = "<?php echo basename(__DIR__), ' ', posix_geteuid(), ' ', getenv('STAGE'), ' ',
    ini_get('memory_limit'), ' ', ini_set('precision', '3') === false ? 'locked' : 'open';";

/// Says that it runs, and waits for `go`.
const SLOW: &str = "<?php touch(__DIR__ . '/signs/runs');
    while (!file_exists(__DIR__ . '/signs/go')) { usleep(10000); clearstatcache(); } echo 'slow';";

/// A worker, or a script that answers once.
const SCRIPT: &str = "<?php
    $answer = function () { echo PHP_SAPI, ' ', $_SERVER['SCRIPT_NAME'], ' ', getmypid(); };
    if (PHP_SAPI !== 'frankenphp') { $answer(); exit; }
    while (frankenphp_handle_request($answer));";

fn configure(site: &Site, file: &str) -> PathBuf {
    site.write("baton.toml", file)
}

fn ask(server: &Baton, host: &str, target: &str) -> Reply {
    server.send(format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    ))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn each_has_its_own_account_environment_and_settings() {
    let site = Site::new();
    site.write("blog/index.php", WHO);
    site.write("shop/public/index.php", WHO);
    let file = configure(
        &site,
        r#"
threads = 1
env = { STAGE = "test" }
ini = { memory_limit = "64M" }
[apps.blog]
root = "blog"
user = "www-data"
env = ["STAGE=live"]
ini_admin = { precision = 9 }
[apps.shop]
root = "shop"
user = "nobody"
ini = { memory_limit = "96M" }
[[routes]]
host = "shop.example"
app = "shop"
[[routes]]
app = "blog"
"#,
    );
    let server = Baton::configured(&file);
    let words = |host| -> Vec<String> {
        let text = ask(&server, host, "/").expect(200).text();
        text.split(' ').map(str::to_owned).collect()
    };
    let (blog, shop) = (words("blog.example"), words("shop.example"));
    assert_eq!(
        [&blog[0], &blog[2], &blog[3], &blog[4]],
        ["blog", "live", "64M", "locked"]
    );
    assert_eq!(
        [&shop[0], &shop[2], &shop[3], &shop[4]],
        ["public", "test", "96M", "open"]
    );
    if is_root() {
        assert!(
            blog[1] != "0" && shop[1] != "0" && blog[1] != shop[1],
            "{blog:?} {shop:?}"
        );
    }
    assert_eq!(
        (server.zygotes().len(), server.app_processes().len()),
        (2, 2)
    );
    server.stop();
}

#[test]
fn the_first_route_that_fits_picks_the_app() {
    let site = Site::new();
    for app in ["one", "two", "three"] {
        site.write(
            &format!("{app}/index.php"),
            "<?php echo basename(__DIR__), ' ', $_SERVER['REQUEST_URI'];",
        );
        site.write(&format!("{app}/name.txt"), app);
    }
    let file = configure(
        &site,
        r#"
threads = 1
[apps.one]
root = "one"
[apps.two]
root = "two"
[apps.three]
root = "three"
[[routes]]
host = "a.example"
path = "/api/*"
app = "two"
[[routes]]
host = "a.example"
app = "one"
[[routes]]
host = "*.example"
app = "three"
[[routes]]
path = "/health"
app = "one"
"#,
    );
    let server = Baton::configured(&file);
    let mut cases = Cases::new();
    for (host, target, expected) in [
        ("a.example", "/", "one /"),
        ("A.Example:8080", "/x?y", "one /x?y"),
        ("a.example.", "/apix", "one /apix"),
        ("a.example", "/api", "one /api"),
        ("a.example", "/api/", "two /api/"),
        ("a.example", "/api/x?y", "two /api/x?y"),
        // However it is spelled.
        ("a.example", "/%61pi/x", "two /%61pi/x"),
        ("a.example", "/x/../api/x", "two /x/../api/x"),
        ("a.example", "//api//x", "two //api//x"),
        ("a.example", "/api/../x", "one /api/../x"),
        ("b.example", "/api/x", "three /api/x"),
        ("x.y.example:80", "/", "three /"),
        ("b.example", "/name.txt", "three"),
        ("a.example", "/name.txt", "one"),
        ("example", "/health", "one /health"),
    ] {
        cases.case(&format!("{host} {target}"), || {
            assert_eq!(ask(&server, host, target).expect(200).text(), expected);
        });
    }
    for (host, target) in [
        ("example", "/"),
        ("a.example.org", "/api/"),
        ("[::1]", "/health/"),
    ] {
        cases.case(&format!("{host} {target}"), || {
            ask(&server, host, target).expect(404);
        });
    }
    cases.finish();
    // Without a Host there is none to compare, in HTTP/1.0.
    server.send("GET /health HTTP/1.0\r\n\r\n").expect(200);
    server.send("GET / HTTP/1.0\r\n\r\n").expect(404);
    server.stop();
}

#[test]
fn a_trusted_proxy_says_for_which_host() {
    let site = Site::new();
    for app in ["one", "two"] {
        site.write(&format!("{app}/index.php"), "<?php echo basename(__DIR__);");
    }
    let routes = "[apps.one]\nroot = 'one'\n[apps.two]\nroot = 'two'\n\
                  [[routes]]\nhost = 'two.example'\napp = 'two'\n[[routes]]\napp = 'one'\n";
    let trust = "trusted_proxies = '127.0.0.1'\ntrusted_headers = 'x-forwarded-host'\n";
    for (top, expected) in [(trust, "two"), ("", "one")] {
        let file = configure(&site, &format!("threads = 1\n{top}{routes}"));
        let server = Baton::configured(&file);
        let request = "GET / HTTP/1.1\r\nHost: inside\r\nX-Forwarded-Host: two.example\r\nConnection: close\r\n\r\n";
        assert_eq!(server.send(request).expect(200).text(), expected);
        server.stop();
    }
}

#[test]
fn one_that_cannot_start_leaves_the_other_alone_and_is_tried_again() {
    let site = Site::new();
    site.write("good/index.php", "<?php echo 'good';");
    site.write("broken/index.php", "<?php echo 'mended';");
    let preload = site.path("broken/preload.inc");
    let file = configure(
        &site,
        &format!(
            r#"
threads = 2
[apps.good]
root = "good"
[apps.broken]
root = "broken"
ini = {{ "opcache.preload" = "{}" }}
[[routes]]
host = "broken"
app = "broken"
[[routes]]
app = "good"
"#,
            preload.display()
        ),
    );
    let server = Baton::configured(&file);
    ask(&server, "good", "/").expect(200);
    let refused = ask(&server, "broken", "/").expect(503);
    assert!(refused.header("retry-after").is_some());
    let log = server.log();
    let told = log
        .lines()
        .any(|line| line.contains("\"broken\"") && line.contains("cannot start"));
    assert!(told, "{log}");
    ask(&server, "good", "/").expect(200);
    site.write("broken/preload.inc", "<?php");
    wait_until("it starts", Duration::from_secs(30), || {
        ask(&server, "broken", "/").status() == 200
    });
    ask(&server, "good", "/").expect(200);
    server.stop();
}

#[test]
fn nothing_starts_where_no_app_can() {
    let site = Site::new();
    site.write("a/index.php", "");
    site.write("b/index.php", "");
    let file = configure(
        &site,
        "ini = { \"opcache.preload\" = \"/no/such.inc\" }\n[apps.a]\nroot = 'a'\n[apps.b]\nroot = 'b'\n\
         [[routes]]\nhost = 'a'\napp = 'a'\n[[routes]]\napp = 'b'\n",
    );
    let file = file.to_str().expect("a plain path");
    let ended = baton::run(
        &["serve", "--config", file, LISTEN, "127.0.0.1:0"],
        Duration::from_secs(20),
    );
    assert!(
        !ended.status.success() && ended.output.contains("/no/such.inc"),
        "{}",
        ended.output
    );
}

#[test]
fn one_that_is_overloaded_leaves_the_other_alone() {
    let site = Site::new();
    site.write("slow/index.php", SLOW);
    let signs = site.writable("slow/signs");
    site.write("quick/index.php", "<?php echo 'quick';");
    let file = configure(
        &site,
        r#"
[apps.slow]
root = "slow"
threads = 1
queue_len_max = 3
queue_wait_ms_max = 60000
[apps.quick]
root = "quick"
threads = 1
[[routes]]
host = "slow"
app = "slow"
[[routes]]
app = "quick"
"#,
    );
    let server = Baton::configured(&file);
    let statuses = Mutex::new(Vec::new());
    let count = |status| {
        let statuses = statuses.lock().expect("no client panicked");
        statuses.iter().filter(|known| **known == status).count()
    };
    let client = || {
        let status = ask(&server, "slow", "/").status();
        statuses.lock().expect("no client panicked").push(status);
    };
    let bound = Duration::from_secs(10);
    std::thread::scope(|scope| {
        scope.spawn(client);
        wait_until("one runs", bound, || signs.join("runs").exists());
        for _ in 0..9 {
            scope.spawn(client);
        }
        wait_until("three wait, the others are refused", bound, || {
            count(503) == 6
        });
        for _ in 0..50 {
            assert_eq!(ask(&server, "quick", "/").expect(200).text(), "quick");
        }
        assert_eq!(count(200), 0);
        site.write("slow/signs/go", "");
    });
    assert_eq!((count(200), count(503)), (4, 6));
    assert_eq!(ask(&server, "slow", "/").expect(200).text(), "slow");
    server.stop();
}

#[test]
fn the_end_of_one_apps_processes_is_that_apps_affair() {
    let site = Site::new();
    site.write("a/index.php", "<?php echo getmypid();");
    site.write("b/index.php", "<?php echo getmypid();");
    let file = configure(
        &site,
        "threads = 2\n[apps.a]\nroot = 'a'\n[apps.b]\nroot = 'b'\n[[routes]]\nhost = 'a'\napp = 'a'\n[[routes]]\napp = 'b'\n",
    );
    let server = Baton::configured(&file);
    let pid = |host| -> u32 {
        let text = ask(&server, host, "/").expect(200).text();
        text.parse().expect("a pid")
    };
    let kept = pid("b");
    for _ in 0..10 {
        proc::signal(pid("a"), Signal::KILL);
    }
    wait_until("all is as before", Duration::from_secs(10), || {
        server.app_processes().len() == 4
    });
    assert!(proc::is_alive(kept), "the other's processes live on");
    let dead = || {
        let all = proc::processes().into_iter();
        all.filter(|p| p.parent == server.pid() && p.state == 'Z')
            .count()
    };
    wait_until("all dead ones are reaped", Duration::from_secs(5), || {
        dead() == 0
    });
    server.stop();
}

#[test]
fn workers_and_other_scripts_have_threads_of_their_own() {
    let site = Site::new();
    for script in [
        "public/web.php",
        "public/api.php",
        "public/index.php",
        "bin/jobs.php",
    ] {
        site.write(&format!("site/{script}"), SCRIPT);
    }
    let file = configure(
        &site,
        r#"
root = "site"
[[workers]]
file = "public/web.php"
threads = 1
[[workers]]
file = "public/api.php"
threads = 2
[[workers]]
file = "bin/jobs.php"
threads = 1
"#,
    );
    let server = Baton::configured(&file);
    let zygotes = || server.zygotes().len();
    assert_eq!(
        zygotes(),
        3,
        "one for each worker, none for regular threads"
    );
    let mut pids = std::collections::HashMap::new();
    for (target, expected) in [
        ("/", "frankenphp /web.php"),
        ("/no/file", "frankenphp /web.php"),
        ("/web.php", "frankenphp /web.php"),
        ("/api.php", "frankenphp /api.php"),
        ("/api.php", "frankenphp /api.php"),
        // It lies outside of the public folder.
        ("/jobs.php", "frankenphp /web.php"),
        ("/bin/jobs.php", "frankenphp /web.php"),
    ] {
        let text = server.get(target).expect(200).text();
        let (answer, pid) = text.rsplit_once(' ').expect("words");
        assert_eq!(answer, expected, "{target}");
        pids.insert(pid.to_owned(), answer.to_owned());
    }
    assert!(
        pids.values()
            .filter(|answer| answer.ends_with("/web.php"))
            .count()
            == 1
    );
    assert_eq!(zygotes(), 3, "nobody has asked for a regular thread so far");
    let text = server.get("/index.php").expect(200).text();
    assert!(text.starts_with("fpm-fcgi /index.php "), "{text}");
    assert_eq!(zygotes(), 4);
    wait_until(
        "two regular threads are there",
        Duration::from_secs(5),
        || server.app_processes().len() == 1 + 2 + 1 + 2,
    );
    server.stop();
}

/// The front is the parent of whatever an application leaves behind.
#[test]
fn orphans_of_an_application_are_reaped() {
    let site =
        Site::with_index("<?php echo exec('sh -c \"sleep 0.3\" >/dev/null 2>&1 & echo $!');");
    let server = Baton::serve(site.root());
    let pid: u32 = server.get("/").expect(200).text().parse().expect("a pid");
    wait_until("it is gone", Duration::from_secs(10), || {
        proc::process(pid).is_none()
    });
    server.get("/").expect(200);
    server.stop();
}

#[test]
fn a_file_in_the_folder_is_read() {
    let site = Site::new();
    site.write("site/public/index.php", WHO);
    configure(
        &site,
        "root = 'site'\nthreads = 1\nenv = { STAGE = 'here' }\n",
    );
    let serve = |more: &[&str]| {
        let mut command = Command::new(baton::binary());
        command.current_dir(site.root());
        let arguments = ["serve", LISTEN, "127.0.0.1:0"].iter().chain(more);
        let arguments: Vec<&OsStr> = arguments.map(OsStr::new).collect();
        Baton::launch(command, Stdio::null(), &arguments).expect("it serves")
    };
    let server = serve(&[]);
    let text = server.get("/").expect(200).text();
    assert!(text.contains(" here "), "{text}");
    server.stop();
    // Who says what to serve is taken at the word.
    let server = serve(&["site"]);
    let text = server.get("/").expect(200).text();
    assert!(!text.contains(" here "), "{text}");
    server.stop();
}

#[test]
fn a_check_tells_every_mistake_and_where_it_is() {
    let site = Site::new();
    site.write("blog/index.php", "");
    let file = configure(
        &site,
        r#"listen = ["127.0.0.1:8080", "127.0.0.1:8080"]
threads = 0
acces_log = "x"
[apps.blog]
root = "blog"
deadline_ms = "30s"
listen = ":80"
[apps.shop]
root = "shop"
[[routes]]
app = "blog"
[[routes]]
host = "shop.example"
app = "shp"
"#,
    );
    let file = file.to_str().expect("a plain path");
    let bound = Duration::from_secs(10);
    let ended = baton::run(&["check", file], bound);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    let expected = [
        ("1:29", "twice"),
        ("2:11", "1..=4096"),
        ("3:1", "`access_log`"),
        ("6:15", "a whole number"),
        ("7:1", "top of the file"),
        ("9:8", "No such file"),
        ("14:7", "did you mean shop?"),
    ];
    let lines: Vec<&str> = ended.output.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{}", ended.output);
    for (line, (place, part)) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(&format!("{file}:{place}: ")) && line.contains(part),
            "{line}"
        );
    }
    // The server says the same and does not start.
    let served = baton::run(&["serve", "--config", file], bound);
    assert_eq!(served.status.code(), Some(1), "{}", served.output);
    for line in lines {
        assert!(served.output.contains(line), "{line} in {}", served.output);
    }

    configure(&site, "[apps.blog]\nroot = 'blog'\n");
    let ended = baton::run(&["check", file], bound);
    assert!(
        ended.status.success() && ended.output.contains("good"),
        "{}",
        ended.output
    );
}
