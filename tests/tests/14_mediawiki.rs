//! A real application: MediaWiki from Debian's package, with SQLite, installed by its own `maintenance/install.php`. The root is
//! laid out like the package's own /var/lib/mediawiki, as links to the program; settings, database and pictures are the
//! journey's.

use std::fs;
use std::path::Path;
use std::process::Command;

use baton_journeys::browser::{encode, form, set};
use baton_journeys::options::{ENV, FOLLOW_SYMLINKS};
use baton_journeys::page::{brief, images, page, without_errors};
use baton_journeys::site::open_to_all;
use baton_journeys::visitor::{CROWD, PATIENT, THUMBNAIL_WIDTH, crowd, visit};
use baton_journeys::{Baton, Browser, Multipart, Site, Visitor, opcache};

const PACKAGE: &str = "/var/lib/mediawiki";
const HOST: &str = "mediawiki.journey.test";
const PASSWORD: &str = "correct horse battery";

/// Added to what install.php writes. Sessions and parsed pages are in APCu, which all app processes share.
const OWN_SETTINGS: &str = "
$wgMainCacheType = CACHE_ACCEL;
$wgCacheDirectory = 'DATA/cache';
$wgEnableUploads = true;
$wgUploadDirectory = 'IMAGES';
$wgUseImageMagick = false; // but gd
";

struct Wiki {
    root: Site,
    data: Site,
}

impl Wiki {
    fn new() -> Wiki {
        assert!(
            Path::new(PACKAGE).join("index.php").exists(),
            "the package mediawiki is missing: make deps-test"
        );
        let wiki = Wiki {
            root: Site::new(),
            data: Site::new(),
        };
        wiki.root.link_to(
            Path::new(PACKAGE),
            &["LocalSettings.php", "images", "cache"],
        );
        wiki.root.writable("images");
        opcache::watch(&wiki.root);
        wiki.data.writable("cache");
        wiki.install();
        wiki
    }

    fn install(&self) {
        let data = self.data.root().to_str().expect("a plain path");
        self.php(
            Command::new("php")
                .arg("/usr/share/mediawiki/maintenance/install.php")
                .args(["--dbtype", "sqlite", "--dbpath", data, "--confpath", data])
                .args(["--server", &format!("http://{HOST}"), "--scriptpath", ""])
                .args(["--skins", "Vector", "--pass", PASSWORD])
                .args(["Journey Wiki", "Chief"]),
        );
        // Readers do not wait for a writer then.
        let wal = "foreach (glob($argv[1] . '/*.sqlite') as $file) {
            (new PDO('sqlite:' . $file))->exec('PRAGMA journal_mode = WAL');
        }";
        self.php(Command::new("php").args(["-r", wal, data]));
        let settings = fs::read_to_string(self.settings()).expect("what install.php wrote");
        let images = self.root.path("images");
        let own = OWN_SETTINGS
            .replace("IMAGES", images.to_str().expect("a plain path"))
            .replace("DATA", data);
        self.data.write("LocalSettings.php", settings + &own);
        open_to_all(self.data.root());
    }

    fn php(&self, command: &mut Command) {
        let command = command.env("MW_CONFIG_FILE", self.settings());
        let done = command.output().expect("php-cli");
        assert!(done.status.success(), "{command:?}: {done:?}");
    }

    fn settings(&self) -> String {
        self.data.path("LocalSettings.php").display().to_string()
    }
}

/// Somebody with an account, on a page of their own.
struct Author {
    browser: Browser,
    name: String,
}

impl Author {
    #[track_caller]
    fn log_in(mut browser: Browser, name: &str) -> Author {
        let html = page(browser.get("/index.php?title=Special:UserLogin"));
        let mut fields = form(&html, "name=\"userlogin\"");
        set(&mut fields, "wpName", name);
        set(&mut fields, "wpPassword", PASSWORD);
        set(&mut fields, "wploginattempt", "Log in");
        let html = page(browser.post("/index.php?title=Special:UserLogin", &fields));
        let author = Author {
            browser,
            name: name.to_owned(),
        };
        assert!(author.is_mine(&html), "{name}: {}", brief(&html));
        author
    }

    /// With somebody's session, for somebody else.
    #[track_caller]
    fn create_account(&mut self, name: &str) {
        let target = "/index.php?title=Special:CreateAccount";
        let html = page(self.browser.get(target));
        let mut fields = form(&html, "name=\"userlogin2\"");
        for (field, value) in [
            ("wpName", name),
            ("wpPassword", PASSWORD),
            ("retype", PASSWORD),
            ("wpCreateaccount", "Create account"),
        ] {
            set(&mut fields, field, value);
        }
        let html = page(self.browser.post(target, &fields));
        let text = brief(&html);
        let created = format!("The user account for {name} (talk) has been created");
        assert!(text.contains(&created), "{text}");
    }

