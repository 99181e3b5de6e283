//! A real application: DokuWiki from Debian's package, unchanged and in place: its program in /usr/share/dokuwiki, its
//! configuration in /etc/dokuwiki, its data, templates and plugins behind links in /var/lib/dokuwiki. The package serves a farm
//! of wikis, told apart by host name; the journey has one of its own there, made and removed by the package's own commands.

use std::fs;
use std::path::Path;
use std::process::Command;

use baton_journeys::browser::{encode, form, set};
use baton_journeys::options::{FOLLOW_SYMLINKS, INI_USER};
use baton_journeys::page::{between, brief, images, page, without_errors};
use baton_journeys::visitor::{CROWD, PATIENT, THUMBNAIL_WIDTH, crowd, visit};
use baton_journeys::{Baton, Browser, Multipart, Site, Visitor, host, is_root};
use rustix::fs::{FlockOperation, flock};

const PACKAGE: &str = "/usr/share/dokuwiki";
const CONFIGURATION: &str = "/etc/dokuwiki";
const FARM_CONFIGURATION: &str = "/etc/dokuwiki/farm";
const FARM_DATA: &str = "/var/lib/dokuwiki/farm";
const PASSWORD: &str = "correct horse";
/// The same as Debian's postinst writes a superuser's.
const PASSWORD_MD5: &str = "3cb4e732631f47e6eb961f34554b7cde";

/// A wiki of the farm. Dropping it removes it.
struct Wiki {
    host: String,
}

impl Wiki {
    fn new() -> Wiki {
        assert!(
            Path::new(PACKAGE).join("doku.php").exists(),
            "the package dokuwiki is missing: make deps-test"
        );
        let _alone = lock();
        for host in host::left_over(Path::new(FARM_CONFIGURATION)) {
            remove(&host);
        }
        let wiki = Wiki { host: host::own() };
        run("dokuwiki-addsite", &["--no-admin", &wiki.host]);
        let users = format!("{FARM_DATA}/{}/acl/users.auth.php", wiki.host);
        let chief = format!("chief:{PASSWORD_MD5}:The Chief:chief@example.org:admin,user\n");
        fs::write(&users, chief).unwrap_or_else(|e| panic!("{users}: {e}"));
        wiki
    }
}

impl Drop for Wiki {
    fn drop(&mut self) {
        let _alone = lock();
        remove(&self.host);
        for farm in [FARM_CONFIGURATION, FARM_DATA] {
            // Unless there are other wikis.
            let _ = fs::remove_dir(farm);
        }
    }
}

/// The farm is there while one run adds its wiki and another removes the last.
fn lock() -> fs::File {
    let folder = fs::File::open(CONFIGURATION).expect(CONFIGURATION);
    flock(&folder, FlockOperation::LockExclusive).expect("a lock on a folder");
    folder
}

fn remove(host: &str) {
    run("dokuwiki-delsite", &[host]);
}

fn run(command: &str, arguments: &[&str]) {
    let done = Command::new(command).args(arguments).output();
    let done = done.unwrap_or_else(|e| panic!("{command}: {e}"));
    assert!(done.status.success(), "{command}: {done:?}");
}

/// Somebody with an account, on a page of their own.
struct Author {
    browser: Browser,
    user: String,
    name: String,
    id: String,
}

impl Author {
    #[track_caller]
    fn log_in(mut browser: Browser, user: &str, name: &str) -> Author {
        let html = page(browser.get("/doku.php?id=start&do=login"));
        let mut fields = form(&html, "id=\"dw__login\"");
        set(&mut fields, "u", user);
        set(&mut fields, "p", PASSWORD);
        let html = page(browser.post("/doku.php?id=start", &fields));
        let author = Author {
            browser,
            user: user.to_owned(),
            name: name.to_owned(),
            id: format!("journey:{user}"),
        };
        assert!(author.is_mine(&html), "{user}: {}", brief(&html));
        author
    }

    fn page(&mut self, what: &str) -> String {
        page(self.browser.get(&format!("/doku.php?{what}")))
    }

    /// For a superuser.
    #[track_caller]
    fn add_user(&mut self, user: &str, name: &str) {
        let html = self.page("id=start&do=admin&page=usermanager");
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
        let reply = self
            .browser
            .post("/doku.php?id=start&do=admin&page=usermanager", &add);
        let html = page(reply);
        assert!(html.contains("User added successfully"), "{}", brief(&html));
    }

    #[track_caller]
    fn log_out(mut self) {
        let html = self.page("id=start");
        let token = between(&html, "sectok=", "\"").to_owned();
        let html = self.page(&format!("id=start&do=logout&sectok={token}"));
        assert!(!self.is_mine(&html), "{}", brief(&html));
    }
}

