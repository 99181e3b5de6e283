//! The configuration is read again while the server runs: applications, routes, settings and listeners come, go and
//! change, and not one request is lost.
//!
//! `BATON_RELOAD_TURNS` sets how many reloads go through the load, 12 by default.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_journeys::options::CONFIG;
use baton_journeys::{Account, Baton, Conn, Reply, Site, alone, baton, client, proc, wait_until};
use rustix::process::Signal;

/// Until a reload is over, on a machine with other things to do.
const RELOAD: Duration = Duration::from_secs(20);

const WHO: &str =
    "<?php echo basename(__DIR__), ' ', getenv('STAGE'), ' ', ini_get('memory_limit');";
/// Answers after a while, with the settings that it was started with.
const SLOW: &str = "<?php usleep((int) $_GET['ms'] * 1000); echo getenv('STAGE'), ' ', getmypid();";

fn count(server: &Baton, line: &str) -> usize {
    server.log().matches(line).count()
}

const DONE: &str = "\"reloaded: ";
const FAILED: &str = "the reload changes nothing: ";

#[track_caller]
fn reload(server: &Baton) {
    let before = count(server, DONE);
    server.signal(Signal::HUP);
    wait_until("a reload", RELOAD, || count(server, DONE) > before);
}

/// Returns the reasons.
#[track_caller]
fn reload_in_vain(server: &Baton) -> String {
    let before = server.log().len();
    server.signal(Signal::HUP);
    wait_until("a reload in vain", RELOAD, || {
        server.log()[before..].contains(FAILED)
    });
    // All problems are told at once.
    std::thread::sleep(Duration::from_millis(50));
    server.log()[before..].to_owned()
}

fn ask(server: &Baton, host: &str, target: &str) -> Reply {
    server.send(format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    ))
}

fn begin(server: &Baton, host: &str, target: &str) -> Conn {
    let mut conn = server.connect();
    conn.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        .expect("sent");
    conn
}

fn pids(server: &Baton) -> BTreeSet<u32> {
    let processes = server.children();
    let processes = processes.iter().filter(|one| one.name == "baton-php");
    processes.map(|process| process.pid).collect()
}

/// What the front holds: descriptors, threads, children.
fn held(server: &Baton) -> [usize; 3] {
    let pid = server.pid();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |entries| entries.count());
    let all = proc::processes();
    let children = all.iter().filter(|process| process.parent == pid).count();
    [proc::descriptors(pid), tasks, children]
}

#[track_caller]
fn settles_at(server: &Baton, wanted: [usize; 3]) {
    let mut now = held(server);
    let end = Instant::now() + RELOAD;
    while now.iter().zip(wanted).any(|(now, wanted)| *now > wanted) || now[2] != wanted[2] {
        assert!(
            Instant::now() < end,
            "descriptors, threads, children: {now:?}, not {wanted:?}; {:#?}",
            proc::descriptor_targets(server.pid())
        );
        std::thread::sleep(Duration::from_millis(50));
        now = held(server);
    }
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_until(what, RELOAD, &mut is_so);
}

/// A server that listens where its file says.
fn launch(file: PathBuf) -> Baton {
    let arguments = [OsStr::new("serve"), OsStr::new(CONFIG), file.as_os_str()];
    let command = Command::new(baton::binary());
    Baton::launch(command, Stdio::null(), &arguments).expect("it serves")
}

