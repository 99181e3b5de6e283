"""What is compared, and what would be good enough. All ratios are "how many times better": more is better."""

from dataclasses import dataclass

# metric -> (words, key of a round's figures, whether more of it is better)
METRICS = {
    "rate": ("req/s", "requests_per_second", True),
    "cpu": ("CPU per request", "cpu_us_per_request_all", False),
    "p50": ("P50", "p50_us", False),
    "p99": ("P99", "p99_us", False),
}
ROUNDS_WHEN_NEAR = 9


@dataclass(frozen=True)
class Comparison:
    """`subject` against `peer` on one path with so many connections."""

    name: str
    path: str
    connections: int
    subject: str
    peer: str
    targets: dict
    rounds_min: int = 1
    note: str = ""
    # One of lib/sites.py instead of the scripts.
    site: str = ""


@dataclass(frozen=True)
class Limit:
    """A single figure that may not exceed something."""

    name: str
    words: str
    limit: float
    unit: str


# FrankenPHP 1.12 in worker mode against nginx and php-fpm, measured once on such a machine: where it is not installed,
# php-fpm stands in for it with these ratios. Its P99 was 9.1 ms to php-fpm's 4.1 ms; its 200,000 bytes are against
# nginx's default buffers.
FRANKENPHP_HELLO, FRANKENPHP_BIG, FRANKENPHP_PARTS = 0.95, 2.5, 2.8 / 2.5
WORKER_HELLO = 3.5 * FRANKENPHP_HELLO
WORKER_P99 = 3.0 * 4.1 / 9.1


def pages(site, path, note):
    """A page of an application is the interpreter's work, and how many compute at once decides about its P99: Baton with nothing
    configured beside php-fpm with 8 children and with as few as Baton has threads, and both with 8. All have the same target: 8
    children are more than suits pages that compute, so the first row alone would flatter Baton."""
    goal = {"rate": 1.0, "p99": 1.0}
    return [Comparison(f"{site}{ending}", path, 10, subject, peer, goal, rounds_min=ROUNDS_WHEN_NEAR, site=site, note=note)
            for ending, subject, peer in (("", "baton-by-load", "php-fpm"), ("-few", "baton-by-load", "php-fpm-few"), ("-8", "baton", "php-fpm"))]


