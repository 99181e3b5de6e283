//! A real application: WordPress from Debian's package, with a MariaDB of the journey's own, installed in the browser, without
//! and with its core preloaded. The root has links to the program and a `wp-content` of its own; the package looks up the
//! settings in /etc/wordpress by host name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use baton_journeys::browser::{encode, fields, form, set};
use baton_journeys::mariadb::MariaDb;
use baton_journeys::options::{FOLLOW_SYMLINKS, INI_ADMIN, INI_USER};
use baton_journeys::page::{between, brief, images, page, without_errors};
use baton_journeys::visitor::{CROWD, PATIENT, THUMBNAIL_WIDTH, crowd, visit};
use baton_journeys::{Baton, Browser, Multipart, Site, Visitor, host, is_root, opcache};

const PACKAGE: &str = "/usr/share/wordpress";
const CONFIGURATION: &str = "/etc/wordpress";
const PASSWORD: &str = "correct horse";

/// What wp-settings.php loads for each request, but for files whose functions wp-admin/load-styles.php has others for.
const PRELOAD: &str = r"<?php
preg_match_all('~^function (\w+)~m', file_get_contents('PACKAGE/wp-admin/includes/noop.php'), $noop);
$others = '~^function (' . implode('|', $noop[1]) . ')\(~m';
preg_match_all('~ABSPATH . WPINC . .(/[^\x27]+[.]php)~', file_get_contents('PACKAGE/wp-settings.php'), $core);
foreach ($core[1] as $file) {
    $path = 'PACKAGE/wp-includes' . $file;
    preg_match($others, file_get_contents($path)) or opcache_compile_file($path);
}";

struct Blog {
    host: String,
    root: Site,
    database: MariaDb,
}

impl Blog {
    fn new() -> Blog {
        assert!(
            Path::new(PACKAGE).join("wp-load.php").exists(),
            "the package wordpress is missing: make deps-test"
        );
        for host in host::left_over(Path::new(CONFIGURATION)) {
            let _ = fs::remove_file(configuration_of(&host));
        }
        let database = MariaDb::start(
            "CREATE DATABASE wordpress;\nGRANT ALL ON wordpress.* TO wordpress@localhost IDENTIFIED BY 'secret';\n",
        );
        let blog = Blog {
            host: host::own(),
            root: Site::new(),
            database,
        };
        blog.lay_out();
        blog.configure();
        blog
    }

    fn lay_out(&self) {
        self.root.link_to(Path::new(PACKAGE), &["wp-content"]);
        self.root.writable("wp-content/uploads");
        for name in ["index.php", "languages", "plugins", "themes"] {
            let target = Path::new(PACKAGE).join("wp-content").join(name);
            symlink(target, self.root.path("wp-content").join(name)).expect("a link");
        }
        opcache::watch(&self.root);
    }