#[test]
fn under_load_nothing_is_lost_and_the_new_is_served() {
    let _alone = alone();
    let turns = std::env::var("BATON_RELOAD_TURNS").ok();
    let turns: usize = turns.and_then(|turns| turns.parse().ok()).unwrap_or(12);
    let site = Site::new();
    for name in ["main", "blog", "shop"] {
        site.write(&format!("{name}/who.php"), WHO);
        site.write(&format!("{name}/index.php"), WHO);
        let script = fs::read_to_string(baton_journeys::site::fixture("php").join("pid.php"));
        site.write(&format!("{name}/pid.php"), script.expect("a fixture"));
    }
    // What changes with the turn: environment, ini, threads; an app and a route come and go; a route leads elsewhere.
    let configure = |turn: usize| {
        let (threads, limit) = (3 + turn % 4, 64 + turn);
        let mut file = format!(
            "io_threads = 3\n[apps.main]\nroot = 'main'\nthreads = {threads}\nenv = {{ STAGE = 's{turn}' }}\n\
             ini = {{ memory_limit = '{limit}M' }}\n[apps.blog]\nroot = 'blog'\nthreads = 2\n"
        );
        if turn % 2 == 1 {
            file += "[apps.shop]\nroot = 'shop'\nthreads = 1\n";
            file += "[[routes]]\nhost = 'shop.example'\napp = 'shop'\n";
        }
        let app = ["main", "blog"][turn / 2 % 2];
        file += &format!("[[routes]]\npath = '/who.php'\nhost = 'b'\napp = '{app}'\n");
        file += "[[routes]]\nhost = 'blog.example'\napp = 'blog'\n[[routes]]\napp = 'main'\n";
        site.write("baton.toml", file)
    };
    let check = |server: &Baton, turn: usize| {
        let text = |host, target| ask(server, host, target).expect(200).text();
        let main = format!("main s{turn} {}M", 64 + turn);
        assert_eq!(text("a", "/who.php"), main);
        let app = ["main", "blog"][turn / 2 % 2];
        assert!(text("b", "/who.php").starts_with(app));
        assert!(text("blog.example", "/").starts_with("blog "));
        let shop = text("shop.example", "/");
        assert_eq!(shop.starts_with("shop "), turn % 2 == 1, "{shop}");
    };
    let server = Baton::configured(&configure(0));
    check(&server, 0);
    let account = Account::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..12 {
            let (account, addr) = (&account, server.addr());
            let query = ["busy=1", "ms=0", "ms=3", "ms=60"][number % 4];
            scope.spawn(move || account.client(addr, number, query));
        }
        // New connections only.
        for number in 0..4 {
            let (account, server) = (&account, &server);
            scope.spawn(move || {
                for request in 0.. {
                    if account.is_stopped() {
                        return;
                    }
                    let tag = format!("n{number}r{request}");
                    let host = ["blog.example", "a"][number % 2];
                    let reply = ask(server, host, &format!("/pid.php?ms=1&tag={tag}"));
                    let text = reply.text();
                    match reply.status() == 200 && text.ends_with(&tag) {
                        true => _ = account.answered.fetch_add(1, Ordering::Relaxed),
                        false => account.wrong(format!("{tag}: {} {text:?}", reply.status())),
                    }
                }
            });
        }
        for turn in 1..=turns {
            configure(turn);
            // Some at once are one, and perhaps one more after it.
            if turn % 3 == 0 {
                server.signal(Signal::HUP);
            }
            reload(&server);
            check(&server, turn);
        }
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    println!("{:?} requests", account.answered);
    let log = server.stop();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
}

#[test]
fn one_that_is_invalid_changes_nothing_and_says_why() {
    let _alone = alone();
    let site = Site::new();
    site.write("site/index.php", WHO);
    site.write("site/dies.php", "<?php exit(3);");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address");
    let good = "listen = '127.0.0.1:0'\n[apps.site]\nroot = 'site'\nthreads = 2\nenv = { STAGE = 'one' }\n";
    let server = launch(site.write("baton.toml", good));
    eventually("all are there", || server.app_processes().len() == 2);
    let (before, holds) = (pids(&server), held(&server));
    let other = good.replace("one", "two");
    let cases = [
        (
            other.replace("threads", "treads"),
            vec!["baton.toml:4:1", "did you mean `threads`?"],
        ),
        (
            other.replace("threads = 2", "threads = 0") + "env2 = 1\n",
            vec!["baton.toml:4:", "baton.toml:6:"],
        ),
        ("[apps.site\n".into(), vec!["baton.toml:1:"]),
        (
            other.replace("'site'", "'gone'"),
            vec!["baton.toml:3:", "gone"],
        ),
        (
            other.clone()
                + "ini_admin = { 'opcache.preload' = '/gone.php', 'opcache.preload_user' = 'www-data' }\n",
            vec!["site cannot start: ", "/gone.php"],
        ),
        (
            other.clone() + "worker = 'dies.php'\n",
            vec!["site/dies cannot start: ", "exit code"],
        ),
        (
            other.replace("'127.0.0.1:0'", &format!("['127.0.0.1:0', '{taken}']")),
            vec!["cannot listen on ", "Address already in use"],
        ),
        (
            "access_log = '/gone/access.log'\n".to_owned() + &other,
            vec!["/gone/access.log"],
        ),
    ];
    for (file, reasons) in cases {
        site.write("baton.toml", &file);
        let said = reload_in_vain(&server);
        for reason in reasons {
            assert!(
                said.contains(reason),
                "{reason} is not said for\n{file}:\n{said}"
            );
        }
        assert!(server.get("/").expect(200).text().starts_with("site one "));
        assert_eq!(count(&server, DONE), 0);
        settles_at(&server, holds);
        assert_eq!(pids(&server), before, "processes have changed for\n{file}");
    }
    fs::remove_file(site.path("baton.toml")).expect("removed");
    assert!(reload_in_vain(&server).contains("cannot read "));
    // And it is taken up when it is mended.
    site.write("baton.toml", other);
    reload(&server);
    assert!(server.get("/").expect(200).text().starts_with("site two "));
    server.stop();
}

