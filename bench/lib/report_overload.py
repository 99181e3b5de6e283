"""What became of too many requests, as tables."""

from lib import overload, stats
from lib.tables import table


def markdown(singles):
    return [part for part in (_one_app(singles.get("overload", {}).get("baton")), _two_apps(singles.get("two-apps", {}).get("baton"))) if part]


def _one_app(found):
    if not found:
        return None
    rows = [[f"{factor}x", *(_with_range([each[key] for each in found[factor]], form) for key, form in (
        ("goodput", "{:.1%}"), ("answered_p99_ms", "{:,.0f}"), ("refused_p50_ms", "{:.2f}"), ("refused_p99_ms", "{:.2f}"),
        ("refused_max_ms", "{:.0f}"), ("others", "{:.0f}"))), len(found[factor])] for factor in overload.FACTORS]
    capacity = _with_range(found["capacity"], "{:,.0f}")
    return (f"## Overload\n\nAn open loop at so many times the capacity, which a closed loop of {overload.CAPACITY_CONNECTIONS} connections has found "
            f"in the same round: {capacity} req/s with 8 threads that sleep for 10 ms. Goodput: replies with status 200, of the capacity. Refused: "
            "status 503. In milliseconds from a request's first byte to its reply's last, by the server's log; Baton's own bounds of "
            "queue length and age. Medians of the rounds, and their range.\n\n"
            + table(["offered", "goodput", "P99 of the answered", "P50 of the refused", "P99 of the refused", "slowest refusal", "other replies", "rounds"], rows))


def _two_apps(rounds):
    if not rounds:
        return None
    rows = [[words, *(_with_range([each[name][key] for each in rounds], "{:.1f}") for key in ("p50_ms", "p99_ms")), len(rounds)]
            for name, words in (("alone", "nobody asks the other one"), ("beside", "the other one is asked for 5x its capacity"))]
    ratios = [each["beside"]["p99_ms"] / each["alone"]["p99_ms"] for each in rounds if each["alone"]["p99_ms"]]
    low, high = stats.interval(ratios)
    return (f"## An application beside one that is overloaded\n\n{overload.OTHER_RATE} requests a second that sleep for 10 ms, 4 threads. P99 beside is "
            f"{stats.median(ratios):.2f}x of P99 alone ({low:.2f} to {high:.2f}).\n\n" + table(["", "P50, ms", "P99, ms", "rounds"], rows))


def _with_range(values, form):
    middle = form.format(stats.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))} to {form.format(max(values))})"
