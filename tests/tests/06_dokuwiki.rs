//! A real application: DokuWiki from Debian's package. Its program files are served unchanged, from a private copy that
//! has its configuration and data inside, as DokuWiki's own releases do. Debian's package keeps those in /etc/dokuwiki and
//! /var/lib/dokuwiki and points there from `inc/preload.php`: that one file is left out of the copy.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use baton_journeys::browser::{encode, form, set, unescape};
use baton_journeys::site::{copy_tree, open_to_all};
use baton_journeys::{Baton, Browser, Multipart, Reply, Site};

const PACKAGE: &str = "/usr/share/dokuwiki";
const PASSWORD: &str = "correct horse";
const CLIENTS: usize = 20;
const ROUNDS: usize = 2;

fn wiki() -> Site {
    assert!(
        Path::new(PACKAGE).join("doku.php").exists(),
        "the package dokuwiki is missing: make deps-test"
    );
    let site = Site::new();
    copy_tree(Path::new(PACKAGE), site.root());
    fs::remove_file(site.path("inc/preload.php")).expect("Debian's preload.php");
    copy_tree(Path::new("/etc/dokuwiki"), &site.path("conf"));
    // What the installer writes must not be there yet. It takes presets from install.conf.
    for file in ["local.php", "users.auth.php", "acl.auth.php"] {
        let _ = fs::remove_file(site.path("conf").join(file));
    }
    site.write("install.conf", "$conf['savedir'] = './data';\n");
    for folder in [
        "pages",
        "attic",
        "media",
        "media_attic",
        "media_meta",
        "meta",
        "cache",
        "locks",
        "index",
        "tmp",
        "log",
    ] {
        site.writable(&format!("data/{folder}"));
    }
    for folder in ["conf", "data"] {
        open_to_all(&site.path(folder));
    }
    site
}

/// No page may show an error of PHP's, or be cut off.
#[track_caller]
fn page(reply: Reply) -> String {
    let reply = reply.expect(200);
    let html = reply.text();
    for bad in [
        "Fatal error",
        "<b>Warning</b>",
        "<b>Notice</b>",
        "<b>Deprecated</b>",
        "Uncaught",
    ] {
        assert!(!html.contains(bad), "{bad} in {}", brief(&html));
    }
    assert!(
        html.trim_end().ends_with("</html>"),
        "cut off: ...{}",
        &html[html.len().saturating_sub(200)..]
    );
    html
}

/// What a page says: its text without the head, scripts and drawings.
fn brief(html: &str) -> String {
    let content = html
        .find("id=\"dokuwiki__content\"")
        .map_or(html, |at| &html[at..]);
    content
        .split("<svg")
        .map(|part| part.split("</svg>").last().unwrap_or_default())
        .collect::<String>()
        .chars()
        .take(4_000)
        .collect()
}

fn install(browser: &mut Browser) {
    let html = page(browser.get("/install.php"));
    let mut fields = form(&html, "method=\"post\"");
    for (name, value) in [
        ("d[title]", "Journey Wiki"),
        ("d[acl]", "on"),
        ("d[superuser]", "chief"),
        ("d[fullname]", "The Chief"),
        ("d[email]", "chief@example.org"),
        ("d[password]", PASSWORD),
        ("d[confirm]", PASSWORD),
        ("d[policy]", "1"),
        ("submit", ""),
    ] {
        set(&mut fields, name, value);
    }
    fields.retain(|(name, _)| name != "d[pop]");
    let html = page(browser.post("/install.php", &fields));
    assert!(
        html.contains("configuration was finished successfully"),
        "{}",
        brief(&html)
    );
}

#[track_caller]
fn log_in(browser: &mut Browser, user: &str, name: &str) {
    let html = page(browser.get("/doku.php?id=start&do=login"));
    let mut fields = form(&html, "id=\"dw__login\"");
    set(&mut fields, "u", user);
    set(&mut fields, "p", PASSWORD);
    let html = page(browser.post("/doku.php?id=start", &fields));
    assert!(
        shows_user(&html, user, name),
        "{user} is not logged in: {}",
        brief(&html)
    );
}

/// Whether the page was made for this user.
fn shows_user(html: &str, user: &str, name: &str) -> bool {
    html.contains("Logged in as:")
        && html.contains(&format!("<bdi>{name}</bdi> (<bdi>{user}</bdi>)"))
}