#[test]
fn what_was_begun_is_finished_as_it_began() {
    let _alone = alone();
    let site = Site::new();
    site.write("site/slow.php", SLOW);
    site.write("site/index.php", WHO);
    let configure = |stage: &str| {
        let file = format!(
            "[apps.site]\nroot = 'site'\nthreads = 1\nenv = {{ STAGE = '{stage}' }}\n\
             deadline_ms = 3000\nkill_grace_ms = 300\n"
        );
        site.write("baton.toml", file)
    };
    let server = Baton::configured(&configure("old"));
    // One runs, the others wait in the queue; one of their clients leaves.
    let mut conns: Vec<Conn> = (0..8)
        .map(|_| begin(&server, "a", "/slow.php?ms=100"))
        .collect();
    drop(conns.pop());
    let mut body = server.connect();
    body.send("POST /slow.php?ms=0 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1")
        .expect("sent");
    configure("new");
    reload(&server);
    // Nobody waits for the old ones.
    assert!(
        ask(&server, "a", "/slow.php?ms=0")
            .expect(200)
            .text()
            .starts_with("new ")
    );
    body.send("2").expect("sent");
    assert!(
        body.reply()
            .expect("a reply")
            .expect(200)
            .text()
            .starts_with("new ")
    );
    for conn in &mut conns {
        let text = conn.reply().expect("a reply").expect(200).text();
        assert!(text.starts_with("old "), "{text}");
        // The same connection goes on with the new one.
        let next = conn.ask("GET /slow.php?ms=0 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            next.expect("a reply")
                .expect(200)
                .text()
                .starts_with("new ")
        );
    }
    eventually("the old ones end", || {
        server.app_processes().len() == 1 && server.zygotes().len() == 1
    });
    // Over its deadline: cut as ever, and the application that had it ends.
    let mut late = begin(&server, "a", "/slow.php?ms=60000");
    eventually("it runs", || server.app_processes().len() == 1);
    configure("newest");
    reload(&server);
    assert!(
        ask(&server, "a", "/")
            .expect(200)
            .text()
            .contains(" newest ")
    );
    late.reply().expect("a reply").expect(504);
    eventually("the old ones end", || {
        server.app_processes().len() == 1 && server.zygotes().len() == 1
    });
    server.stop();
}

#[test]
fn what_reloads_leave_behind_is_bounded() {
    let _alone = alone();
    let site = Site::new();
    site.write("site/slow.php", SLOW);
    site.write("site/index.php", WHO);
    let configure = |turn: usize| {
        let file =
            format!("[apps.site]\nroot = 'site'\nthreads = 4\nenv = {{ STAGE = 's{turn}' }}\n");
        site.write("baton.toml", file)
    };
    let server = Baton::configured(&configure(0));
    let mut conns = Vec::new();
    let mut most = [0; 2];
    for turn in 1..=7 {
        let before = turn - 1;
        conns.push((before, begin(&server, "a", "/slow.php?ms=2500")));
        ask(&server, "a", "/slow.php?ms=0").expect(200);
        configure(turn);
        reload(&server);
        assert!(
            ask(&server, "a", "/")
                .expect(200)
                .text()
                .contains(&format!(" s{turn} "))
        );
        // Of the old ones only those stay that are busy, and those that were about to fork.
        let now = [server.zygotes().len(), server.app_processes().len()];
        most = [most[0].max(now[0]), most[1].max(now[1])];
    }
    println!("{most:?} zygotes and processes");
    assert!(most[0] <= 6, "{most:?}");
    for (turn, mut conn) in conns {
        let text = conn.reply().expect("a reply").expect(200).text();
        assert!(text.starts_with(&format!("s{turn} ")), "{text}");
    }
    eventually("the old ones end", || server.zygotes().len() == 1);
    server.stop();
}

