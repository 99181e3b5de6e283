"""Runs `baton load` and reads its report: a scenario while the server is looked at, or a steady load of some seconds."""

import json
import subprocess
import time

from lib import paths
from lib.load import LoadError

# How often the server is looked at meanwhile.
LOOK_S = 1
# Beyond the ramp: the longest timeout of a scenario, and something for a busy machine.
END_TIMEOUT_S = 90
# Before a steady load counts.
WARM_UP_S = 1


def run(url, scenario, seconds, look):
    """The report of `baton load`. `look` is called every second or so while it runs."""
    command = [paths.BATON, "load", url, "--scenario", scenario, "--json", "--quiet"]
    deadline = time.monotonic() + seconds + END_TIMEOUT_S
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while True:
            look()
            try:
                output, complaint = child.communicate(timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise LoadError(f"baton load did not end: {' '.join(command)}") from None
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    return _report(child.returncode, output, complaint)


def steady(url, seconds, *more):
    """The report of so many seconds, after the warm-up. `more`: options."""
    done = subprocess.run(steadily(url, seconds, *more), capture_output=True, text=True, timeout=seconds + END_TIMEOUT_S)
    return _report(done.returncode, done.stdout, done.stderr)


def steadily(url, seconds, *more):
    """The command of `steady`."""
    return [paths.BATON, "load", url, "-t", "1", "-d", f"{seconds + WARM_UP_S:g}s", "--warm-up", f"{WARM_UP_S}s", "--json", "--quiet", *more]


def _report(status, output, complaint):
    try:
        # Without a good reply it fails, and yet there is a report.
        return json.loads(output)
    except ValueError:
        raise LoadError(f"baton load failed ({status}): {complaint.strip() or output[:300]}") from None
