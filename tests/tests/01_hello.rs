//! A first quarter of an hour with Baton: it serves what it is pointed at, and says in one line why it cannot.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use baton_journeys::options::{LISTEN, THREADS};
use baton_journeys::{Baton, Browser, Cases, Site, baton, proc, wait_until};
use rustix::process::Signal;

const HELLO: &str = "<?php echo 'hello from ', basename(__FILE__), ' ', $_SERVER['REQUEST_URI'];";
const START_BOUND: Duration = Duration::from_secs(10);

#[test]
fn a_folder_with_an_index_is_served() {
    let site = Site::with_index(HELLO);
    site.write("about.php", HELLO);
    site.write("style.css", "p {}");
    let server = Baton::serve(site.root());
    assert_eq!(server.get("/").expect(200).text(), "hello from index.php /");
    assert_eq!(
        server.get("/about.php").expect(200).text(),
        "hello from about.php /about.php"
    );
    assert_eq!(
        server.get("/no/file?a=b").expect(200).text(),
        "hello from index.php /no/file?a=b"
    );
    let css = server.get("/style.css").expect(200);
    assert_eq!(css.text(), "p {}");
    assert!(
        css.header("content-type")
            .is_some_and(|v| v.starts_with("text/css"))
    );
    server.stop();
}

#[test]
fn a_public_folder_is_found() {
    let site = Site::new();
    site.write("public/index.php", HELLO);
    site.write("secret.php", "<?php echo 'secret';");
    let server = Baton::serve(site.root());
    assert_eq!(server.get("/").expect(200).text(), "hello from index.php /");
    assert_eq!(
        server.get("/secret.php").text(),
        "hello from index.php /secret.php"
    );
    server.stop();
}

#[test]
fn a_single_script_is_served() {
    let site = Site::new();
    let script = site.write("single.php", HELLO);
    site.write("other.php", "<?php echo 'other';");
    let server = Baton::serve(&script);
    assert_eq!(
        server.get("/").expect(200).text(),
        "hello from single.php /"
    );
    assert_eq!(
        server.get("/any/path").expect(200).text(),
        "hello from single.php /any/path"
    );
    server.stop();
}

#[test]
fn the_example_application_works() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/php");
    let site = Site::new();
    baton_journeys::site::copy_tree(&example, &site.path("example"));
    let server = Baton::serve(&site.path("example"));
    let mut browser = Browser::new(server.addr());
    for visit in 1..=3 {
        let page = browser.get("/").expect(200);
        assert!(
            page.header("content-type")
                .expect("a media type")
                .starts_with("text/html")
        );
        assert!(
            page.text()
                .contains(&format!("<output class=\"count\">{visit}</output>")),
            "visit {visit}"
        );
    }
    assert!(
        browser
            .get("/any/<path>")
            .expect(200)
            .text()
            .contains("/any/&lt;path&gt;")
    );
    assert!(
        browser
            .get("/?forget")
            .expect(200)
            .text()
            .contains("<output class=\"count\">1</output>")
    );
    let css = browser.get("/style.css").expect(200);
    assert!(
        css.header("content-type")
            .is_some_and(|v| v.starts_with("text/css"))
    );
    server.stop();
}

#[test]
fn several_listeners_and_a_unix_socket() {
    let site = Site::with_index(HELLO);
    let socket = site.writable("run").join("web.sock");
    let unix = format!("unix:{}", socket.display());
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("an address")
    };
    let server = Baton::with(
        site.root(),
        &[
            LISTEN,
            "127.0.0.1:0",
            LISTEN,
            &port.to_string(),
            LISTEN,
            &unix,
        ],
    );
    assert_eq!(server.get("/").expect(200).text(), "hello from index.php /");
    assert_eq!(
        baton_journeys::get(port, "/").expect(200).text(),
        "hello from index.php /"
    );
    let mut stream = UnixStream::connect(&socket).expect("the unix socket");
    stream
        .write_all(b"GET /unix HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(
        reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("hello from index.php /unix"),
        "{reply}"
    );
    server.stop();
    assert!(!socket.exists(), "the socket file stays behind");
}

/// The start fails within bounds, with one line that has all of these parts.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let ended = baton::run(arguments, START_BOUND);
    assert!(!ended.status.success(), "started: {}", ended.output);
    let lines: Vec<&str> = ended
        .output
        .lines()
        .filter(|l| !l.trim().is_empty())
        .collect();
    assert_eq!(lines.len(), 1, "not one line: {}", ended.output);
    assert!(!lines[0].contains("panicked"), "{}", lines[0]);
    for part in parts {
        assert!(
            lines[0].to_lowercase().contains(&part.to_lowercase()),
            "no {part:?} in: {}",
            lines[0]
        );
    }
}

