"""The six loads of bench/scenarios, sent by `baton load`: clients come and go along a ramp, and what counts is how many requests
were handled over all of it. Who carries them is one list, VARIANTS."""

import contextlib
import os
import re
import time
from dataclasses import dataclass

from lib import answers, loadtest, paths, processes, servers

# Threads and children of those that have a fixed number: far more than cores, as people choose it for requests that wait.
THREADS = 64
# What Baton starts with, and goes back to.
LEAST = servers.FEW
# A quick run goes through each ramp in so many seconds, and everything else in a scenario that takes long in as much less.
QUICK_S = 3
# Literal sleeps from a second on are the ones that a load is about.
LONG_SLEEP = re.compile(r"(?<=sleep_ms=)\d{4,}")
SPAN = re.compile(r"\b(\d+)(ms|s)\b")
STAGES = re.compile(r'^connections = "(.*)"', re.M)
# What the last replies may take beside the ramp, as planned; `baton load` bounds it by the scenario's timeout.
DRAIN_S = 5
START_S = 1
SETTLE_S, SETTLE_S_MAX = 0.3, 15
# The thread of the front that decides about the number of threads, and starts them.
SCALER = "supervisor"


@dataclass(frozen=True)
class Load:
    """A file in bench/scenarios. `deadline_ms`: the servers' limit of a request's time, where the load is about that."""

    scenario: str
    deadline_ms: int | None = None

    @property
    def name(self):
        return f"load-{self.scenario}"

    @property
    def path(self):
        return os.path.join(paths.SCENARIOS, f"{self.scenario}.toml")

    def text(self):
        with open(self.path) as file:
            return file.read()


LOADS = [Load("hello"), Load("database"), Load("external-api"), Load("computation"), Load("hanging"), Load("timeouts", 5000)]
NAMES = [load.name for load in LOADS]
# name -> (server that has to be there, how to make it for a load whose deadline is so many milliseconds or None). The first has
# as many threads as the load asks for, the others a fixed number.
VARIANTS = {
    "baton": ("baton", lambda load, deadline_ms: servers.Baton(None, deadline_ms=deadline_ms)),
    f"baton-{LEAST}": ("baton", lambda load, deadline_ms: servers.Baton(LEAST, deadline_ms=deadline_ms)),
    f"baton-{THREADS}": ("baton", lambda load, deadline_ms: servers.Baton(THREADS, deadline_ms=deadline_ms)),
    f"php-fpm-{THREADS}": ("php-fpm", lambda load, deadline_ms: servers.PhpFpm(THREADS, deadline_ms=deadline_ms)),
}


def planned_s(load, options):
    text = load.text()
    ramp_s = QUICK_S if options.quick else seconds(text)
    return ramp_s + START_S + DRAIN_S * (scale(load, options) if options.quick else 1)


def seconds(scenario):
    """How long the ramp of a scenario lasts."""
    stages = STAGES.search(scenario)[1]
    return sum(_ms(*SPAN.match(stage).groups()) for stage in stages.split(",")) / 1000


def most_clients(scenario):
    """How many clients there are at the peak of its ramp."""
    return max(int(stage.split(":")[1]) for stage in STAGES.search(scenario)[1].split(","))


def scale(load, options):
    return QUICK_S / seconds(load.text()) if options.quick else 1


def scaled(scenario, factor):
    """The same in `factor` of the time: ramps, windows, timeouts and long sleeps; the work stays as it is."""
    shorter = SPAN.sub(lambda span: f"{round(_ms(*span.groups()) * factor)}ms", scenario)
    return LONG_SLEEP.sub(lambda sleep: str(round(int(sleep[0]) * factor)), shorter)


def run(load, variants, options, progress):
    """`variants`: the names of those that can run. Returns {"name", "rounds": [{variant: figures}]}; each round starts each
    server afresh, in turns."""
    factor = scale(load, options)
    rounds = []
    for number in range(options.load_rounds):
        figures = {}
        for variant in variants if number % 2 == 0 else variants[::-1]:
            progress.say(f"{load.name} {number + 1}/{options.load_rounds} {variant}")
            figures[variant] = one = _run(load, variant, factor)
            progress.done(planned_s(load, options))
            progress.say(f"{load.name} {number + 1}/{options.load_rounds} {variant}: {one['handled']:,} handled, "
                         f"{in_words(one['not_handled']) or 'no errors'}")
        rounds.append({variant: figures[variant] for variant in variants})
    return {"name": load.name, "seconds": seconds(load.text()) * factor, "deadline_ms": deadline_ms(load, factor), "rounds": rounds}


