"""Scaling beside the ideal fixed number, as a table."""

from lib import scaling, stats
from lib.tables import table

HEAD = ["load", "ideal", "tried", "handled by the ideal", f"{scaling.DEFAULT}, of it", "scaling, of it", "95 % interval", f"target {scaling.TARGET:.0%}",
        "processes while scaling", "autoscaler's CPU", "P99, ms: ideal, scaling", "pairs"]


def markdown(found):
    if not found:
        return ""
    return ("## Scaling beside the ideal fixed number, worker mode\n\nThe six loads with their ramps. Ideal: of the fixed numbers that were tried, each once, "
            "the one that handled most; it is there before the load begins. Then all three in turns; shares are medians of paired rounds. Processes: "
            "the least and the most of the application's at any second, its zygote and those about to end among them. The autoscaler's CPU: of one core, starting threads included.\n\n"
            + table(HEAD, [_row(one) for one in found]))


def _row(one):
    rounds = one["rounds"]
    middle = lambda variant, key: stats.median([each[variant][key] for each in rounds if each[variant][key] is not None])  # noqa: E731
    share, low_share = scaling.ratios(one), scaling.ratios(one, scaling.DEFAULT)
    low, high = stats.interval(share)
    least = min(each[scaling.SCALING]["app_processes"][0] for each in rounds)
    most = max(each[scaling.SCALING]["app_processes"][1] for each in rounds)
    tried = ", ".join(f"{threads}: {handled:,}" for threads, handled in one["searched"].items())
    p99 = ", ".join(f"{(middle(variant, 'p99_us') or 0) / 1e3:,.1f}" for variant in ("ideal", scaling.SCALING))
    return [one["name"].removeprefix("scaling-"), f"{one['ideal']} threads", tried, f"{middle('ideal', 'handled'):,.0f}", f"{stats.median(low_share):.1%}",
            f"{stats.median(share):.1%}", f"{low:.1%} to {high:.1%}", stats.verdict(share, scaling.TARGET), f"{least} to {most}",
            f"{middle(scaling.SCALING, 'scaler_cpu_share'):.1%}", p99, len(share)]
