"""Starts and stops the servers, each in a temporary folder of its own, and ends by pid only what it started."""

import grp
import math
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from lib import answers, paths, processes

START_TIMEOUT_S = 15
STOP_TIMEOUT_S = 10
OPEN_FILES = 65536
# What Baton starts with when nothing is configured.
FEW = 2 * (os.cpu_count() or 1)
SCRIPT_AGE_S = 3600
# Who nginx's workers and php-fpm's children run as when root starts them; nobody else may choose.
UNPRIVILEGED_USER = "www-data"


class ServerError(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def raise_open_files(wanted=OPEN_FILES):
    """As many descriptors as allowed, up to `wanted`. What we start inherits it. Returns the limit reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return wanted
        except (ValueError, PermissionError):
            pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted), hard))
    return min(hard, wanted)


class Server:
    """One server under test. The scripts lie in its root under their own names."""

    name = "?"
    # Whether its application runs in processes of its own, apart from the front.
    has_app = False
    probes = False
    # How many of what answer requests, in words.
    arrangement = ""

    def __init__(self, site=None):
        """`site`: an application of lib/sites.py instead of the scripts."""
        self.site = site
        self.folder = None
        self.port = None
        self.roots = []
        self.first_answer_s = None

    def commands(self):
        """[(argv, environment)]: started together, stopped in reverse."""
        raise NotImplementedError

    def first_path(self):
        return self.site.path if self.site else self.path_of("/hello.php")

    @property
    def root(self):
        return self.site.root if self.site else os.path.join(self.folder, "root")

    def path_of(self, path):
        """Where this server has what others have at `path`."""
        return path

    def start(self):
        """Returns once the first right answer has come, and remembers how long that took."""
        self.folder = tempfile.mkdtemp(prefix="baton-bench-")
        # App processes run as another user and must reach the scripts.
        os.chmod(self.folder, 0o755)
        self.port = free_port()
        if not self.site:
            self._lay_out_scripts()
        try:
            commands = self.commands()
            started = time.monotonic()
            for argv, environment in commands:
                self._spawn(argv, environment)
            self._wait_for_answer(started)
        except BaseException:
            self.stop()
            raise
        return self

    def _lay_out_scripts(self):
        root = self.root
        os.mkdir(root)
        for folder in (paths.SCRIPTS, paths.APPS):
            for script in os.listdir(folder):
                shutil.copy(os.path.join(folder, script), root)
        # What a server looks for to know that a folder is a PHP application.
        shutil.copy(os.path.join(paths.SCRIPTS, "hello.php"), os.path.join(root, "index.php"))
        for name in ("hello.txt", "1k.txt", "1m.bin"):
            _write(os.path.join(root, name), answers.EXPECTED[f"/{name}"][0].decode())
        # opcache does not keep files that changed within the last two seconds (opcache.file_update_protection).
        for name in os.listdir(root):
            os.utime(os.path.join(root, name), (time.time() - SCRIPT_AGE_S,) * 2)

    def _spawn(self, argv, environment):
        log = open(os.path.join(self.folder, f"output-{len(self.roots)}.log"), "wb")
        with log:
            self.roots.append(subprocess.Popen(
                argv, cwd=self.folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True))

    def _wait_for_answer(self, started):
        last = "no answer"
        while time.monotonic() - started < START_TIMEOUT_S:
            for child in self.roots:
                if child.poll() is not None:
                    raise ServerError(f"{self.name} ended with {child.returncode} at start: {self.output()}")
            try:
                answers.check(self.name, self.port, self.first_path())
                self.first_answer_s = time.monotonic() - started
                return
            except (OSError, answers.http.client.HTTPException) as error:
                last = repr(error)
            except answers.WrongAnswer as error:
                # A 502 or 503 while the application starts; anything else stays and is shown in the end.
                last = str(error)
            time.sleep(0.001)
        raise ServerError(f"{self.name} does not answer within {START_TIMEOUT_S} s: {last}: {self.output()}")

    def output(self):
        """The end of what it printed."""
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), errors="replace") as file:
                    text += file.read()[-1500:]
        return text.strip() or "(it printed nothing)"

    def stop(self):
        """SIGTERM, then SIGKILL for what is left of the tree that it had."""
        had = {processes.identity(pid) for pid in self.pids()} - {None}
        for child in reversed(self.roots):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        clean = True
        for child in self.roots:
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                clean = False
                child.kill()
                child.wait()
        # Same number and same start time, or it is not ours.
        for pid, _ in [one for one in had if processes.identity(one[0]) == one]:
            clean = False
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.roots = []
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        return clean

    def pids(self):
        """All processes, front and app."""
        return [pid for child in self.roots for pid in processes.tree(child.pid)]

    def front_pids(self):
        return self.pids()

    def app_pids(self):
        return []

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Php:
    """What is the same for every server that runs PHP: the ini file."""

    @property
    def probes(self):
        """Whether probe.php is there to say how PHP runs."""
        return self.has_app and not self.site and not isinstance(self, Worker)

    def php_environment(self):
        folder = os.path.join(self.folder, "ini")
        os.mkdir(folder)
        # Debian's own settings, 30 s and 60 s, cost setitimer calls. See bench.ini.
        limits = {"MAX_EXECUTION_TIME": 0, "MAX_INPUT_TIME": 0} if self.without_time_limits else \
                 {"MAX_EXECUTION_TIME": 30, "MAX_INPUT_TIME": 60}
        fill("bench.ini", os.path.join(folder, "bench.ini"), limits)
        # The empty part before the colon stands for the distribution's own conf.d.
        return {"PHP_INI_SCAN_DIR": f":{folder}"}


class Baton(Php, Server):
    name = "baton"
    has_app = True
    more_options = ()

    def __init__(self, threads=8, without_time_limits=False, site=None, deadline_ms=None):
        """`threads`, `deadline_ms`: None leaves Baton's own default."""
        super().__init__(site)
        self.threads, self.without_time_limits, self.deadline_ms = threads, without_time_limits, deadline_ms

    @property
    def arrangement(self):
        return f"{self.threads} threads" if self.threads else "threads by load"

    def commands(self):
        argv = [paths.BATON, "serve", self.root, "--listen", f"127.0.0.1:{self.port}", *self.more_options]
        for option, value in (("--threads", self.threads), ("--deadline-ms", self.deadline_ms)):
            if value is not None:
                argv += [option, str(value)]
        return [(argv, self.php_environment())]

    def front_pids(self):
        return [child.pid for child in self.roots]

    def app_pids(self):
        """All but the front: the zygote too, which serves nothing and should cost nothing."""
        return [pid for pid in self.pids() if pid not in self.front_pids()]


class BatonByLoad(Baton):
    """With nothing configured."""

    name = "baton, threads by load"


class Worker:
    """The scripts as one worker: its paths have no file, so they are the worker's."""

    def path_of(self, path):
        return f"/worker{path.removesuffix('.php')}" if path.endswith(".php") else path


class BatonWorker(Worker, Baton):
    name = "baton worker"
    more_options = ("--worker", "worker.php")


class BatonWorkWorker(Baton):
    """The work of the six loads as a worker, at a path without a file."""

    name = "baton worker"
    more_options = ("--worker", "work-worker.php")

    def path_of(self, path):
        return {"/work.php": "/work", "/hello.php": "/work"}.get(path, path)


class FrankenPhpWorker(Worker, Server):
    """A FrankenPHP given by the environment variable FRANKENPHP, in worker mode with as many threads."""

    name = "frankenphp worker"

    def __init__(self, threads=8):
        super().__init__()
        self.threads = threads
        self.arrangement = f"{threads} threads"

    def commands(self):
        config = os.path.join(self.folder, "Caddyfile")
        fill("Caddyfile", config, {"ROOT": self.root, "PORT": self.port, "THREADS": self.threads, "ALL_THREADS": self.threads + 1})
        return [([paths.FRANKENPHP, "run", "--config", config], {"HOME": self.folder})]


class PhpFpm(Php, Server):
    """nginx before php-fpm, over a unix socket."""

    name = "nginx+php-fpm"
    has_app = True
    # The 200,000-byte answers fit in memory.
    buffers = "fastcgi_buffer_size 16k; fastcgi_buffers 32 16k; fastcgi_busy_buffers_size 64k;"

    def __init__(self, threads=8, without_time_limits=False, site=None, deadline_ms=None):
        super().__init__(site)
        self.threads, self.without_time_limits, self.deadline_ms = threads, without_time_limits, deadline_ms

    @property
    def arrangement(self):
        return f"{nginx_workers()} nginx workers, {self.threads} children"

    def commands(self):
        config = os.path.join(self.folder, "php-fpm.conf")
        root_user = os.geteuid() == 0
        fill("php-fpm.conf", config, {
            "DIR": self.folder, "CHILDREN": self.threads,
            # php-fpm counts in whole seconds; 0 is none, as Debian ships it.
            "DEADLINE_S": math.ceil((self.deadline_ms or 0) / 1000),
            "USER_LINES": f"user = {UNPRIVILEGED_USER}\ngroup = {_group()}" if root_user else ""})
        return [([paths.PHP_FPM, "-F", "-y", config], self.php_environment()), self.nginx()]

    def nginx(self):
        config = os.path.join(self.folder, "nginx.conf")
        fill("nginx.conf", config, {
            "DIR": self.folder, "ROOT": self.root, "PORT": self.port,
            "WORKERS": nginx_workers(), "BUFFERS": self.buffers,
            "USER_LINE": f"user {UNPRIVILEGED_USER} {_group()};" if os.geteuid() == 0 else ""})
        return [paths.NGINX, "-p", self.folder, "-e", os.path.join(self.folder, "nginx-error.log"), "-c", config], {}

    def front_pids(self):
        return processes.tree(self.roots[1].pid)

    def app_pids(self):
        return processes.tree(self.roots[0].pid)


class PhpFpmFew(PhpFpm):
    """With as many children as Baton has threads when nothing is configured and more would not help."""

    name = f"nginx+php-fpm, {FEW} children"


class PhpFpmAsShipped(PhpFpm):
    """The same with nginx's default buffers, 8 of 4 KiB: large answers go through a file."""

    name = "nginx+php-fpm, default buffers"
    buffers = ""


class Nginx(PhpFpm):
    """nginx alone with a static file: what an HTTP server in C costs without an application."""

    name = "nginx static"
    has_app = False

    @property
    def arrangement(self):
        return f"{nginx_workers()} workers"

    def commands(self):
        return [self.nginx()]

    def path_of(self, path):
        return "/hello.txt" if path == "/hello.php" else path

    def front_pids(self):
        return self.pids()

    def app_pids(self):
        return []


class Bare(Server):
    """A server of ours or hyper's that answers a constant: `PROGRAM ADDR THREADS [MORE]`."""

    def __init__(self, name, program, threads=1, more=(), first="/"):
        super().__init__()
        self.name, self.program, self.threads, self.more, self.first = name, program, threads, more, first
        self.arrangement = f"{threads} thread{'s' if threads > 1 else ''}"

    def commands(self):
        return [([self.program, f"127.0.0.1:{self.port}", str(self.threads), *self.more], {})]

    def first_path(self):
        return self.first


def nginx_workers():
    """One per core, nginx's own advice. BENCH_NGINX_WORKERS tries another number."""
    return int(os.environ.get("BENCH_NGINX_WORKERS") or len(os.sched_getaffinity(0)))


def _group():
    return grp.getgrgid(pwd.getpwnam(UNPRIVILEGED_USER).pw_gid).gr_name


def fill(template, path, values):
    with open(os.path.join(paths.PEERS, template)) as file:
        text = file.read()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    _write(path, text)


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o644)