def _run(load, variant, factor):
    return run_once(load, VARIANTS[variant][1](load, deadline_ms(load, factor)), factor)


def run_once(load, server, factor):
    """The whole ramp of a load on a server that is started for it."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(server)
        scenario = stack.enter_context(_scenario(load, server, factor))
        answers.check(server.name, server.port, server.path_of("/work.php"))
        _settle(server)
        ticks, scaler_ns, started = processes.cpu_ticks(server.pids()), processes.cpu_ns_of(server.pids(), SCALER), time.monotonic()
        seen = Peak(server)
        report = loadtest.run(server.url("/"), scenario, seconds(load.text()) * factor, seen.look)
        cpu_us = (processes.cpu_ticks(server.pids()) - ticks) / processes.TICKS_PER_SECOND * 1e6
        scaler_share = (processes.cpu_ns_of(server.pids(), SCALER) - scaler_ns) / 1e9 / (time.monotonic() - started)
    made = figures(report)
    return {**made, "cpu_us_per_handled": cpu_us / max(1, made["handled"]), "processes_max": seen.processes, "rss_kib_max": seen.rss_kib,
            "app_processes": [seen.app_least, seen.app_most], "scaler_cpu_share": scaler_share}


def figures(report):
    """What became of the requests, by `baton load`'s report."""
    handled = report["requests"] + report["requests_late"]
    kinds = {kind: count for kind, count in report["errors"].items() if kind not in ("total", "status", "examples") and count}
    # Replies with an unexpected status say which: a 503 at once is no 504 after seconds.
    kinds |= {f"status {status}": count for status, count in report["statuses"].items() if status != "200"}
    kinds |= {kind: report[kind] for kind in ("unfinished", "unsent") if report[kind]}
    latency = report["latency_us"] or {}
    generator = report["generator"]
    return {"handled": handled, "not_handled": kinds, "handled_per_second": report["requests_per_second"], "sent": report["sent"],
            "p50_us": latency.get("p50"), "p99_us": latency.get("p99"), "max_us": latency.get("max"),
            "generator": {name: generator[name] for name in
                          ("saturated", "cpu_us_per_request", "cpu_shares", "cpu_wait_shares", "lateness_us", "turn_us")},
            "warnings": report["warnings"]}


def in_words(counted):
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counted.items()))


class Peak:
    """The most processes, and the most memory, that a server had at any look. RSS counts what processes share once for each."""

    def __init__(self, server):
        self.server, self.processes, self.rss_kib = server, 0, 0
        self.app_least = self.app_most = len(server.app_pids())

    def look(self):
        pids = self.server.pids()
        apps = len(self.server.app_pids())
        self.app_least, self.app_most = min(self.app_least, apps), max(self.app_most, apps)
        self.processes = max(self.processes, len(pids))
        self.rss_kib = max(self.rss_kib, processes.rss_kib(pids))


def _settle(server):
    """Waits until no more processes come: the first answer may be there before the last of them."""
    last, deadline = None, time.monotonic() + SETTLE_S_MAX
    while (now := len(server.pids())) != last and time.monotonic() < deadline:
        last = now
        time.sleep(SETTLE_S)


def deadline_ms(load, factor):
    return load.deadline_ms and max(100, round(load.deadline_ms * factor))


@contextlib.contextmanager
def _scenario(load, server, factor):
    """The path of the scenario; of a changed copy, where it is to be shorter or the server has the work elsewhere."""
    where = server.path_of("/work.php")
    if factor == 1 and where == "/work.php":
        yield load.path
        return
    os.makedirs(paths.OUT, exist_ok=True)
    path = os.path.join(paths.OUT, f"{load.scenario}.toml")
    with open(path, "w") as file:
        file.write(scaled(load.text(), factor).replace("/work.php", where))
    yield path


def _ms(number, unit):
    return int(number) * (1000 if unit == "s" else 1)