    fn title(&self) -> String {
        format!("Page_of_{}", self.name)
    }
}

impl Visitor for Author {
    fn browser(&mut self) -> &mut Browser {
        &mut self.browser
    }

    fn is_mine(&self, html: &str) -> bool {
        html.contains(&format!("\"wgUserName\":\"{}\"", self.name))
    }

    fn upload(&mut self, name: &str, picture: &[u8]) {
        let target = "/index.php?title=Special:Upload";
        let html = page(self.browser.get(target));
        let mut fields = form(&html, "id=\"mw-upload-form\"");
        set(&mut fields, "wpDestFile", name);
        set(&mut fields, "wpUploadDescription", "a journey's");
        // That the same picture is there under another name.
        set(&mut fields, "wpIgnoreWarning", "1");
        set(&mut fields, "wpUpload", "Upload file");
        let body = fields
            .iter()
            .fold(Multipart::new(), |body, (field, value)| {
                body.field(field, value)
            });
        let body = body.file("wpUploadFile", name, "image/png", picture);
        let html = page(self.browser.post_multipart(target, body));
        assert!(html.contains("File history"), "{}", brief(&html));
    }

    fn write(&mut self, text: &str, picture: &str) {
        let title = self.title();
        let html = page(
            self.browser
                .get(&format!("/index.php?title={title}&action=edit")),
        );
        let mut fields = form(&html, "id=\"editform\"");
        let text_and_image = format!("{text} [[File:{picture}|{THUMBNAIL_WIDTH}px]]");
        set(&mut fields, "wpTextbox1", &text_and_image);
        set(&mut fields, "wpSave", "Save page");
        let target = format!("/index.php?title={title}&action=submit");
        let html = page(self.browser.post(&target, &fields));
        assert!(html.contains(text), "{}", brief(&html));
    }

    fn read(&mut self) -> String {
        let title = self.title();
        page(self.browser.get(&format!("/index.php/{title}")))
    }

    fn thumbnail(&self, html: &str, picture: &str) -> String {
        // File names begin with a capital here.
        let is_it = |src: &String| src.to_lowercase().ends_with(&format!("px-{picture}"));
        let found = images(html).into_iter().find(is_it);
        found.unwrap_or_else(|| panic!("no {picture} in {}", brief(html)))
    }

    fn finds(&mut self, word: &str) -> bool {
        let target = format!(
            "/index.php?title=Special:Search&fulltext=1&search={}",
            encode(word)
        );
        let html = page(self.browser.get(&target));
        html.contains("mw-search-result-heading") && html.contains(&self.title())
    }
}

#[test]
fn mediawiki_on_sqlite() {
    let wiki = Wiki::new();
    let settings = format!("MW_CONFIG_FILE={}", wiki.settings());
    let options = [&PATIENT[..], &[FOLLOW_SYMLINKS, ENV, &settings]].concat();
    let server = Baton::with(wiki.root.root(), &options);
    let browser = || Browser::for_host(server.addr(), HOST);

    let mut stranger = browser();
    let front = page(stranger.get("/"));
    assert!(
        front.contains("MediaWiki has been installed"),
        "{}",
        brief(&front)
    );
    for file in [
        "/load.php?modules=startup&only=scripts&raw=1&skin=vector",
        "/load.php?modules=site.styles|skins.vector.styles.legacy&only=styles&skin=vector",
        "/resources/assets/poweredby_mediawiki_88x31.png",
        "/skins/Vector/resources/common/images/arrow-down.svg",
    ] {
        assert!(!stranger.get(file).expect(200).body.is_empty(), "{file}");
    }

    let mut chief = Author::log_in(browser(), "Chief");
    visit(&mut chief, 0);
    let history = page(stranger.get("/index.php?title=Page_of_Chief&action=history"));
    assert_eq!(history.matches("mw-changeslist-date").count(), 2);

    let name = |number: usize| format!("Person{number}");
    for number in 1..=CROWD {
        chief.create_account(&name(number));
    }
    crowd(|number| Author::log_in(browser(), &name(number)));

    let html = chief.read();
    assert!(chief.is_mine(&html), "{}", brief(&html));
    let opcache = opcache::look(&mut stranger);
    assert!(
        opcache.scripts > 100 && opcache.hits > opcache.scripts,
        "{opcache:?}"
    );
    drop((stranger, chief));
    without_errors(&server.stop());
}
