"""What was measured with what, where and when."""

import os
import platform
import subprocess
import sys
import time

from lib import builds, paths

# Debian's, as it names their versions.
PACKAGES = {"puma": "puma", "ruby": "ruby3.1", "gunicorn": "gunicorn", "uwsgi": "uwsgi-core", "wrk": "wrk"}


def facts(command):
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int((_first("/proc/meminfo", "MemTotal") or "0").split()[0]) // 1024,
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "commit": _line([paths.program("git"), "-C", paths.REPOSITORY, "describe", "--always", "--dirty"]),
        "versions": {
            "baton": _line([paths.BATON, "--version"]),
            "nginx": _line([paths.NGINX, "-v"]),
            "php-fpm": _line([paths.PHP_FPM, "-v"]),
            "hyper": _locked("hyper", "hyper"),
            "tokio": _locked("hyper", "tokio"),
            "may_minihttp": _locked("may_minihttp", "may_minihttp"),
            **{name: _line(["dpkg-query", "-W", "-f", "${Version}", package]) for name, package in PACKAGES.items()},
            "granian": _line([paths.executable(os.path.join(builds.VENV, "bin", "granian")), "--version"]),
            "rustc": _line(["rustc", "--version"]),
            "python": sys.version.split()[0],
        },
    }


def _first(path, name):
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(name):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def _line(argv):
    """The first line that a program prints of itself."""
    if not argv[0]:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None


def _locked(peer, package):
    """The version in a Rust peer's lock file."""
    try:
        with open(os.path.join(paths.PEERS, peer, "Cargo.lock")) as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for at, line in enumerate(lines[:-1]):
        if line == f'name = "{package}"':
            return lines[at + 1].partition('"')[2].rstrip('"')
    return None
