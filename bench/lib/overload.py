"""More requests than threads can take: what is still done of them, how long those waited, and how soon the others heard so.

The script sleeps, so that the threads are what is short, and neither the CPU nor the generator. How long a reply took, and which
status it had, is what Baton's own access log says: from the request's first byte to the reply's last."""

import contextlib
import json
import os
import shutil
import subprocess
import time

from lib import loadtest, paths, servers, stats

FACTORS = (2, 5)
CONNECTIONS = 3000
# What threads do: 10 ms of waiting and next to nothing else.
PATH = "/work.php?sleep_ms=10&lines=1"
CAPACITY_CONNECTIONS = 50
# A client of the other application that asks for this often, so that its threads are never short.
OTHER_RATE = 100


class Logged(servers.Baton):
    """Says of each reply when it came."""

    name = "baton with a log"

    def commands(self):
        [(argv, environment)] = super().commands()
        return [([*argv, "--access-log", self.log, "--access-log-format", "json"], environment)]

    @property
    def log(self):
        return os.path.join(self.folder, "access.log")

    def replies(self):
        """Takes the log: [(status, milliseconds, target)]."""
        # Written by a thread of its own.
        time.sleep(0.5)
        with open(self.log) as file:
            lines = [json.loads(line) for line in file]
        os.truncate(self.log, 0)
        return [(line["status"], line["us"] / 1e3, line["target"]) for line in lines]


class TwoApps(Logged):
    """The same folder twice: what lies below `/a` and `/b` is an application each, with half of the threads."""

    name = "baton with two applications"

    def commands(self):
        both = os.path.join(self.folder, "both")
        for part in ("a", "b"):
            # With their times: opcache keeps no file that has just changed.
            shutil.copytree(self.root, os.path.join(both, part))
        shutil.copy2(os.path.join(self.root, "index.php"), both)
        config = os.path.join(self.folder, "two-apps.toml")
        servers.fill("two-apps.toml", config, {"root": both})
        argv = [paths.BATON, "serve", "--config", config, "--listen", f"127.0.0.1:{self.port}",
                "--access-log", self.log, "--access-log-format", "json"]
        return [(argv, self.php_environment())]

    def first_path(self):
        return "/a/hello.php"


def run(_, options, progress):
    rounds = options.rounds
    with Logged() as server:
        found = {"capacity": [], **{factor: [] for factor in FACTORS}}
        for _ in range(rounds):
            capacity = _handled_per_second(loadtest.steady(server.url(PATH), options.seconds, "-c", str(CAPACITY_CONNECTIONS)))
            server.replies()
            found["capacity"].append(capacity)
            progress.done(options.seconds + loadtest.WARM_UP_S)
            for factor in FACTORS:
                one = _overloaded(server, capacity, factor, options)
                found[factor].append(one)
                progress.done(options.seconds + loadtest.WARM_UP_S + 3)
                progress.say(f"overload {factor}x: {one['goodput'] * 100:.1f} % of {capacity:,.0f} req/s, P99 of the answered "
                             f"{one['answered_p99_ms']:.0f} ms, of the refused {one['refused_p99_ms']:.1f} ms")
    return found


def _overloaded(server, capacity, factor, options):
    report = loadtest.steady(server.url(PATH), options.seconds, "-c", str(CONNECTIONS), "--rate", str(round(capacity * factor)))
    replies = server.replies()
    answered = [ms for status, ms, _ in replies if status == 200]
    refused = [ms for status, ms, _ in replies if status == 503]
    return {"goodput": _handled_per_second(report) / capacity, "answered": len(answered), "refused": len(refused),
            "answered_p99_ms": _percentile(answered, 99), "answered_max_ms": max(answered, default=0),
            "refused_p50_ms": _percentile(refused, 50), "refused_p99_ms": _percentile(refused, 99), "refused_max_ms": max(refused, default=0),
            "others": len(replies) - len(answered) - len(refused), "unsent": report["unsent"],
            "generator_late_p99_ms": report["generator"]["lateness_us"]["p99"] / 1e3}


def two_apps(_, options, progress):
    """P99 of one application while the other has five times what it can take, beside without, in turns."""
    rounds = []
    with TwoApps() as server:
        capacity = _handled_per_second(loadtest.steady(server.url(f"/a{PATH}"), options.seconds, "-c", str(CAPACITY_CONNECTIONS)))
        for _ in range(options.rounds):
            one = {}
            for name, rate in (("alone", None), ("beside", capacity * 5)):
                server.replies()
                with _load_beside(server, f"/a{PATH}", rate, options) if rate else contextlib.nullcontext():
                    loadtest.steady(server.url(f"/b{PATH}"), options.seconds, "-c", "50", "--rate", str(OTHER_RATE))
                replies = [ms for status, ms, target in server.replies() if status == 200 and target.startswith("/b")]
                one[name] = {"replies": len(replies), "p50_ms": _percentile(replies, 50), "p99_ms": _percentile(replies, 99)}
                progress.done(options.seconds + loadtest.WARM_UP_S + 2)
            rounds.append(one)
            progress.say(f"overload, the other application: P99 {one['alone']['p99_ms']:.1f} ms alone, {one['beside']['p99_ms']:.1f} ms beside")
    return rounds


@contextlib.contextmanager
def _load_beside(server, path, rate, options):
    command = loadtest.steadily(server.url(path), options.seconds, "-c", str(CONNECTIONS), "--rate", str(round(rate)))
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def _handled_per_second(report):
    """While it was sent, without the beginning and the end."""
    seconds = [each["requests"] for each in report["series"] if each["stage"] == "measured"]
    return stats.median(seconds) if seconds else report["requests_per_second"]


def _percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0
