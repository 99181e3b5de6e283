"""From one client to hundreds at once, on a database-like load: how soon do threads that scale by themselves do what the best fixed
number does? That number is searched for. It takes ten minutes, so it runs only when asked for."""

import contextlib
import os

from lib import answers, loads, loadtest, paths, scaling, servers, stats

NAME = "step"
LOAD = "database"
CLIENTS = 500
# One client for so long, then all of them for so long.
BEFORE_S, AFTER_S = 3, 6
# The rate that the ideal number settles at is taken from the last seconds.
STEADY_S = 3
CANDIDATES = (24, 32, 48, 64, 96)
PAIRS = 9
TARGET = 0.9
MODES = {"regular": servers.Baton, "worker": servers.BatonWorkWorker}


def _pairs(options):
    return 1 if options.quick else PAIRS


def planned_s(options):
    return len(MODES) * (len(CANDIDATES) + 2 * _pairs(options)) * (BEFORE_S + AFTER_S + 2)


def run(options, progress):
    """[{"mode", "searched": {threads: rate}, "ideal", "rounds": [{"scaling" or "ideal": handled in each second}]}]"""
    found = []
    for mode, make in MODES.items():
        def once(threads, make=make, mode=mode):
            handled = _handled(make(threads))
            progress.done(BEFORE_S + AFTER_S + 2)
            progress.say(f"{NAME}, {mode}, {threads or 'scaling'}: {' '.join(map(str, handled))}")
            return handled

        searched = scaling.search(CANDIDATES, CLIENTS, lambda threads: _steady(once(threads)))
        ideal = max(searched, key=searched.get)
        rounds = []
        for number in range(_pairs(options)):
            order = [("scaling", None), ("ideal", ideal)]
            rounds.append({name: once(threads) for name, threads in (order if number % 2 == 0 else order[::-1])})
        found.append({"mode": mode, "searched": searched, "ideal": ideal, "rounds": rounds})
    return found


def shares(rounds, second):
    """What was handled in that second after the step, 0 is the first, of what the ideal number settled at in the same pair."""
    return [one["scaling"][BEFORE_S + second] / _steady(one["ideal"]) for one in rounds]


def _steady(handled):
    return stats.median(handled[BEFORE_S + AFTER_S - STEADY_S:BEFORE_S + AFTER_S])


def _handled(server):
    """Requests handled in each second."""
    with server, _scenario(server) as scenario:
        answers.check(server.name, server.port, server.path_of("/work.php"))
        report = loadtest.run(server.url("/"), scenario, BEFORE_S + AFTER_S, lambda: None)
    return [second["requests"] for second in report["series"]]


@contextlib.contextmanager
def _scenario(server):
    text = next(load for load in loads.LOADS if load.scenario == LOAD).text()
    text = loads.STAGES.sub(f'connections = "1ms:1,{BEFORE_S}s:1,1ms:{CLIENTS},{AFTER_S}s:{CLIENTS}"', text)
    os.makedirs(paths.OUT, exist_ok=True)
    path = os.path.join(paths.OUT, f"{NAME}.toml")
    with open(path, "w") as file:
        file.write(text.replace("/work.php", server.path_of("/work.php")))
    yield path
