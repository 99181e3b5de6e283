"""What follows a step in the load, as a table."""

from lib import stats, step
from lib.tables import table

SECONDS = 4


def markdown(found):
    if not found:
        return None
    return (f"## A step from 1 client to {step.CLIENTS}\n\nThe database-like load. What was handled in each second after the step, of what the best fixed "
            "number settles at: medians of pairs in turns, and their 95 % intervals. The target is for the second that begins 1 s after the step.\n\n"
            + table(["mode", "ideal", "tried, req/s", *(f"second {number + 1}" for number in range(SECONDS)), f"target {step.TARGET:.0%}", "pairs"],
                    [_row(one) for one in found]))


def _row(one):
    tried = ", ".join(f"{threads}: {rate:,.0f}" for threads, rate in one["searched"].items())
    shares = [step.shares(one["rounds"], second) for second in range(SECONDS)]
    return [one["mode"], f"{one['ideal']} threads", tried, *map(_share, shares), stats.verdict(shares[1], step.TARGET), len(one["rounds"])]


def _share(values):
    low, high = stats.interval(values)
    return f"{stats.median(values):.0%} ({low:.0%} to {high:.0%})"