#[test]
fn fifty_leave_nothing_behind() {
    let _alone = alone();
    let site = Site::new();
    site.write("site/index.php", WHO);
    site.write("site/files/large.bin", vec![b'x'; 200_000]);
    site.write(
        "work/worker.php",
        "<?php while (frankenphp_handle_request(function () { echo getenv('STAGE'); }));",
    );
    site.write("work/other.php", WHO);
    let configure = |turn: usize| {
        let file = format!(
            "env = {{ STAGE = 's{turn}' }}\nthreads = 2\naccess_log = '{}'\n\
             [apps.site]\nroot = 'site'\nwatch = ['src']\n\
             [apps.work]\nroot = 'work'\nworker = 'worker.php'\n\
             [[routes]]\nhost = 'work'\napp = 'work'\n[[routes]]\napp = 'site'\n",
            site.path(&format!("access{}.log", turn % 2)).display()
        );
        site.write("baton.toml", file)
    };
    fs::create_dir_all(site.path("site/src")).expect("a folder");
    let server = Baton::configured(&configure(0));
    let visit = |turn: usize| {
        let stage = format!("s{turn}");
        assert!(ask(&server, "a", "/").expect(200).text().contains(&stage));
        assert_eq!(
            ask(&server, "a", "/files/large.bin").expect(200).body.len(),
            200_000
        );
        assert_eq!(ask(&server, "work", "/").expect(200).text(), stage);
        // Wakes the regular threads.
        assert!(
            ask(&server, "work", "/other.php")
                .expect(200)
                .text()
                .contains(&stage)
        );
    };
    let settled = || eventually("they settle", || server.app_processes().len() == 6);
    // Once before, so that whatever is made only once is there.
    configure(1);
    reload(&server);
    visit(1);
    settled();
    eventually("the old ones are gone", || server.zygotes().len() == 3);
    let before = held(&server);
    for turn in 2..52 {
        configure(turn);
        reload(&server);
        if turn % 5 == 0 {
            visit(turn);
        }
    }
    visit(51);
    settles_at(&server, before);
    let log = server.stop();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    let lines = |n: usize| fs::read_to_string(site.path(&format!("access{n}.log")));
    let lines = [0, 1].map(|n| lines(n).expect("a log").lines().count());
    // Each visit is four lines; the even turns that are visited are 10, 20, 30, 40 and 50.
    assert_eq!(lines, [20, 4 * (1 + 5 + 1)]);
}

#[test]
fn the_same_file_means_new_code() {
    let _alone = alone();
    let site = Site::new();
    for version in ["one", "two"] {
        site.write(
            &format!("{version}/index.php"),
            format!("<?php echo '{version} ', getmypid();"),
        );
        site.write(&format!("{version}/style.css"), version);
    }
    symlink("one", site.path("current")).expect("a link");
    let server = Baton::configured(&site.write("baton.toml", "root = 'current'\nthreads = 1\n"));
    let text = |target: &str| server.get(target).expect(200).text();
    let first = text("/");
    assert!(first.starts_with("one "));
    // The same processes would not do.
    reload(&server);
    eventually("restarted", || {
        text("/").starts_with("one ") && text("/") != first
    });
    // Deployed by a link that leads elsewhere.
    fs::remove_file(site.path("current")).expect("removed");
    symlink("two", site.path("current")).expect("a link");
    reload(&server);
    assert!(text("/").starts_with("two "));
    assert_eq!(text("/style.css"), "two");
    // Deployed by another folder in the place of this one.
    fs::rename(site.path("two"), site.path("old")).expect("moved");
    site.write("two/index.php", "<?php echo 'three';");
    site.write("two/style.css", "three");
    reload(&server);
    assert_eq!(text("/style.css"), "three");
    eventually("restarted", || text("/") == "three");
    server.stop();
}

