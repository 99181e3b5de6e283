"""One server under one load: wrk's figures with the CPU time that the server's processes used meanwhile."""

import time

from lib import answers, load, processes

SETTLE_S = 0.05


def under_load(server, path, connections, seconds):
    """Figures of one round. CPU time is that of the whole tree of processes, front and app, kernel time included."""
    pids = server.pids()
    app = set(server.app_pids())
    before = _ticks(pids, app)
    figures = load.run(server.url(path), connections, seconds)
    # Answers to requests that wrk did not wait for are still being made.
    time.sleep(SETTLE_S)
    # Processes that came meanwhile count as well, those that went are in their parents' sums.
    app |= set(server.app_pids())
    pids = server.pids()
    after = _ticks(pids, app)
    requests = max(1, figures["requests"])
    for part in ("all", "front", "app"):
        figures[f"cpu_us_per_request_{part}"] = \
            (after[part] - before[part]) / processes.TICKS_PER_SECOND * 1e6 / requests
    figures["memory_kib"] = processes.memory_kib(pids)
    figures["short_answers"] = figures["bytes_per_request"] < answers.bytes_min(path)
    return figures


def _ticks(pids, app):
    apps = processes.cpu_ticks([pid for pid in pids if pid in app])
    fronts = processes.cpu_ticks([pid for pid in pids if pid not in app])
    return {"all": apps + fronts, "front": fronts, "app": apps}


def idle(server, seconds):
    """CPU ticks and wake-ups of all processes while nobody asks for anything."""
    pids = server.pids()
    ticks, wakes = processes.cpu_ticks(pids), processes.wake_ups(pids)
    time.sleep(seconds)
    pids = server.pids()
    return {"seconds": seconds, "cpu_ticks": processes.cpu_ticks(pids) - ticks,
            "tick_ms": 1000 // processes.TICKS_PER_SECOND, "wake_ups": processes.wake_ups(pids) - wakes}
