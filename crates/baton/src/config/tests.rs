//! Configuration files as people write them, with and without mistakes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::{CommandFactory, FromArgMatches};

use baton_dispatch::autoscale::ScaleLimits;

use super::{AppConfig, Configuration, Given, of_file};
use crate::options::{Command, CommandLine};
use crate::routes::Routes;

/// A folder with a `baton.toml` and some applications.
struct Place(PathBuf);

impl Place {
    fn with(file: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("baton-config-{}-{number}", std::process::id());
        let place = Self(std::env::temp_dir().join(folder));
        place.write("blog/public/index.php", "");
        place.write("blog/public/worker.php", "");
        place.write("blog/bin/jobs.php", "");
        place.write("shop/index.php", "");
        place.write("baton.toml", file);
        place
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    /// Of `baton check`.
    fn check(&self) -> Result<Configuration, Vec<String>> {
        of_file(&self.0.join("baton.toml")).map_err(|lines| self.shortened(lines))
    }

    /// Of `baton serve --config baton.toml MORE`.
    fn serve(&self, more: &[&str]) -> Result<Configuration, Vec<String>> {
        let file = self.0.join("baton.toml");
        let file = file.to_str().expect("a plain path");
        let start = ["baton", "serve", "--config", file];
        let line = start.iter().chain(more);
        let matches = CommandLine::command()
            .try_get_matches_from(line)
            .expect("a good command line");
        let Ok(Command::Serve(arguments)) =
            CommandLine::from_arg_matches(&matches).map(|line| line.command)
        else {
            panic!("baton serve")
        };
        let given = matches.subcommand_matches("serve").expect("serve");
        let given = Given::new(&arguments, given);
        given.load().map_err(|lines| self.shortened(lines))
    }

    fn shortened(&self, lines: Vec<String>) -> Vec<String> {
        let folder = format!("{}/", self.0.display());
        lines.iter().map(|line| line.replace(&folder, "")).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pairs(pairs: &[crate::values::Pair]) -> Vec<(&str, &str)> {
    let both = pairs
        .iter()
        .map(|pair| (pair.name.as_str(), pair.value.as_str()));
    both.collect()
}

const FLAT: &str = r#"
threads = 3
deadline_ms = 500
listen = ["127.0.0.1:1", "127.0.0.1:2"]
retry = true
env = ["A=1", "B=2"]
"#;

#[test]
fn the_file_speaks_where_the_command_line_is_silent() {
    let place = Place::with(FLAT);
    let shop = place.0.join("shop");
    let path = shop.to_str().expect("a plain path");
    let more = [
        path,
        "--deadline-ms",
        "700",
        "--env",
        "B=3",
        "--retry=false",
    ];
    let configuration = place.serve(&more).expect("good");
    let app = &configuration.apps[0];
    assert_eq!(app.project.name, "shop");
    assert_eq!(
        (
            app.options.threads,
            app.options.deadline_ms,
            app.options.retry
        ),
        (Some(3), 700, false)
    );
    assert_eq!(pairs(&app.options.env), [("A", "1"), ("B", "3")]);
    assert_eq!(configuration.server.listen.len(), 2);
    let configuration = place
        .serve(&[path, "--listen", "127.0.0.1:9"])
        .expect("good");
    assert_eq!(configuration.server.listen.len(), 1);
}

#[test]
fn without_apps_the_file_is_about_its_own_folder_or_its_root() {
    let place = Place::with("threads = 1");
    place.write("index.php", "");
    let root = place.0.canonicalize().expect("there");
    assert_eq!(place.check().expect("good").apps[0].project.root, root);
    place.write("baton.toml", "root = 'blog'");
    let configuration = place.check().expect("good");
    assert_eq!(configuration.apps[0].project.root, root.join("blog/public"));
    assert_eq!(configuration.routes, Routes::Only);
}

const TWO_APPS: &str = r#"
listen = "unix:web.sock"
access_log = "log/access"
log = "/var/log/baton"
threads = 5
env = { WHERE = "here", A = "1" }
ini = { memory_limit = "256M", display_errors = false, precision = 17, "x.y" = 0.5 }

[apps.shop]
root = "shop"

[apps.blog]
root = "blog"
threads = 7
env = { A = "2" }
ini = ["memory_limit=1G"]
[[apps.blog.workers]]
file = "public/worker.php"
name = "web"
threads = 4
max_requests = 500
[[apps.blog.workers]]
file = "bin/jobs.php"

[[routes]]
host = "*.example"
app = "blog"
[[routes]]
app = "shop"
"#;

fn app<'c>(configuration: &'c Configuration, name: &str) -> &'c AppConfig {
    let mut apps = configuration.apps.iter();
    apps.find(|app| app.project.name == name).expect("the app")
}

#[test]
fn apps_have_their_own_and_what_the_top_says_for_all() {
    let place = Place::with(TWO_APPS);
    let configuration = place.check().expect("good");
    let (shop, blog) = (app(&configuration, "shop"), app(&configuration, "blog"));
    assert_eq!(
        (shop.options.threads, blog.options.threads),
        (Some(5), Some(7))
    );
    assert_eq!(pairs(&shop.options.env), [("A", "1"), ("WHERE", "here")]);
    assert_eq!(pairs(&blog.options.env), [("WHERE", "here"), ("A", "2")]);
    let ini = [
        ("display_errors", "0"),
        ("precision", "17"),
        ("x.y", "0.5"),
        ("memory_limit", "1G"),
    ];
    assert_eq!(pairs(&blog.options.ini), ini);
    let [web, jobs] = blog.workers.as_slice() else {
        panic!("two workers")
    };
    let root = place.0.canonicalize().expect("there");
    assert_eq!(
        (web.name.as_str(), bounds(web.limits), web.max_requests),
        ("web", (4, 4), Some(500))
    );
    assert_eq!(web.script.file, root.join("blog/public/worker.php"));
    assert_eq!(
        (web.script.name.as_str(), web.script.is_public),
        ("/worker.php", true)
    );
    assert_eq!(
        (jobs.name.as_str(), bounds(jobs.limits), jobs.max_requests),
        ("jobs", (7, 7), None)
    );
    assert_eq!(jobs.script.folder, root.join("blog/bin"));
    assert_eq!(
        (jobs.script.name.as_str(), jobs.script.is_public),
        ("/jobs.php", false)
    );
    // Paths begin at the file, whoever reads it from where.
    assert_eq!(
        configuration.server.access_log,
        Some(place.0.join("log/access"))
    );
    assert_eq!(configuration.server.log, Some("/var/log/baton".into()));
    let socket = format!("{:?}", configuration.server.listen[0]);
    assert!(
        socket.contains(&format!("{}/web.sock", place.0.display())),
        "{socket}"
    );
    // The order is that of the file.
    assert_eq!(
        configuration.routes.app_for(Some("a.example"), b"/"),
        Some(1)
    );
    assert_eq!(configuration.routes.app_for(Some("a"), b"/"), Some(0));
}

#[test]
fn the_command_line_wins_over_the_top_but_not_over_an_app() {
    let place = Place::with(TWO_APPS);
    let configuration = place.serve(&["--threads", "9"]).expect("good");
    let threads = |name| app(&configuration, name).options.threads;
    assert_eq!((threads("shop"), threads("blog")), (Some(9), Some(7)));
    let problems = place
        .serve(&["/srv", "--worker", "w.php"])
        .expect_err("of one app");
    let told = |option: &str| problems.iter().any(|line| line.starts_with(option));
    assert!(
        told("PATH is of one app") && told("--worker is of one app"),
        "{problems:?}"
    );
}

#[test]
fn what_was_read_can_be_compared() {
    let place = Place::with(TWO_APPS);
    let before = place.check().expect("good");
    assert_eq!(place.check().expect("good"), before);
    place.write(
        "baton.toml",
        &TWO_APPS.replace("threads = 7", "threads = 8"),
    );
    let after = place.check().expect("good");
    assert_eq!(app(&after, "shop"), app(&before, "shop"));
    assert_ne!(app(&after, "blog"), app(&before, "blog"));
}

#[test]
fn a_worker_has_a_short_form() {
    let place = Place::with("root = 'blog'\nworker = 'public/worker.php'\nmax_requests = 9\n");
    let configuration = place.check().expect("good");
    let app = &configuration.apps[0];
    let [worker] = app.workers.as_slice() else {
        panic!("one worker")
    };
    assert_eq!(
        (worker.name.as_str(), worker.max_requests),
        ("worker", Some(9))
    );
    assert_eq!(bounds(worker.limits), (2 * crate::options::cores(), 4096));
    assert_eq!(bounds(app.limits), (2, 4096));
}

/// The least and the most.
fn bounds(limits: ScaleLimits) -> (u32, u32) {
    (limits.threads_min, limits.threads_max)
}

#[test]
fn threads_move_between_a_least_and_a_most_or_are_fixed() {
    let bounds_of = |file: &str, more: &[&str]| {
        let place = Place::with(file);
        let configuration = place.serve(more).expect("good");
        let app = &configuration.apps[0];
        let workers = app.workers.iter().map(|worker| bounds(worker.limits));
        std::iter::once(bounds(app.limits))
            .chain(workers)
            .collect::<Vec<_>>()
    };
    let usual = 2 * crate::options::cores();
    assert_eq!(bounds_of("root = 'blog'", &[]), [(usual, 4096)]);
    assert_eq!(
        bounds_of("root = 'blog'\nnum_threads = 3", &[]),
        [(3, 4096)]
    );
    assert_eq!(bounds_of("root = 'blog'\nmax_threads = 1", &[]), [(1, 1)]);
    let both = "root = 'blog'\nnum_threads = 2\nmax_threads = 9";
    assert_eq!(bounds_of(both, &[]), [(2, 9)]);
    assert_eq!(bounds_of(both, &["--max-threads", "auto"]), [(2, 4096)]);
    // What is said in a more particular place counts as a whole.
    assert_eq!(bounds_of(both, &["--threads", "5"]), [(5, 5)]);
    assert_eq!(
        bounds_of(
            "root = 'blog'\nthreads = 5",
            &["--max-threads", "9", "--num-threads", "1"]
        ),
        [(1, 9)]
    );
    let workers = "root = 'blog'\nnum_threads = 2\nmax_threads = 9\nidle_ms_max = 500\n\
                   [[workers]]\nfile = 'public/worker.php'\nmax_threads = 'auto'\n\
                   [[workers]]\nfile = 'bin/jobs.php'\nthreads = 1\n";
    assert_eq!(bounds_of(workers, &[]), [(2, 9), (2, 4096), (1, 1)]);
}

#[test]
fn threads_that_cannot_be_are_refused() {
    for (file, place, part) in [
        (
            "num_threads = -1\nroot = 'blog'",
            "1:15",
            "-1 is not in 1..=4096",
        ),
        (
            "max_threads = 0\nroot = 'blog'",
            "1:15",
            "0 is neither in 1..=4096 nor auto",
        ),
        (
            "max_threads = 'some'\nroot = 'blog'",
            "1:15",
            "some is neither",
        ),
        (
            "max_threads = true\nroot = 'blog'",
            "1:15",
            "a whole number or \"auto\"",
        ),
        (
            "idle_ms_max = 0\nroot = 'blog'",
            "1:15",
            "0 is not in 100..=",
        ),
        (
            "root = 'blog'\nnum_threads = 5\nmax_threads = 4",
            "2:15",
            "is 5: more than `max_threads`, 4",
        ),
        (
            "root = 'blog'\nthreads = 5\nmax_threads = 9",
            "3:15",
            "`threads` fixes the number",
        ),
        (
            "root = 'blog'\nthreads = 5\nthreads_max = 4",
            "3:15",
            "have 5 threads at least",
        ),
        (
            "root = 'blog'\nmax_threads = 4\n[[workers]]\nfile = 'bin/jobs.php'\nnum_threads = 5",
            "4:8",
            "is 5: more than `max_threads`, 4",
        ),
    ] {
        assert_problems(file, &[(place, part)]);
    }
}

/// Every problem, in order: each line begins with its place and has the part.
#[track_caller]
fn assert_problems(file: &str, expected: &[(&str, &str)]) {
    let place = Place::with(file);
    let problems = place.check().expect_err("mistakes");
    let matches = problems.len() == expected.len()
        && problems.iter().zip(expected).all(|(line, (at, part))| {
            line.starts_with(&format!("baton.toml:{at}: ")) && line.contains(part)
        });
    assert!(matches, "{problems:#?}\nexpected: {expected:#?}");
}

#[test]
fn values_are_told_with_what_was_expected() {
    let file = r#"root = "shop"
threads = 0
deadline_ms = "1s"
retry = "yes"
log_format = "jsn"
listen = ["127.0.0.1:80", "nonsense", 7]
env = { A = [1], B = "x" }
ini = ["memory_limit"]
body_bytes_max = -1
user = { }
io_threads = 1.5
"#;
    assert_problems(
        file,
        &[
            ("2:11", "`threads`: 0 is not in 1..=4096"),
            ("3:15", "`deadline_ms` is a string; expected a whole number"),
            ("4:9", "`retry` is a string; expected true or false"),
            (
                "5:14",
                "\"jsn\" is none of auto, human, json; did you mean json?",
            ),
            ("6:27", "expected HOST:PORT"),
            (
                "6:39",
                "`listen` is a number; expected a string, or a list of these",
            ),
            (
                "7:13",
                "`A` is a list; expected a string, a number, or true or false",
            ),
            ("8:8", "expected NAME=VALUE"),
            (
                "9:18",
                "-1 is out of range; expected largest request body, in bytes",
            ),
            ("10:8", "`user` is a table; expected a string"),
            ("11:14", "expected a whole number"),
        ],
    );
}

#[test]
fn keys_are_told_with_the_nearest_or_with_their_place() {
    assert_problems(
        r#"thread = 3
config = "x"
host = "a"
root = "shop"
[apps.shop]
root = "shop"
listen = ":80"
memory_limit = "1G"
[apps."a b"]
[[apps.shop.workers]]
files = "x.php"
[[routes]]
apps = "shop"
"#,
        &[
            ("1:1", "unknown key `thread`; did you mean `threads`?"),
            ("2:1", "of the command line"),
            ("3:1", "of [[routes]]"),
            ("4:8", "it belongs into [apps.NAME]"),
            ("7:1", "of the server, for the top of the file"),
            ("8:1", "unknown key `memory_limit`; expected one of"),
            ("9:7", "the app's name \"a b\": expected 1 to 64"),
            ("9:7", "`root` is missing: the folder of the app `a b`"),
            ("10:1", "`file` is missing: PHP script that boots once"),
            ("11:1", "did you mean `file`?"),
            ("12:1", "`app` is missing: the application"),
            ("13:1", "did you mean `app`?"),
        ],
    );
}

#[test]
fn what_cannot_work_together_is_told() {
    assert_problems(
        r#"listen = ["127.0.0.1:80", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:80", "unix:/x proxy_protocol"]
ini_file = "no.ini"
[apps.shop]
root = "shops"
[apps.blog]
root = "blog"
[[apps.blog.workers]]
file = "public/work.php"
[[apps.blog.workers]]
file = "public/worker.php"
[[apps.blog.workers]]
file = "public/../public/worker.php"
[[apps.blog.workers]]
file = "bin/jobs.php"
name = "worker"
[[apps.blog.workers]]
file = "bin"
[apps.other]
root = "shop"
[[routes]]
host = "*.example"
app = "shop"
[[routes]]
host = "a.example"
path = "/x"
app = "shop"
[[routes]]
app = "blog"
[[routes]]
host = "b"
app = "other"
"#,
        &[
            ("1:57", "twice"),
            ("1:73", "needs `trusted_proxies`"),
            ("2:12", "cannot read"),
            ("4:8", "cannot serve shops"),
            ("8:8", "work.php"),
            ("12:8", "another worker of the app has this script"),
            ("14:8", "another worker of the app is called worker"),
            ("17:8", "not a .php script"),
            ("23:1", "never reached: it is covered by the one in line 20"),
            ("29:1", "never reached: it is covered by the one in line 27"),
        ],
    );
    assert_problems(
        "[apps.shop]\nroot = 'shop'\n[apps.blog]\nroot = 'blog'\n",
        &[("3:7", "[[routes]] must say")],
    );
    assert_problems(
        "[apps.shop]\nroot = 'shop'\n[apps.blog]\nroot = 'blog'\n[[routes]]\napp = 'shopp'\n[[routes]]\napp = 'x'",
        &[
            ("6:7", "there is no app shopp; did you mean shop?"),
            ("8:7", "there is no app x; expected one of shop, blog"),
        ],
    );
    assert_problems(
        "[apps.shop]\nroot = 'shop'\n[apps.blog]\nroot = 'blog'\n[[routes]]\napp = 'shop'",
        &[("3:7", "no route leads to the app blog")],
    );
    assert_problems(
        "apps = 3\nroutes = 'x'",
        &[("1:8", "[apps.NAME]"), ("2:10", "[[routes]]")],
    );
    assert_problems(
        "root = 'shop'\n[[routes]]\napp = 'x'",
        &[("2:1", "there is no [apps.NAME]")],
    );
    assert_problems(
        "root = 'blog'\nworker = 'public/worker.php'\n[[workers]]\nfile = 'bin/jobs.php'",
        &[("3:1", "short form")],
    );
}

#[test]
fn what_is_no_toml_is_told_line_by_line() {
    assert_problems(
        "listen = ['a',\nthreads = 3\nretry = true\n[apps.blog]\nroot = 'x'\n",
        &[("2:1", "invalid")],
    );
    assert_problems("[apps.blog\nroot = 'x'\n", &[("1:11", "unclosed table")]);
    assert_problems(
        "threads = \nretry = yes\nlisten = 'a' b = 1\n",
        &[("1:11", "quoted"), ("2:9", "quoted"), ("3:14", "newline")],
    );
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let place = Place::with("");
    std::fs::remove_file(place.0.join("baton.toml")).expect("removed");
    let problems = place.check().expect_err("not there");
    assert!(
        problems[0].starts_with("cannot read baton.toml: "),
        "{problems:?}"
    );
}
