"""Baton with nothing configured beside php-fpm with the number of children that suits the load best, which is searched for."""

import os

from lib import loadtest, paths, processes, servers, stats

SCENARIO = os.path.join(paths.SCENARIOS, "promise.toml")
CHILDREN = (8, 16, 24, 32, 40, 56, 80, 120)
SEARCH_ROUNDS = 3
ROUNDS = 9
# So that the number of threads has settled before the first pair.
SETTLE_S = 5
TARGET = 0.95


def planned_s(options):
    searches = len(CHILDREN) * (1 if options.quick else SEARCH_ROUNDS)
    return (searches + 2 * _rounds(options)) * (options.seconds + loadtest.WARM_UP_S) + SETTLE_S + len(CHILDREN) * 2


def run(_, options, progress):
    searched = {}
    for children in CHILDREN:
        with servers.PhpFpm(children) as server:
            searched[children] = [_rate(server, options.seconds)["rate"] for _ in range(1 if options.quick else SEARCH_ROUNDS)]
        progress.done(len(searched[children]) * (options.seconds + loadtest.WARM_UP_S) + 2)
        progress.say(f"promise: php-fpm with {children} children: {stats.median(searched[children]):,.0f} req/s")
    best = max(CHILDREN, key=lambda children: stats.median(searched[children]))
    rounds = []
    with servers.Baton(None) as baton, servers.PhpFpm(best) as peer:
        _rate(baton, SETTLE_S)
        for number in range(_rounds(options)):
            one = {}
            for name, server in [("baton", baton), ("php-fpm", peer)][:: 1 if number % 2 == 0 else -1]:
                one[name] = _rate(server, options.seconds)
                progress.done(options.seconds + loadtest.WARM_UP_S)
            rounds.append(one)
            progress.say(f"promise {number + 1}: baton {one['baton']['rate']:,.0f} req/s with {one['baton']['processes']} processes, "
                         f"php-fpm {one['php-fpm']['rate']:,.0f}")
    return {"searched": searched, "best": best, "rounds": rounds}


def _rounds(options):
    return 1 if options.quick else ROUNDS


def _rate(server, seconds):
    """Good replies a second, CPU time of the server for each, latencies, and processes at the end."""
    pids = server.pids()
    before = processes.cpu_ticks(pids)
    report = loadtest.steady(server.url("/"), seconds, "--scenario", SCENARIO)
    pids = server.pids()
    cpu_us = (processes.cpu_ticks(pids) - before) / processes.TICKS_PER_SECOND * 1e6
    handled = max(1, sum(each["requests"] for each in report["series"]))
    return {"rate": report["requests_per_second"], "p50_us": report["latency_us"]["p50"], "p99_us": report["latency_us"]["p99"],
            "errors": report["errors"]["total"], "cpu_us": cpu_us / handled, "processes": len(pids)}


def ratios(rounds):
    return [one["baton"]["rate"] / one["php-fpm"]["rate"] for one in rounds if one["php-fpm"]["rate"]]