COMPARISONS = [
    Comparison("hello-4", "/hello.php", 4, "baton", "php-fpm", {"rate": 3.0, "cpu": 3.0}),
    Comparison("hello-50", "/hello.php", 50, "baton", "php-fpm", {"rate": 3.0, "cpu": 3.0, "p99": 2.0}),
    Comparison("hello-500", "/hello.php", 500, "baton", "php-fpm", {"rate": 3.0, "cpu": 3.0, "p99": 3.0}),
    Comparison("big", "/big.php", 4, "baton", "php-fpm", {"rate": 3.0}, note="25 headers and one string of 200,000 bytes"),
    Comparison("parts", "/parts.php", 4, "baton", "php-fpm", {"rate": 3.0}, note="the same in 194 writes of 1,024 bytes and one of 1,344"),
    Comparison("big-default", "/big.php", 4, "baton", "php-fpm-as-shipped", {"rate": 3.0}, note="big against nginx's default buffers"),
    Comparison("parts-default", "/parts.php", 4, "baton", "php-fpm-as-shipped", {"rate": 3.0}, note="parts against nginx's default buffers"),
    Comparison("worker-4", "/hello.php", 4, "baton-worker", "php-fpm", {"rate": WORKER_HELLO, "p99": WORKER_P99}),
    Comparison("worker-50", "/hello.php", 50, "baton-worker", "php-fpm", {"rate": WORKER_HELLO, "p99": WORKER_P99}),
    Comparison("worker-500", "/hello.php", 500, "baton-worker", "php-fpm", {"rate": WORKER_HELLO, "p99": WORKER_P99}),
    Comparison("worker-big", "/big.php", 4, "baton-worker", "php-fpm-as-shipped", {"rate": 1.5 * FRANKENPHP_BIG}),
    Comparison("worker-parts", "/parts.php", 4, "baton-worker", "php-fpm-as-shipped", {"rate": 3.0 * FRANKENPHP_PARTS}),
    Comparison("frankenphp-4", "/hello.php", 4, "baton-worker", "frankenphp", {"rate": 3.5, "p99": 3.0}),
    Comparison("frankenphp-50", "/hello.php", 50, "baton-worker", "frankenphp", {"rate": 3.5, "p99": 3.0}),
    Comparison("frankenphp-500", "/hello.php", 500, "baton-worker", "frankenphp", {"rate": 3.5, "p99": 3.0}),
    Comparison("frankenphp-big", "/big.php", 4, "baton-worker", "frankenphp", {"rate": 1.5}),
    Comparison("frankenphp-parts", "/parts.php", 4, "baton-worker", "frankenphp", {"rate": 3.0}),
    *pages("mediawiki", "/index.php?title=Main_Page", "MediaWiki's main page, SQLite and APCu"),
    *pages("wordpress", "/?p=1", "a post of WordPress, MariaDB on a unix socket"),
    Comparison("static-1k", "/1k.txt", 50, "baton", "nginx", {"rate": 0.9}, rounds_min=ROUNDS_WHEN_NEAR),
    Comparison("static-1m", "/1m.bin", 10, "baton", "nginx", {"rate": 0.9}, rounds_min=ROUNDS_WHEN_NEAR),
    Comparison("constant", "/", 50, "constant", "hyper", {"rate": 1.0}, rounds_min=ROUNDS_WHEN_NEAR,
               note="13 bytes answered by the front's own I/O threads, no application; equal threads"),
]
# A decision of ours, and what it was decided against: one server, one switch. The names of the variants are what the
# program `constant` is told; a later switch is one more line here and in VARIANTS.
VARIANTS = {
    "write-11": ("body=11",), "write-11-ask-first": ("body=11", "write=ask-first"),
    "write-200000": ("body=200000",), "write-200000-ask-first": ("body=200000", "write=ask-first"),
    "clock-per-tick": (), "clock-per-use": ("clock=per-use",),
}
SWITCHES = [
    Comparison("ab-write-11", "/?bytes=11", 50, "write-11", "write-11-ask-first", {},
               note="11 bytes: written at once, against written when epoll has said that the socket is writable"),
    Comparison("ab-write-200000", "/?bytes=200000", 50, "write-200000", "write-200000-ask-first", {}, note="the same with 200,000 bytes"),
    Comparison("ab-clock", "/", 50, "clock-per-tick", "clock-per-use", {}, rounds_min=ROUNDS_WHEN_NEAR,
               note="13 bytes: the clock read once a tick, against at each use"),
]
FLOOR = Comparison("floors", "/hello.txt", 50, "", "nginx", {}, note="nginx alone, a static file of 13 bytes; for reference")
# All at once, in turns, and without ratios. lib/peers.py has them.
PEERS = Comparison("peers", "/hello.php", 50, "", "", {}, note="13 bytes; PHP's are Baton's and php-fpm's, Rust's a constant")
SINGLES = ["clock", "syscalls", "idle", "start", "connections", "memory", "threads-600", "threads-1000", "overload", "two-apps", "promise", "handoffs"]
NAMES = [comparison.name for comparison in COMPARISONS + SWITCHES] + [FLOOR.name, PEERS.name] + SINGLES

LIMITS = {
    "syscalls-front": Limit("syscalls-front", "system calls per request in the front, without futex, eventfd and sched_yield", 2.2, "calls"),
    "syscalls-app": Limit("syscalls-app", "system calls per request in the app, without futex, eventfd and sched_yield", 7, "calls"),
    "syscalls-app-without-time-limits": Limit("syscalls-app-without-time-limits", "the same, max_execution_time and max_input_time 0", 4, "calls"),
    "syscalls-worker": Limit("syscalls-worker", "the same of a worker, time limits as shipped", 1, "calls"),
    "idle": Limit("idle", "CPU time while idle", 0, "ticks"),
    "connections": Limit("connections", "front RSS with 10,000 idle keep-alive connections", 30, "MB"),
    "threads-600": Limit("threads-600", "600 PHP threads, all of Baton's processes (PSS and page tables)", 1024, "MiB"),
    "memory": Limit("memory", "memory per added PHP thread (PSS and page tables)", 1, "MB"),
}
IDLE_CONNECTIONS = 10_000
THREADS, THREADS_MANY = 8, 40
THREADS_IN_1_GIB, THREADS_MOST = 600, 1000
