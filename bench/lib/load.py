"""Runs wrk and reads its figures.

wrk is a closed loop: each connection sends its next request when the last answer is there. Its latencies are
what its clients saw, and know nothing of requests that a slow server kept from being sent."""

import json
import os
import subprocess
import time

from lib import paths

TIMEOUT_S = 10
SCRIPT = os.path.join(paths.BENCH, "lib", "wrk_done.lua")
# Beyond this share of one core, wrk's single thread is what is being measured.
GENERATOR_BUSY = 0.95


class LoadError(Exception):
    pass


def run(url, connections, seconds):
    """Requests, rates, latencies in microseconds, errors by kind; and what the generator itself used."""
    command = [paths.WRK, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", f"{TIMEOUT_S}s",
               "-s", SCRIPT, url]
    started, cpu_before = time.monotonic(), os.times()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 3 * TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise LoadError(f"wrk did not end: {' '.join(command)}") from None
    elapsed, cpu_after = time.monotonic() - started, os.times()
    figures = parse(done.stdout)
    if done.returncode != 0 or figures is None:
        raise LoadError(f"wrk failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}")
    # wrk is the only child that we wait for in between.
    cpu = cpu_after.children_user + cpu_after.children_system - cpu_before.children_user - cpu_before.children_system
    figures["generator_cpu_share"] = cpu / elapsed
    figures["generator_saturated"] = cpu / elapsed > GENERATOR_BUSY
    figures["connections"] = connections
    return figures


def parse(output):
    """The line that wrk_done.lua printed, with rates; None if there is none."""
    for line in output.splitlines():
        if line.startswith("BENCH "):
            figures = json.loads(line[len("BENCH "):])
            seconds = figures["duration_us"] / 1e6
            figures["requests_per_second"] = figures["requests"] / seconds if seconds else 0.0
            figures["errors"] = sum(figures[kind] for kind in ("connect", "read", "write", "timeout", "status"))
            figures["bytes_per_request"] = figures["bytes"] / max(1, figures["requests"])
            figures["unfair"] = figures["p90_us"] > 10 * max(1, figures["p50_us"])
            return figures
    return None
