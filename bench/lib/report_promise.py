"""The promise as a table."""

from lib import promise, stats
from lib.tables import table


def markdown(found):
    if not found:
        return None
    searched = table(["children", *(str(children) for children in found["searched"])],
                     [["req/s", *(f"{stats.median(rates):,.0f}" for rates in found["searched"].values())]])
    rounds, ratios = found["rounds"], promise.ratios(found["rounds"])
    low, high = stats.interval(ratios)
    rows = [[words, *(form.format(stats.median([one[name][key] for one in rounds])) for key, form in (
        ("rate", "{:,.0f}"), ("cpu_us", "{:.0f} us")))] + [f"{stats.median([one[name][key] for one in rounds]) / 1e3:.1f} ms" for key in ("p50_us", "p99_us")]
        + [max(one[name]["processes"] for one in rounds), sum(one[name]["errors"] for one in rounds)]
        for name, words in (("baton", "baton, nothing configured"), ("php-fpm", f"nginx+php-fpm, {found['best']} children"))]
    return ("## Nothing configured, beside the best number\n\n100 clients without a pause, one or two queries of 1 to 10 ms and half a millisecond of CPU "
            "(`bench/scenarios/promise.toml`). The best number of php-fpm's children was searched for:\n\n" + searched
            + f"\n\nThen in turns, when Baton's number of threads had settled: {stats.median(ratios):.3f}x ({low:.3f} to {high:.3f}, "
            f"{len(ratios)} pairs; target {promise.TARGET}: {stats.verdict(ratios, promise.TARGET)}).\n\n"
            + table(["", "req/s", "CPU", "P50", "P99", "processes", "errors"], rows))