impl Visitor for Author {
    fn browser(&mut self) -> &mut Browser {
        &mut self.browser
    }

    fn is_mine(&self, html: &str) -> bool {
        let whom = format!("<bdi>{}</bdi> (<bdi>{}</bdi>)", self.name, self.user);
        html.contains("Logged in as:") && html.contains(&whom)
    }

    fn upload(&mut self, name: &str, picture: &[u8]) {
        let target = format!("/lib/exe/mediamanager.php?ns={}", self.user);
        let html = page(self.browser.get(&target));
        let hidden = form(&html, "id=\"dw__upload\"");
        let mut body = Multipart::new();
        for (field, value) in hidden.iter().filter(|(n, _)| n != "mediaid") {
            body = body.field(field, value);
        }
        let body = body
            .field("mediaid", name)
            .file("upload", name, "image/png", picture);
        let html = page(self.browser.post_multipart(&target, body));
        assert!(html.contains("Upload successful"), "{}", brief(&html));
    }

    fn write(&mut self, text: &str, picture: &str) {
        let id = self.id.clone();
        let html = self.page(&format!("id={id}&do=edit"));
        let mut fields = form(&html, "id=\"dw__editform\"");
        let image = format!("{{{{:{}:{picture}?{THUMBNAIL_WIDTH}}}}}", self.user);
        set(&mut fields, "wikitext", &format!("{text} {image}\n"));
        set(&mut fields, "summary", "a journey");
        set(&mut fields, "do[save]", "1");
        let html = page(self.browser.post(&format!("/doku.php?id={id}"), &fields));
        assert!(html.contains(text), "{}", brief(&html));
    }

    fn read(&mut self) -> String {
        let id = self.id.clone();
        self.page(&format!("id={id}"))
    }

    fn thumbnail(&self, html: &str, picture: &str) -> String {
        let found = images(html).into_iter().find(|src| src.contains(picture));
        found.unwrap_or_else(|| panic!("no {picture} in {}", brief(html)))
    }

    fn finds(&mut self, word: &str) -> bool {
        // What a page's last image does in a browser: it indexes the page, if nobody else is indexing.
        let indexer = format!("/lib/exe/taskrunner.php?id={}", self.id);
        let reply = self.browser.get(&indexer).expect(200);
        assert_eq!(reply.header("content-type"), Some("image/gif"));
        let html = self.page(&format!("do=search&q={}", encode(word)));
        html.contains("search_hit") && html.contains(&format!("id={}", self.id))
    }
}

#[test]
fn dokuwiki_as_debian_installs_it() {
    if !is_root() {
        return;
    }
    let wiki = Wiki::new();
    let folder = Site::new();
    // Or sessions would stay behind in the machine's.
    let sessions = format!(
        "session.save_path={}",
        folder.writable("sessions").display()
    );
    let options = [&PATIENT[..], &[FOLLOW_SYMLINKS, INI_USER, &sessions]].concat();
    let server = Baton::with(Path::new(PACKAGE), &options);
    let browser = || Browser::for_host(server.addr(), &wiki.host);

    let mut stranger = browser();
    let front = page(stranger.get("/"));
    assert!(front.contains(&wiki.host) && front.contains("id=\"dokuwiki__header\""));
    for file in [
        "/lib/tpl/dokuwiki/images/logo.png",
        "/lib/exe/css.php?t=dokuwiki",
        "/lib/exe/js.php?t=dokuwiki",
        "/lib/images/throbber.gif",
        "/lib/plugins/acl/style.css",
    ] {
        assert!(!stranger.get(file).expect(200).body.is_empty(), "{file}");
    }

    let mut chief = Author::log_in(browser(), "chief", "The Chief");
    visit(&mut chief, 0);
    let old = chief.page("id=journey:chief&do=revisions");
    assert!(old.matches("a journey").count() >= 2, "{}", brief(&old));
    // A stranger reads, but does not edit.
    let read = page(stranger.get("/doku.php?id=journey:chief"));
    assert!(read.contains("marmalade0x2"), "{}", brief(&read));
    let edit = page(stranger.get("/doku.php?id=journey:chief&do=edit"));
    assert!(!edit.contains("do[save]"), "{}", brief(&edit));

    let user = |number: usize| (format!("user{number}"), format!("Person Number {number}"));
    for (user, name) in (1..=CROWD).map(user) {
        chief.add_user(&user, &name);
    }
    crowd(|number| {
        let (user, name) = user(number);
        Author::log_in(browser(), &user, &name)
    });

    let html = chief.read();
    assert!(chief.is_mine(&html), "{}", brief(&html));
    chief.log_out();
    drop(stranger);
    without_errors(&server.stop());
}
