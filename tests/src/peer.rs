//! The journeys' expectations about PHP, checked against nginx + php-fpm from Debian: with `BATON_TEST_PEER=fpm` a journey
//! runs against those instead of baton. What peers do differently fails there; what PHP itself does must pass.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::options::{INI_ADMIN, INI_USER, THREADS};
use crate::proc;

pub struct Peer {
    root: PathBuf,
    index: String,
    folder: PathBuf,
    threads: String,
    ini: Vec<(&'static str, String)>,
}

impl Peer {
    /// The peer for this root, if the environment asks for it.
    pub fn wanted(root: &Path, options: &[&str]) -> Option<Peer> {
        if std::env::var("BATON_TEST_PEER").ok()? != "fpm" {
            return None;
        }
        let value = |name: &str| {
            options
                .iter()
                .position(|o| *o == name)
                .map(|i| options[i + 1].to_owned())
        };
        let mut ini = Vec::new();
        for pair in options.windows(2) {
            match pair[0] {
                INI_ADMIN => ini.push(("php_admin_value", pair[1].to_owned())),
                INI_USER => ini.push(("php_value", pair[1].to_owned())),
                _ => {}
            }
        }
        let (root, index) = if root.is_file() {
            (
                root.parent()?.to_owned(),
                root.file_name()?.to_string_lossy().into_owned(),
            )
        } else if root.join("index.php").is_file() {
            (root.to_owned(), "index.php".to_owned())
        } else {
            (root.join("public"), "index.php".to_owned())
        };
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("baton-peer-{}-{port}", std::process::id()));
        Some(Peer {
            root,
            index,
            folder,
            threads: value(THREADS).unwrap_or("4".into()),
            ini,
        })
    }

    /// nginx (the child that is handed back) and php-fpm beside it.
    pub fn start(&self) -> (Child, SocketAddr) {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        fs::create_dir_all(&self.folder).expect("a folder for the peer");
        crate::site::set_mode(&self.folder, 0o755);
        let (folder, root, index) = (self.folder.display(), self.root.display(), &self.index);
        let ini: String = self
            .ini
            .iter()
            .filter_map(|(kind, pair)| {
                pair.split_once('=')
                    .map(|(n, v)| format!("{kind}[{n}] = {v}\n"))
            })
            .collect();
        fs::write(
            self.folder.join("fpm.conf"),
            format!(
                "[global]\npid = {folder}/fpm.pid\nerror_log = {folder}/fpm.log\ndaemonize = yes\n[www]\nuser = www-data\n\
                 group = www-data\nlisten = {folder}/fpm.sock\nlisten.mode = 0666\npm = static\npm.max_children = {}\n\
                 catch_workers_output = yes\n{ini}",
                self.threads
            ),
        )
        .expect("fpm.conf");
        fs::write(
            self.folder.join("nginx.conf"),
            format!(
                "daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\nworker_processes 1;\nuser www-data;\n\
                 events {{ worker_connections 2000; }}\nhttp {{\ninclude /etc/nginx/mime.types;\naccess_log off;\n\
                 client_max_body_size 128m;\nserver {{\nlisten {addr};\nroot {root};\nindex {index};\n\
                 location / {{ try_files $uri $uri/ /{index}$is_args$args; }}\n\
                 location ~ ^(?<script>.+?\\.php)(?<rest>/.*)?$ {{\ninclude /etc/nginx/fastcgi_params;\nfastcgi_param HTTP_HOST $http_host;\n\
                 fastcgi_param SCRIPT_FILENAME $document_root$script;\nfastcgi_param SCRIPT_NAME $script;\n\
                 fastcgi_param PATH_INFO $rest;\nfastcgi_param PATH_TRANSLATED $document_root$rest;\n\
                 fastcgi_read_timeout 60s;\nfastcgi_buffering off;\n\
                 fastcgi_pass unix:{folder}/fpm.sock;\n}}\n}}\n}}\n"
            ),
        )
        .expect("nginx.conf");
        let fpm = Command::new("php-fpm8.2")
            .args(["--allow-to-run-as-root", "-y"])
            .arg(self.folder.join("fpm.conf"))
            .stderr(Stdio::null())
            .status()
            .expect("php-fpm8.2");
        assert!(fpm.success(), "php-fpm8.2 did not start");
        let nginx = Command::new("nginx")
            .arg("-e")
            .arg(self.folder.join("start.log"))
            .arg("-c")
            .arg(self.folder.join("nginx.conf"))
            .spawn()
            .expect("nginx");
        crate::wait_until("nginx listens", Duration::from_secs(10), || {
            TcpStream::connect(addr).is_ok()
        });
        (nginx, addr)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(pid) = fs::read_to_string(self.folder.join("fpm.pid"))
            .ok()
            .and_then(|pid| pid.trim().parse().ok())
        {
            proc::signal(pid, Signal::TERM);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