#[test]
fn what_cannot_start_says_why_in_one_line() {
    let site = Site::with_index(HELLO);
    let root = site.root().to_str().expect("a plain path");
    let free = [LISTEN, "127.0.0.1:0"];
    let serve = |path: &str, more: &[&str]| -> Vec<String> {
        let mut all = vec!["serve".to_owned(), path.to_owned()];
        all.extend(more.iter().map(|s| (*s).to_owned()));
        all
    };
    let check = |arguments: Vec<String>, parts: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused(&arguments, parts);
    };
    let mut cases = Cases::new();

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken_address(&taken);
    cases.case("address in use", || {
        check(serve(root, &[LISTEN, &taken]), &[&taken, "in use"])
    });
    cases.case("address not ours", || {
        check(
            serve(root, &[LISTEN, "203.0.113.1:8080"]),
            &["203.0.113.1:8080"],
        )
    });
    cases.case("address that is none", || {
        check(serve(root, &[LISTEN, "nonsense"]), &["nonsense", "listen"])
    });
    cases.case("no such folder", || {
        check(serve("/no/such/folder", &free), &["/no/such/folder"])
    });
    cases.case("no script there", || {
        let empty = site.writable("empty");
        check(
            serve(empty.to_str().expect("a plain path"), &free),
            &["index.php"],
        );
    });
    cases.case("unknown option", || {
        check(serve(root, &["--thread", "2"]), &["--thread"])
    });
    cases.case("unknown command", || check(vec!["srve".into()], &["srve"]));
    for bad in ["0", "-1", "many", "99999999999"] {
        cases.case(&format!("threads {bad}"), || {
            check(
                serve(root, &[&format!("{THREADS}={bad}")]),
                &["threads", bad],
            )
        });
    }
    cases.case("option without value", || {
        check(serve(root, &[THREADS]), &["--threads"])
    });
    cases.case("configuration that is not there", || {
        check(
            serve(root, &["--config", "/no/such/baton.toml"]),
            &["/no/such/baton.toml"],
        );
    });
    cases.case("root that the account cannot read", || {
        let closed = site.writable("closed");
        site.write("closed/index.php", HELLO);
        // Whoever owns it may open the folder again; root reads it anyway, but www-data does not.
        baton_journeys::site::set_mode(&closed, 0o000);
        let arguments = serve(closed.to_str().expect("a plain path"), &free);
        check(arguments, &["cannot read", "permission"]);
    });
    baton_journeys::site::set_mode(&site.path("closed"), 0o755);
    for (folder, file, content) in [
        (
            "rack",
            "config.ru",
            "run ->(env) { [200, {}, ['hello']] }\n",
        ),
        ("rails", "Gemfile", "source 'https://rubygems.org'\n"),
        (
            "wsgi",
            "wsgi.py",
            "def application(environ, start_response): pass\n",
        ),
        (
            "asgi",
            "app.py",
            "async def app(scope, receive, send): pass\n",
        ),
        ("django", "manage.py", "import django\n"),
    ] {
        cases.case(file, || {
            site.write(&format!("{folder}/{file}"), content);
            let path = site.path(folder);
            check(
                serve(path.to_str().expect("a plain path"), &free),
                &["not supported yet"],
            );
        });
    }
    cases.finish();
}

fn taken_address(listener: &TcpListener) -> String {
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn help_names_every_option() {
    let help = baton::run(&["serve", "--help"], START_BOUND);
    assert!(help.status.success());
    for option in baton_journeys::options::ALL {
        assert!(
            help.output.contains(option),
            "{option} is missing in:\n{}",
            help.output
        );
    }
    assert!(
        baton::run(&["--help"], START_BOUND)
            .output
            .contains("serve")
    );
    let version = baton::run(&["--version"], START_BOUND);
    assert!(
        version.status.success() && version.output.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        version.output
    );
}

#[test]
fn idle_costs_no_cpu() {
    let site = Site::with_index(HELLO);
    let server = Baton::serve(site.root());
    server.get("/").expect(200);
    let _idle = server.connect();
    std::thread::sleep(Duration::from_millis(500));
    let pids: Vec<u32> = std::iter::once(server.pid())
        .chain(server.children().iter().map(|p| p.pid))
        .collect();
    let ticks = || -> u64 {
        pids.iter()
            .filter_map(|pid| proc::process(*pid))
            .map(|p| p.cpu_ticks)
            .sum()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(ticks(), before, "CPU time while idle, in ticks of 10 ms");
}

#[test]
fn app_processes_end_with_the_front() {
    let site = Site::with_index(HELLO);
    let server = Baton::serve(site.root());
    server.get("/").expect(200);
    let children = server.children();
    assert!(
        children.len() >= 2,
        "a zygote and app processes: {children:?}"
    );
    server.signal(Signal::KILL);
    wait_until("all children have gone", Duration::from_secs(5), || {
        children.iter().all(|p| !proc::is_alive(p.pid))
    });
}

#[test]
fn app_processes_are_never_root() {
    let site =
        Site::with_index("<?php echo posix_geteuid(), ' ', posix_getuid(), ' ', posix_getegid();");
    let server = Baton::serve(site.root());
    let ids = server.get("/").expect(200).text();
    assert!(
        ids.split(' ')
            .all(|id| id != "0" && id.parse::<u32>().is_ok()),
        "uid, euid, gid: {ids}"
    );
}