#[track_caller]
fn edit(browser: &mut Browser, id: &str, text: &str) -> String {
    let html = page(browser.get(&format!("/doku.php?id={id}&do=edit")));
    let mut fields = form(&html, "id=\"dw__editform\"");
    set(&mut fields, "wikitext", text);
    set(&mut fields, "summary", "a journey");
    set(&mut fields, "do[save]", "1");
    page(browser.post(&format!("/doku.php?id={id}"), &fields))
}

#[track_caller]
fn upload(browser: &mut Browser, namespace: &str, name: &str, image: &[u8]) {
    let html = page(browser.get(&format!("/lib/exe/mediamanager.php?ns={namespace}")));
    let hidden = form(&html, "id=\"dw__upload\"");
    let mut body = Multipart::new();
    for (field, value) in hidden.iter().filter(|(n, _)| n != "mediaid") {
        body = body.field(field, value);
    }
    let body = body
        .field("mediaid", name)
        .file("upload", name, "image/png", image);
    let html =
        page(browser.post_multipart(&format!("/lib/exe/mediamanager.php?ns={namespace}"), body));
    assert!(html.contains("Upload successful"), "{}", brief(&html));
}

/// The address of the first image on a page whose source has `part`.
#[track_caller]
fn image_source(html: &str, part: &str) -> String {
    html.split("<img ")
        .skip(1)
        .filter_map(|tag| tag.split("src=\"").nth(1)?.split('"').next())
        .map(unescape)
        .find(|source| source.contains(part))
        .unwrap_or_else(|| panic!("no image with {part}: {}", brief(html)))
}

fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert!(
        bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.ends_with(b"IEND\xaeB`\x82"),
        "no whole PNG"
    );
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}

fn test_image(site: &Site) -> Vec<u8> {
    fs::read(site.path("lib/tpl/dokuwiki/images/logo.png")).expect("an image of the package")
}

#[track_caller]
fn thumbnail(browser: &mut Browser, html: &str, name: &str, width: u32) {
    let reply = browser.get(&image_source(html, name)).expect(200);
    assert_eq!(reply.header("content-type"), Some("image/png"));
    assert_eq!(png_size(&reply.body).0, width);
}

