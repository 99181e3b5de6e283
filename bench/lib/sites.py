"""Applications from Debian's packages, installed by their own installers into a temporary folder: a copy of the program,
its settings, its data. Both servers of a pair serve the same copy."""

import contextlib
import glob
import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time

from lib import paths

START_TIMEOUT_S = 60
PASSWORD = "correct horse battery"
# Who runs the database, and the installers, when root measures.
UNPRIVILEGED_USER = "www-data"


class SiteError(Exception):
    pass


class Site:
    """`root` is what a server serves, `path` the page that is asked for."""

    name = "?"
    package = "?"
    path = "/"

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.folder = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-bench-", ignore_cleanup_errors=True))
            os.chmod(self.folder, 0o755)
            # Links in Debian's packages lead all over the file system; here they are what they lead to.
            shutil.copytree(self.package, self.root, ignore_dangling_symlinks=True)
            self.install(stack)
            _run(["chown", "-R", UNPRIVILEGED_USER, self.folder])
            # opcache does not keep files that changed within the last two seconds.
            _run(["find", self.root, "-name", "*.php", "-exec", "touch", "-d", "1 hour ago", "{}", "+"])
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    @property
    def root(self):
        return os.path.join(self.folder, "site")

    def install(self, stack):
        raise NotImplementedError

    def _write(self, name, text):
        with open(os.path.join(self.root, name), "w") as file:
            file.write(text)


class MediaWiki(Site):
    """Its main page for somebody who is not logged in, with SQLite and APCu."""

    name = "mediawiki"
    package = "/var/lib/mediawiki"
    path = "/index.php?title=Main_Page"

    def install(self, stack):
        data = os.path.join(self.folder, "data")
        os.mkdir(data)
        # The package's own settings, if there are any, are not ours.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.root, "LocalSettings.php"))
        _run(["php", os.path.join(self.root, "maintenance", "install.php"), "--dbtype", "sqlite", "--dbpath", data,
              "--server", "http://127.0.0.1", "--scriptpath", "", "--skins", "Vector", "--pass", PASSWORD, "Bench", "Chief"])
        # Readers and a writer do not wait for each other. The file remembers it.
        for name in glob.glob(os.path.join(data, "*.sqlite")):
            with contextlib.closing(sqlite3.connect(name)) as database:
                database.execute("PRAGMA journal_mode = WAL")
        with open(os.path.join(self.root, "LocalSettings.php"), "a") as file:
            file.write("$wgServer = 'http://' . ($_SERVER['HTTP_HOST'] ?? '127.0.0.1');\n$wgMainCacheType = CACHE_ACCEL;\n"
                       # Jobs run in the background otherwise, by a request that the wiki sends to itself.
                       f"$wgJobRunRate = 0;\n$wgCacheDirectory = '{data}';\n")


class WordPress(Site):
    """A post with its comments, with MariaDB on a unix socket."""

    name = "wordpress"
    package = "/usr/share/wordpress"
    path = "/?p=1"

    def install(self, stack):
        database = stack.enter_context(MariaDb("wordpress"))
        self._write("wp-config.php", f"""<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'bench');
define('DB_PASSWORD', 'bench');
define('DB_HOST', 'localhost:{database.socket}');
define('WP_HOME', 'http://' . $_SERVER['HTTP_HOST']);
define('WP_SITEURL', WP_HOME);
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
""")
        self._write("install.php", f"""<?php
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = '127.0.0.1';
function wp_new_blog_notification() {{}}
require __DIR__ . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Bench', 'chief', 'chief@example.org', true, '', '{PASSWORD}');
""")
        _run(["php", os.path.join(self.root, "install.php")])
        os.unlink(os.path.join(self.root, "install.php"))


ALL = {kind.name: kind for kind in (MediaWiki, WordPress)}


class MariaDb:
    """A server of our own on a unix socket, as an account without privileges."""

    def __init__(self, database):
        self.database = database
        self.child = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="baton-bench-db-")
        os.chmod(self.folder, 0o755)
        self.socket = os.path.join(self.folder, "socket")
        data = f"--datadir={self.folder}/data"
        with open(os.path.join(self.folder, "init.sql"), "w") as file:
            file.write(f"CREATE DATABASE {self.database};\nGRANT ALL ON {self.database}.* TO bench@localhost IDENTIFIED BY 'bench';\n")
        try:
            _run(["chown", "-R", UNPRIVILEGED_USER, self.folder])
            _run(_as_user("mariadb-install-db", "--no-defaults", data, "--skip-test-db", "--auth-root-authentication-method=normal",
                          "--skip-name-resolve"))
            with open(os.path.join(self.folder, "log"), "wb") as log:
                self.child = subprocess.Popen(
                    _as_user(paths.program("mariadbd"), "--no-defaults", data, "--skip-networking", f"--socket={self.socket}",
                             f"--init-file={self.folder}/init.sql", "--innodb-buffer-pool-size=128M"),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self._await()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _await(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(self.socket)
                # It speaks first, and only when the statements have run.
                if client.recv(1):
                    return
            time.sleep(0.05)
        with open(os.path.join(self.folder, "log"), errors="replace") as file:
            raise SiteError(f"mariadbd does not start: {file.read()[-1000:]}")

    def __exit__(self, *_):
        if self.child:
            self.child.terminate()
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def missing(site):
    """Why this site cannot be measured here, or None."""
    if not os.path.isdir(site.package):
        return f"apt-get install {site.name}"
    if os.geteuid() != 0:
        return "run as root: it hands its files to www-data"
    if site is WordPress and not paths.program("mariadbd"):
        return "apt-get install mariadb-server-core mariadb-client"
    return None if paths.program("php") else "apt-get install php8.2-cli"


def _as_user(*command):
    account = pwd.getpwnam(UNPRIVILEGED_USER)
    return ["setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups", *command]


def _run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SiteError(f"{' '.join(command)}: {done.stderr.strip()[-800:] or done.stdout.strip()[-800:]}")
