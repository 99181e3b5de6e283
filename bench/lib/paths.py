"""Where things are: all found relative to this repository, or on PATH."""

import glob
import os
import shutil

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = os.path.dirname(BENCH)
SCRIPTS = os.path.join(BENCH, "scripts")
APPS = os.path.join(BENCH, "apps")
SCENARIOS = os.path.join(BENCH, "scenarios")
PEERS = os.path.join(BENCH, "peers")
OUT = os.path.join(BENCH, "out")
TARGET = os.environ.get("CARGO_TARGET_DIR") or os.path.join(REPOSITORY, "target")

# Debian keeps daemons where an ordinary user's PATH does not look.
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def program(*names):
    """The first of these programs that is installed, or None. A name may hold a wildcard."""
    for name in names:
        found = shutil.which(name, path=SEARCH_PATH)
        if found:
            return found
        for folder in SEARCH_PATH.split(":"):
            matches = sorted(glob.glob(os.path.join(folder, name))) if folder else []
            if matches:
                return matches[-1]
    return None


def executable(path):
    """`path` if it can be run, else None."""
    return path if os.access(path, os.X_OK) and os.path.isfile(path) else None


# Environment variables name other builds than the release build of this repository.
BATON = executable(os.environ.get("BATON") or os.path.join(TARGET, "release", "baton"))
CONSTANT = executable(os.environ.get("BATON_CONSTANT") or os.path.join(TARGET, "release", "examples", "constant"))
HANDOFF = executable(os.environ.get("BATON_HANDOFF") or os.path.join(TARGET, "release", "bench-handoff"))
FRANKENPHP = executable(os.environ.get("FRANKENPHP") or "/")
WRK = program("wrk")
NGINX = program("nginx")
PHP_FPM = program("php-fpm", "php-fpm8.*")
PUMA = program("puma")
GUNICORN = program("gunicorn")
UWSGI = program("uwsgi")
PERF = program("perf")
STRACE = program("strace")
VALGRIND = program("valgrind")
CARGO = program("cargo", os.path.expanduser("~/.cargo/bin/cargo"))