    /// It asks nobody outside, and not itself either, for which it would have to know its address.
    fn configure(&self) {
        let settings = format!(
            "<?php\ndefine('DB_HOST', 'localhost:{}');\ndefine('DB_PASSWORD', 'secret');\n\
             define('WP_CONTENT_DIR', '{}');\ndefine('DISABLE_WP_CRON', true);\n\
             define('WP_HTTP_BLOCK_EXTERNAL', true);\n",
            self.database.socket().display(),
            self.root.path("wp-content").display(),
        );
        let path = configuration_of(&self.host);
        fs::write(&path, settings).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// A file that compiles the core, for `opcache.preload`.
    fn preload_file(&self) -> PathBuf {
        let script = PRELOAD.replace("PACKAGE", PACKAGE);
        self.root.write("preload.php", script)
    }

    #[track_caller]
    fn install(&self, mut browser: Browser) {
        let html = page(browser.get("/wp-admin/install.php?step=1"));
        let mut answers = form(&html, "id=\"setup\"");
        for (field, value) in [
            ("weblog_title", "Journey Blog"),
            ("user_name", "chief"),
            ("admin_password", PASSWORD),
            ("admin_password2", PASSWORD),
            ("pw_weak", "on"),
            ("admin_email", "chief@example.org"),
        ] {
            set(&mut answers, field, value);
        }
        let html = page(browser.post("/wp-admin/install.php?step=2", &answers));
        assert!(html.contains("Success!"), "{}", brief(&html));
    }
}

impl Drop for Blog {
    fn drop(&mut self) {
        let _ = fs::remove_file(configuration_of(&self.host));
    }
}

fn configuration_of(host: &str) -> PathBuf {
    Path::new(CONFIGURATION).join(format!("config-{host}.php"))
}

/// Somebody with an account, and a post of their own. Posts are written as the block editor does: its page has the key for the
/// calls that it makes.
struct Author {
    browser: Browser,
    host: String,
    name: String,
    key: String,
    /// Its number and address.
    post: Option<(String, String)>,
    /// Of the last upload, in the small form.
    picture: String,
}

impl Author {
    #[track_caller]
    fn log_in(mut browser: Browser, host: &str, user: &str, name: &str) -> Author {
        let html = page(browser.get("/wp-login.php"));
        let mut fields = form(&html, "id=\"loginform\"");
        set(&mut fields, "log", user);
        set(&mut fields, "pwd", PASSWORD);
        set(&mut fields, "wp-submit", "Log In");
        let html = page(browser.post("/wp-login.php", &fields));
        let mut author = Author {
            browser,
            host: host.to_owned(),
            name: name.to_owned(),
            key: String::new(),
            post: None,
            picture: String::new(),
        };
        assert!(author.is_mine(&html), "{user}: {}", brief(&html));
        author.open_editor();
        author
    }

    #[track_caller]
    fn open_editor(&mut self) {
        let target = match &self.post {
            Some((number, _)) => format!("/wp-admin/post.php?post={number}&action=edit"),
            None => "/wp-admin/post-new.php".to_owned(),
        };
        let html = page(self.browser.get(&target));
        assert!(self.is_mine(&html), "{}", brief(&html));
        let key = between(&html, "createNonceMiddleware( \"", "\"");
        self.key = key.to_owned();
    }

    /// A call of the REST interface that creates or changes something; the fields wanted of it.
    #[track_caller]
    fn call(&mut self, what: &str, given: &[(&str, &str)]) -> String {
        let mut all = fields(given);
        set(&mut all, "_wpnonce", &self.key);
        let reply = self.browser.post(&format!("/wp-json/wp/v2/{what}"), &all);
        let text = reply.text().replace("\\/", "/");
        assert!(matches!(reply.status(), 200 | 201), "{what}: {text}");
        text
    }

    /// The path of an address of this blog.
    fn path(&self, address: &str) -> String {
        let path = address.strip_prefix(&format!("http://{}", self.host));
        path.unwrap_or_else(|| panic!("on another host: {address}"))
            .to_owned()
    }
}

impl Visitor for Author {
    fn browser(&mut self) -> &mut Browser {
        &mut self.browser
    }

    fn is_mine(&self, html: &str) -> bool {
        html.contains(&format!(
            "Howdy, <span class=\"display-name\">{}</span>",
            self.name
        ))
    }

    fn upload(&mut self, name: &str, picture: &[u8]) {
        self.open_editor();
        let body =
            Multipart::new()
                .field("_wpnonce", &self.key)
                .file("file", name, "image/png", picture);
        let reply = self
            .browser
            .post_multipart("/wp-json/wp/v2/media", body)
            .expect(201);
        let text = reply.text().replace("\\/", "/");
        let medium = between(&text, "\"medium\":{", "}");
        self.picture = between(medium, "\"source_url\":\"", "\"").to_owned();
    }

    fn write(&mut self, text: &str, picture: &str) {
        let content = format!(
            "<!-- wp:paragraph --><p>{text}</p><!-- /wp:paragraph -->\n<!-- wp:image --><figure class=\"wp-block-image\">\
             <img src=\"{}\" alt=\"{picture}\" width=\"{THUMBNAIL_WIDTH}\"/></figure><!-- /wp:image -->",
            self.picture
        );
        let title = format!("Post of {}", self.name);
        let what = match &self.post {
            Some((number, _)) => format!("posts/{number}?_fields=id,link"),
            None => "posts?_fields=id,link".to_owned(),
        };
        let made = self.call(
            &what,
            &[
                ("title", &title),
                ("content", &content),
                ("status", "publish"),
            ],
        );
        let number = between(&made, "\"id\":", ",").to_owned();
        let link = between(&made, "\"link\":\"", "\"").to_owned();
        self.post = Some((number, link));
    }

