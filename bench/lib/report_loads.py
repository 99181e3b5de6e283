"""The six loads as one table."""

from lib import loads, stats
from lib.tables import table

HEAD = ["load", "server", "handled", "of the most", "P50", "P99", "CPU", "processes", "RSS", "not handled", "generator"]
EXPLAINED = """Clients come and go along a ramp (`bench/scenarios`), each asking again when it has its answer. Handled: status 200 and the whole \
right body, over all of the ramp; a refusal, however fast, is not handled. Of the most: beside the row that handled most of this load. \
Latencies in milliseconds, counted from when a request was due, of handled requests and of those that timed out. CPU in microseconds of the server's whole \
tree of processes per handled request. Processes and RSS in MiB: the most at any second; RSS counts shared pages once for each process. \
Generator: the share of one core that it ran for, and in brackets the share for which it waited for a core."""


def markdown(found):
    if not found:
        return ""
    rows = [row for one in found for row in _rows(one)]
    return f"## Six loads\n\n{EXPLAINED}\n\n{table(HEAD, rows)}\n{_notes(found)}"


def _rows(one):
    handled = {variant: _middle(one, variant, "handled") for variant in one["rounds"][0]}
    most = max(1, *handled.values())
    return [[one["name"], variant, _with_spread(one, variant), f"{handled[variant] / most * 100:.1f} %",
             _ms(_middle(one, variant, "p50_us")), _ms(_middle(one, variant, "p99_us")),
             f"{_middle(one, variant, 'cpu_us_per_handled'):,.1f}", f"{_middle(one, variant, 'processes_max'):.0f}",
             f"{_middle(one, variant, 'rss_kib_max') / 1024:,.0f}", _errors(one, variant), _generator(one, variant)]
            for variant in handled]


def _middle(one, variant, key):
    return stats.median([each[variant][key] for each in one["rounds"] if each[variant][key] is not None])


def _with_spread(one, variant):
    values = [each[variant]["handled"] for each in one["rounds"]]
    spread = f" (spread {(stats.spread(values) or 0) * 100:.0f} %)" if len(values) > 1 and max(values) else ""
    return f"{stats.median(values):,.0f}{spread}"


def _ms(us):
    return "" if us is None else f"{us / 1e3:,.1f}"


def _errors(one, variant):
    """Sums of the rounds."""
    counted = {}
    for each in one["rounds"]:
        for kind, count in each[variant]["not_handled"].items():
            counted[kind] = counted.get(kind, 0) + count
    return loads.in_words(counted) or 0


def _generator(one, variant):
    each = [each[variant]["generator"] for each in one["rounds"]]
    ran, waited = (stats.median([max(seen[name], default=0) for seen in each]) for name in ("cpu_shares", "cpu_wait_shares"))
    late = [seen["lateness_us"]["p99"] for seen in each if seen["lateness_us"]]
    return (f"{ran * 100:.0f} % ({waited * 100:.0f} %)" + (f", P99 {_ms(stats.median(late))} ms late" if late else "")
            + (", SATURATED" if any(seen["saturated"] for seen in each) else ""))


def _notes(found):
    deadlines = "".join(f"- {one['name']}: a deadline of {one['deadline_ms']:,} ms, an option of each server.\n"
                        for one in found if one["deadline_ms"])
    lengths = ", ".join(f"{one['name'].removeprefix('load-')} {one['seconds']:g} s" for one in found)
    return f"- Rounds: {len(found[0]['rounds'])}. Ramps: {lengths}.\n{deadlines}"