#[test]
fn the_server_s_own_options_change_too() {
    let _alone = alone();
    let site = Site::new();
    site.write(
        "index.php",
        "<?php echo $_SERVER['REMOTE_ADDR'], ' ', $_SERVER['SERVER_PORT'];",
    );
    let socket = site.writable("run").join("web.sock");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let (second, first_log) = (free.expect("a port"), site.path("first.log"));
    let configure = |more: &str| {
        let file = format!("threads = 1\nlisten = ['127.0.0.1:0', {more}\n");
        site.write("baton.toml", file)
    };
    let server = launch(configure("]"));
    let mut kept = server.connect();
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    kept.ask(get).expect("a reply").expect(200);

    configure(&format!(
        "'{second}', 'unix:{}']\nbody_bytes_max = 1\naccess_log = '{}'\ntrusted_proxies = ['127.0.0.1']\n",
        socket.display(),
        first_log.display(),
    ));
    reload(&server);
    let large = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n12";
    client::send(second, large).expect(413);
    UnixStream::connect(&socket).expect("it listens");
    // The trust in a connection is that of its beginning.
    let from = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n";
    let text = |conn: &mut Conn| conn.ask(from).expect("a reply").expect(200).text();
    assert!(text(&mut Conn::open(second)).starts_with("192.0.2.7 "));
    assert!(text(&mut server.connect()).starts_with("192.0.2.7 "));
    assert!(text(&mut kept).starts_with("127.0.0.1 "));
    assert!(
        server
            .log()
            .contains(&format!("serving on http://{second}"))
    );

    configure(
        "]\nio_threads = 3\nlog_format = 'human'\nadmin = 'off'\nadmin_token_file = 'token'\n",
    );
    reload(&server);
    let log = server.log();
    for option in ["io_threads", "log_format", "admin", "admin_token_file"] {
        assert!(
            log.contains(&format!("{option} has changed: that takes effect when")),
            "{log}"
        );
    }
    assert!(!log.contains("body_bytes_max has changed"));
    kept.ask(get).expect("a reply").expect(200);
    let refused = |addr: SocketAddr| TcpStream::connect(addr).is_err();
    eventually("the second listener is closed", || {
        refused(second) && !socket.exists()
    });
    server.send(large).expect(200);
    let lines = fs::read_to_string(&first_log).expect("a log");
    assert_eq!(lines.lines().count(), 4, "{lines}");
    server.stop();
}

#[test]
fn a_server_that_is_stopped_in_a_reload_ends() {
    let _alone = alone();
    let site = Site::new();
    site.write("site/index.php", WHO);
    let folder = site.writable("signs");
    let boot = format!("<?php touch('{}/boots'); sleep(60);", folder.display());
    site.write("site/boots.php", boot);
    let file = "[apps.site]\nroot = 'site'\nthreads = 2\n";
    let server = Baton::configured(&site.write("baton.toml", file));
    site.write("baton.toml", format!("{file}worker = 'boots.php'\n"));
    server.signal(Signal::HUP);
    eventually("the worker boots", || folder.join("boots").exists());
    assert!(server.get("/").expect(200).text().starts_with("site "));
    // `stop` asserts that it ends soon, with all its processes.
    server.stop();
}

#[test]
fn a_client_that_reads_slowly_gets_its_reply_from_the_old_one() {
    let _alone = alone();
    let site = Site::new();
    site.write(
        "site/large.php",
        // More than the kernel's buffers of both sides hold.
        "<?php for ($i = 0; $i < 1024; $i++) { echo str_repeat(chr(65 + $i % 26), 65536); }",
    );
    site.write("site/index.php", WHO);
    let file = "reply_spill_bytes_max = 0\n[apps.site]\nroot = 'site'\nthreads = 1\nenv = { STAGE = 'old' }\n";
    let server = Baton::configured(&site.write("baton.toml", file));
    let mut slow = begin(&server, "a", "/large.php");
    let _ = slow.stream().flush();
    eventually("it runs", || !server.app_processes().is_empty());
    std::thread::sleep(Duration::from_millis(100));
    site.write("baton.toml", file.replace("old", "new"));
    reload(&server);
    assert!(ask(&server, "a", "/").expect(200).text().contains(" new "));
    assert_eq!(server.zygotes().len(), 2, "the old one is still there");
    let reply = slow.reply().expect("a reply").expect(200);
    let letters = (0..1024).map(|i| b'A' + (i % 26) as u8);
    let expected: Vec<u8> = letters.flat_map(|letter| vec![letter; 65536]).collect();
    assert!(reply.body == expected);
    eventually("the old one ends", || server.zygotes().len() == 1);
    server.stop();
}