    fn read(&mut self) -> String {
        let (_, link) = self.post.as_ref().expect("written before it is read");
        let path = self.path(link);
        page(self.browser.get(&path))
    }

    fn thumbnail(&self, html: &str, _picture: &str) -> String {
        let found = images(html).into_iter().find(|src| *src == self.picture);
        self.path(&found.unwrap_or_else(|| panic!("no {} in {}", self.picture, brief(html))))
    }

    fn finds(&mut self, word: &str) -> bool {
        let html = page(self.browser.get(&format!("/?s={}", encode(word))));
        let (_, link) = self.post.as_ref().expect("written before it is searched");
        html.contains(&format!("href=\"{link}\""))
    }
}

#[test]
fn wordpress_on_mariadb_without_and_with_preloading() {
    if !is_root() {
        return;
    }
    let blog = Blog::new();
    let preload = format!("opcache.preload={}", blog.preload_file().display());
    // Nobody gets mail.
    let mail = "sendmail_path=/bin/true";
    let plain = [&PATIENT[..], &[FOLLOW_SYMLINKS, INI_ADMIN, mail]].concat();
    let preloading = [&plain[..], &[INI_USER, &preload]].concat();

    for options in [&plain, &preloading] {
        let is_preloading = options.contains(&INI_USER);
        let server = Baton::with(blog.root.root(), options);
        let browser = || Browser::for_host(server.addr(), &blog.host);
        if !is_preloading {
            blog.install(browser());
        }
        let mut chief = Author::log_in(browser(), &blog.host, "chief", "chief");
        let user = |number: usize| (format!("user{number}"), format!("Person Number {number}"));
        if !is_preloading {
            set_permalinks(&mut chief);
            for (user, name) in (1..=CROWD).map(user) {
                chief.call(
                    "users",
                    &[
                        ("username", &user),
                        ("name", &name),
                        ("email", &format!("{user}@example.org")),
                        ("password", PASSWORD),
                        ("roles", "author"),
                    ],
                );
            }
        }
        let mut stranger = browser();
        let front = page(stranger.get("/"));
        assert!(front.contains("Journey Blog"), "{}", brief(&front));
        for file in [
            "/wp-includes/css/dashicons.min.css",
            "/wp-includes/js/underscore.min.js",
            "/wp-content/themes/twentytwentythree/style.css",
            "/wp-admin/load-styles.php?load=dashicons,admin-bar",
        ] {
            assert!(!stranger.get(file).expect(200).body.is_empty(), "{file}");
        }
        visit(&mut chief, 0);
        crowd(|number| {
            let (user, name) = user(number);
            Author::log_in(browser(), &blog.host, &user, &name)
        });
        let html = chief.read();
        assert!(chief.is_mine(&html), "{}", brief(&html));
        let opcache = opcache::look(&mut stranger);
        assert!(
            opcache.scripts > 100 && opcache.hits > opcache.scripts,
            "{opcache:?}"
        );
        assert_eq!(opcache.preloaded > 100, is_preloading, "{opcache:?}");
        drop((stranger, chief));
        without_errors(&server.stop());
    }
}

/// Addresses without a query: they are no files, so the front controller gets them.
#[track_caller]
fn set_permalinks(chief: &mut Author) {
    let target = "/wp-admin/options-permalink.php";
    let html = page(chief.browser.get(target));
    let mut fields = form(&html, "name=\"form\"");
    set(&mut fields, "selection", "/%postname%/");
    set(&mut fields, "permalink_structure", "/%postname%/");
    set(&mut fields, "submit", "Save Changes");
    let html = page(chief.browser.post(target, &fields));
    // It would write rules for Apache next, and may not. They are what this server does anyway.
    let is_saved = html.contains("You should update your <code>.htaccess</code> file now");
    assert!(is_saved, "{}", brief(&html));
}
