"""Servers in turns: A B, B A, A B ... Of two, each pair of rounds gives one ratio."""

import contextlib

from lib import answers, measure, stats, targets

WARM_UP_S = 1
# Of servers that were just started: the scripts of an application have to be compiled.
WARM_UP_ANEW_S = 2
START_S = 0.5
# What a round costs beside the load itself.
OVERHEAD_S = 0.2
MEDIANS = ("requests_per_second", "p50_us", "p90_us", "p99_us",
           "cpu_us_per_request_all", "cpu_us_per_request_front", "cpu_us_per_request_app")


def planned_s(comparison, servers, options):
    rounds, one = _wanted(comparison, options), options.seconds + OVERHEAD_S
    if comparison.site:
        return len(servers) * rounds * (START_S + WARM_UP_ANEW_S + one)
    return len(servers) * (WARM_UP_S + rounds * one)


def _wanted(comparison, options):
    return max(options.rounds, 0 if options.quick else comparison.rounds_min)


def run(comparison, servers, options, progress):
    """`servers`: the subject and the peer, or the one of them that is there, or any number. Returns the rounds, what is in the
    middle of them, and the ratios of two."""
    for server in servers:
        _warm_up(comparison, server, WARM_UP_S, progress)
    rounds = []
    wanted = _wanted(comparison, options)
    while len(rounds) < wanted:
        rounds.append(_round(comparison, servers, options, progress, len(rounds), wanted))
        # Decided once, not after each round: to stop as soon as the figures please would bend them.
        if len(rounds) == wanted == options.rounds < targets.ROUNDS_WHEN_NEAR and not options.quick \
                and _too_near(comparison, rounds):
            progress.add((targets.ROUNDS_WHEN_NEAR - wanted) * len(servers) * (options.seconds + OVERHEAD_S))
            progress.say(f"{comparison.name}: within 10 % of a target, {targets.ROUNDS_WHEN_NEAR} rounds instead of {wanted}")
            wanted = targets.ROUNDS_WHEN_NEAR
    return _found(comparison, servers, rounds)


def run_anew(comparison, makers, options, progress):
    """As `run`, with new servers for each round, the other one started first each time: of two that were
    started once the last answered 3 and 7 % more pages, in two runs with either order."""
    rounds = []
    wanted = _wanted(comparison, options)
    while len(rounds) < wanted:
        servers = [make() for make in makers]
        turn = _turn(servers, len(rounds))
        with contextlib.ExitStack() as running:
            for server in turn:
                running.enter_context(server)
                progress.done(START_S)
            for server in turn:
                _warm_up(comparison, server, WARM_UP_ANEW_S, progress)
            rounds.append(_round(comparison, servers, options, progress, len(rounds), wanted))
    return _found(comparison, servers, rounds)


def _warm_up(comparison, server, seconds, progress):
    path = server.path_of(comparison.path)
    answers.check(server.name, server.port, path)
    measure.under_load(server, path, comparison.connections, seconds)
    progress.done(seconds)


def _found(comparison, servers, rounds):
    return {"name": comparison.name, "path": comparison.path, "connections": comparison.connections,
            "note": comparison.note, "servers": [server.name for server in servers],
            "rounds": rounds, "middle": {server.name: _middle([each[server.name] for each in rounds]) for server in servers},
            "ratios": _judge(comparison, rounds)}


def _turn(servers, number):
    return servers if number % 2 == 0 else servers[::-1]


def _round(comparison, servers, options, progress, number, wanted):
    figures = {}
    for server in _turn(servers, number):
        one = measure.under_load(server, server.path_of(comparison.path), comparison.connections, options.seconds)
        figures[server.name] = one
        progress.done(options.seconds + OVERHEAD_S)
        progress.say(f"{comparison.name} {number + 1}/{wanted} {server.name}: {one['requests_per_second']:,.0f} req/s, "
                     f"P50 {one['p50_us'] / 1e3:.2f} ms, P99 {one['p99_us'] / 1e3:.2f} ms, "
                     f"{one['cpu_us_per_request_all']:.1f} us CPU, {one['errors']} errors")
    return {server.name: figures[server.name] for server in servers}


def _middle(rounds):
    """The median of each figure of one server, and how far apart its rates are."""
    middle = {key: stats.median([each[key] for each in rounds]) for key in MEDIANS}
    memory = [each["memory_kib"] for each in rounds]
    middle["rss_kib"] = stats.median([each["rss"] for each in memory])
    # A process whose memory is not ours to read would make the sum too small.
    middle["pss_kib"] = stats.median([each["pss"] for each in memory]) if not any(each["unreadable"] for each in memory) else None
    return {**middle, "spread": stats.spread([each["requests_per_second"] for each in rounds]) or 0}


def ratios(rounds, metric):
    """The first server against the second, round by round; more is better."""
    _, key, more_is_better = targets.METRICS[metric]
    values = []
    for one in rounds:
        if len(one) == 2:
            subject, peer = (figures[key] for figures in one.values())
            above, below = (subject, peer) if more_is_better else (peer, subject)
            if below:
                values.append(above / below)
    return values


def _too_near(comparison, rounds):
    return any(stats.near(ratios(rounds, metric), target) for metric, target in comparison.targets.items())


def _judge(comparison, rounds):
    judged = {}
    for metric in targets.METRICS:
        values = ratios(rounds, metric)
        if values:
            low, high = stats.interval(values)
            target = comparison.targets.get(metric)
            judged[metric] = {"ratios": values, "median": stats.median(values), "low": low, "high": high,
                              "target": target, "verdict": stats.verdict(values, target) if target else None}
    return judged
