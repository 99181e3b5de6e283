"""Who chooses the thread for a request: the dispatcher, as in Baton, or the threads themselves, which pull. All in one program of
ours (`bench/handoff`), whose applications do made-up work."""

from lib import loadtest, paths, processes, servers, stats, syscalls
from lib.load import LoadError

DIRECT, SEMAPHORE, NONE = "direct", "semaphore", "none"
# The last has no application, and shows what is left of latencies without a handoff.
HANDOFFS = (DIRECT, "queue", SEMAPHORE, NONE)
# What PHP computes for a hello, as a worker and as a script: see "floors" and the worker's CPU in RESULTS.md.
WORKER_NS, REGULAR_NS = 2_000, 7_000
# name, threads, connections, nanoseconds of work.
LOADS = (("workers", 8, 500, WORKER_NS), ("regular", 8, 500, REGULAR_NS), ("regular, low load", 1, 10, REGULAR_NS))
IO_THREADS = (1, 2, 4)
COUNT_S = 1


class Handoff(servers.Server):
    def __init__(self, handoff, threads, io_threads, work_ns):
        super().__init__()
        self.name, self.more = handoff, (handoff, threads, io_threads, work_ns)

    def commands(self):
        return [([paths.HANDOFF, f"127.0.0.1:{self.port}", *map(str, self.more)], {})]

    def first_path(self):
        return "/"


def planned_s(options):
    cells = len(LOADS) * len(IO_THREADS) * len(HANDOFFS)
    return cells * (options.rounds * (options.seconds + loadtest.WARM_UP_S) + COUNT_S + 3)


def run(options, progress):
    """A list of {"load", "threads", "connections", "io_threads", "rounds": [{handoff: figures}], "futex": {handoff: per request}}."""
    if not paths.HANDOFF:
        raise servers.ServerError("the handoffs are left out: no target/release/bench-handoff; run make bench")
    return [_compared(load, io_threads, options, progress) for load in LOADS for io_threads in IO_THREADS]


def _compared(load, io_threads, options, progress):
    name, threads, connections, work_ns = load
    started = []
    try:
        for handoff in HANDOFFS:
            started.append(Handoff(handoff, threads, io_threads, work_ns).start())
        rounds = []
        for number in range(options.rounds):
            # Each is first, second and last equally often.
            turn = number % len(started)
            rounds.append({server.name: _figures(server, connections, options.seconds) for server in started[turn:] + started[:turn]})
            progress.done(len(started) * (options.seconds + loadtest.WARM_UP_S))
            progress.say(f"handoff, {name}, {io_threads} I/O threads, {number + 1}/{options.rounds}: " + ", ".join(
                f"{handoff} {rounds[-1][handoff]['rate']:,.0f} req/s, P99 {rounds[-1][handoff]['p99_us'] / 1e3:.2f} ms" for handoff in HANDOFFS))
        futex = {}
        for server in started:
            counted = syscalls.per_request(server.pids(), server.url("/"), connections, COUNT_S)
            futex[server.name] = counted["futex"] if counted else None
            progress.done(COUNT_S + 3)
        return {"load": name, "threads": threads, "connections": connections, "io_threads": io_threads, "rounds": rounds, "futex": futex}
    finally:
        for server in started:
            server.stop()


def _figures(server, connections, seconds):
    pids = server.pids()
    before = processes.scheduling(pids)
    report = loadtest.steady(server.url("/"), seconds, "-c", str(connections), "--expect-text", "Hello, world!")
    after = processes.scheduling(pids)
    if report["errors"]["total"] or not report["latency_us"]:
        raise LoadError(f"{server.name}: {report['errors']}")
    # The warm-up was counted as well.
    requests = sum(each["requests"] for each in report["series"])
    per_request = {key: (after[key] - before[key]) / requests for key in after}
    return {"rate": report["requests_per_second"], **{f"{key}_us": report["latency_us"][key] for key in ("p50", "p75", "p90", "p99")},
            "switches": per_request["switches"], "off_cpu_us": per_request["delay_ns"] / 1e3, "cpu_us": per_request["cpu_ns"] / 1e3}


def ratios(rounds, key, peer):
    """Of the direct handoff to the other one, round against round."""
    return [one[DIRECT][key] / one[peer][key] for one in rounds]


def middle(rounds, handoff, key):
    return stats.median([one[handoff][key] for one in rounds])