#[track_caller]
fn search(browser: &mut Browser, id: &str, word: &str) {
    // What a page's last image does in a browser: index the page. Only one client at a time can; others try again later.
    for _ in 0..50 {
        let reply = browser
            .get(&format!("/lib/exe/taskrunner.php?id={id}"))
            .expect(200);
        assert_eq!(reply.header("content-type"), Some("image/gif"));
        let html = page(browser.get(&format!("/doku.php?do=search&q={}", encode(word))));
        if html.contains(&format!("id={id}")) && html.contains("search_hit") {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{word} was not found");
}

fn add_user(chief: &mut Browser, user: &str, name: &str) {
    let html = page(chief.get("/doku.php?id=start&do=admin&page=usermanager"));
    let at = html.find("name=\"fn[add]\"").expect("a form for users");
    let start = html[..at].rfind("<form").expect("its form");
    let mut add = form(&html[start..], "<form");
    for (field, value) in [
        ("userid", user),
        ("userpass", PASSWORD),
        ("userpass2", PASSWORD),
        ("username", name),
        ("usermail", &format!("{user}@example.org")),
        ("usergroups", "user"),
        ("fn[add]", "1"),
    ] {
        set(&mut add, field, value);
    }
    let html = page(chief.post("/doku.php?id=start&do=admin&page=usermanager", &add));
    assert!(html.contains("User added successfully"), "{}", brief(&html));
}

/// What one user does, again and again; every page must be this user's.
fn one_client(server: &Baton, number: usize, image: &[u8]) {
    let (user, name) = (format!("user{number}"), format!("Person Number {number}"));
    let mut browser = Browser::new(server.addr());
    log_in(&mut browser, &user, &name);
    let id = format!("journey:page{number}");
    for round in 0..ROUNDS {
        let word = format!("word{number}x{round}");
        let picture = format!("picture{number}x{round}.png");
        let space = format!("space{number}");
        upload(&mut browser, &space, &picture, image);
        let text = format!(
            "====== {user} ======\n\nThis is {word}. {{{{:{space}:{picture}?{}}}}}\n",
            40 + number
        );
        let html = edit(&mut browser, &id, &text);
        for html in [html, page(browser.get(&format!("/doku.php?id={id}")))] {
            assert!(
                shows_user(&html, &user, &name),
                "{user} got the page of another: {}",
                brief(&html)
            );
            assert!(
                html.contains(&format!("This is {word}.")),
                "{user} does not see {word}: {}",
                brief(&html)
            );
            thumbnail(&mut browser, &html, &picture, 40 + number as u32);
        }
        search(&mut browser, &id, &word);
    }
    let html = page(browser.get("/doku.php?id=start&do=profile"));
    assert!(
        html.contains(&format!("value=\"{user}\"")) || html.contains(&name),
        "{}",
        brief(&html)
    );
}

#[test]
fn dokuwiki_from_installation_to_twenty_clients() {
    let site = wiki();
    let image = test_image(&site);
    let server = Baton::serve(site.root());
    let mut chief = Browser::new(server.addr());

    install(&mut chief);
    assert!(site.path("conf/local.php").exists() && site.path("conf/users.auth.php").exists());
    let front = page(chief.get("/"));
    assert!(front.contains("Journey Wiki"), "{front}");
    for file in [
        "/lib/tpl/dokuwiki/images/logo.png",
        "/lib/exe/css.php?t=dokuwiki",
        "/lib/exe/js.php?t=dokuwiki",
        "/lib/images/throbber.gif",
    ] {
        assert!(!chief.get(file).expect(200).body.is_empty(), "{file}");
    }

    log_in(&mut chief, "chief", "The Chief");
    edit(
        &mut chief,
        "start",
        "====== Start ======\n\nA welcome by marmalade.\n",
    );
    let html = edit(
        &mut chief,
        "start",
        "====== Start ======\n\nA welcome by marmalade, edited.\n",
    );
    assert!(
        html.contains("A welcome by marmalade, edited."),
        "{}",
        brief(&html)
    );
    let old = page(chief.get("/doku.php?id=start&do=revisions"));
    assert!(old.matches("a journey").count() >= 2, "{old}");
    search(&mut chief, "start", "marmalade");
    upload(&mut chief, "", "emblem.png", &image);
    let html = edit(&mut chief, "pictures", "{{:emblem.png?32}}\n");
    thumbnail(&mut chief, &html, "emblem.png", 32);
    // A stranger reads, but does not edit.
    let mut stranger = Browser::new(server.addr());
    assert!(page(stranger.get("/doku.php?id=start")).contains("marmalade, edited"));
    assert!(!page(stranger.get("/doku.php?id=start&do=edit")).contains("do[save]"));

    for number in 0..CLIENTS {
        add_user(
            &mut chief,
            &format!("user{number}"),
            &format!("Person Number {number}"),
        );
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, image) = (&server, &image);
            scope.spawn(move || one_client(server, number, image));
        }
    });
    println!(
        "{CLIENTS} clients, {ROUNDS} rounds each: {:?}",
        start.elapsed()
    );

    // The chief is still the chief, and can leave.
    assert!(shows_user(
        &page(chief.get("/doku.php?id=start")),
        "chief",
        "The Chief"
    ));
    let html = page(chief.get("/doku.php?id=start"));
    let token = html
        .split("sectok=")
        .nth(1)
        .and_then(|r| r.split(['"', '&']).next())
        .unwrap_or_default()
        .to_owned();
    let html = page(chief.get(&format!("/doku.php?id=start&do=logout&sectok={token}")));
    assert!(!shows_user(&html, "chief", "The Chief"));
    drop(chief);
    let log = server.stop();
    for bad in ["Fatal error", "Uncaught", "Segmentation", "panicked"] {
        assert!(!log.contains(bad), "{bad} in the log: {log}");
    }
}

/// The package as Debian installs it, in place: its configuration in /etc, its templates and plugins behind links.
#[test]
fn the_package_in_place_shows_its_front_page() {
    // The package's data is readable by www-data alone: only a server started as root runs its scripts under that account.
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let server = Baton::serve(Path::new(PACKAGE));
    let mut browser = Browser::new(server.addr());
    let start = Instant::now();
    let html = page(browser.get("/doku.php"));
    assert!(
        html.contains("id=\"dokuwiki__header\"") || html.contains("dokuwiki__site"),
        "{}",
        brief(&html)
    );
    let css = browser.get("/lib/exe/css.php?t=dokuwiki").expect(200);
    assert!(
        css.header("content-type")
            .is_some_and(|v| v.starts_with("text/css"))
    );
    assert!(start.elapsed() < Duration::from_secs(10));
}
