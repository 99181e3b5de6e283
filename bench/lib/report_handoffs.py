"""The direct handoff beside those in which threads pull, as a table."""

from lib import handoffs, stats
from lib.tables import table

WORDS = {handoffs.DIRECT: "direct", "queue": "pulled, one blocking queue", handoffs.SEMAPHORE: "pulled, tickets on a semaphore",
         handoffs.NONE: "none: the I/O threads answer"}


def markdown(found):
    if not found:
        return None
    rows = [row for one in found for row in _rows(one)]
    beside = [row for one in found for row in _beside(one)]
    return ("## The direct handoff beside threads that pull\n\nOne program with Baton's I/O threads, dispatcher and shared memory, each thread a process "
            f"(`bench/handoff`); workers compute {handoffs.WORKER_NS / 1e3:g} us for a request, regular threads {handoffs.REGULAR_NS / 1e3:g} us. "
            "Latencies in milliseconds, by `baton load`. Of the server's processes, for each request: context switches; futex calls, counted in a pass of "
            "their own; off CPU, the time in which they could have run and waited for a core; CPU time.\n\n"
            + table(["load", "threads", "connections", "I/O threads", "handoff", "req/s", "P50", "P75", "P90", "P99", "switches", "futex",
                     "off CPU, us", "CPU, us", "rounds"], rows)
            + "\nDirect, of each of the others: medians of rounds in turns, and their 95 % intervals. Over 1 is more.\n\n"
            + table(["load", "I/O threads", "beside", "req/s", "P50", "P99"], beside))


def _rows(one):
    rounds = one["rounds"]
    for handoff in handoffs.HANDOFFS:
        def middle(key):
            return handoffs.middle(rounds, handoff, key)
        futex = one["futex"][handoff]
        yield [one["load"], one["threads"], one["connections"], one["io_threads"], WORDS[handoff], f"{middle('rate'):,.0f}",
               *(f"{middle(key) / 1e3:.2f}" for key in ("p50_us", "p75_us", "p90_us", "p99_us")), f"{middle('switches'):.2f}",
               "" if futex is None else f"{futex:.3f}", f"{middle('off_cpu_us'):.1f}", f"{middle('cpu_us'):.1f}", len(rounds)]


def _beside(one):
    for peer in handoffs.HANDOFFS[1:]:
        yield [one["load"], one["io_threads"], WORDS[peer], *(_ratio(handoffs.ratios(one["rounds"], key, peer)) for key in ("rate", "p50_us", "p99_us"))]


def _ratio(values):
    low, high = stats.interval(values)
    return f"{stats.median(values):.2f}x ({low:.2f} to {high:.2f})"
