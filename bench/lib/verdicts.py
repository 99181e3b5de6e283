"""The single figures against their limits, as lines of one table."""

from lib import targets


def lines(singles):
    """[(words, measured, limit, verdict)]"""
    found = []
    calls = singles.get("syscalls", {}).get("baton", {})
    for mode, name in (("as_shipped", "syscalls-app"), ("without_time_limits", "syscalls-app-without-time-limits")):
        sides = calls.get(mode, {})
        if mode == "as_shipped" and sides.get("front"):
            found.append(_line("syscalls-front", sides["front"]["judged"], "{:.2f}"))
        if sides.get("app"):
            found.append(_line(name, sides["app"]["judged"], "{:.2f}"))
    worker = singles.get("syscalls", {}).get("baton-worker", {}).get("as_shipped", {})
    if worker.get("app"):
        found.append(_line("syscalls-worker", worker["app"]["judged"], "{:.2f}"))
    if "baton" in singles.get("idle", {}):
        found.append(_line("idle", singles["idle"]["baton"]["cpu_ticks"], "{:d}"))
    if "baton" in singles.get("connections", {}):
        one = singles["connections"]["baton"]
        usable = one["connections"] == targets.IDLE_CONNECTIONS and one["answered_again"] == one["asked_again"]
        found.append(_line("connections", one["with"]["rss"] * 1024 / 1e6, "{:.1f}", usable))
    if "baton" in singles.get("memory", {}):
        one = singles["memory"]["baton"]
        unreadable = sum(one[threads]["unreadable"] for threads in (targets.THREADS, targets.THREADS_MANY))
        found.append(_line("memory", one["per_thread_kib"] * 1024 / 1e6, "{:.2f}", one["complete"] and not unreadable))
    if "baton" in singles.get("threads-600", {}):
        one = singles["threads-600"]["baton"]
        usable = one["threads_seen"] >= targets.THREADS_IN_1_GIB and not one["unreadable"]
        found.append(_line("threads-600", (one["pss"] + one["page_tables"]) / 1024, "{:.0f}", usable))
    return found


def _line(name, value, form, usable=True):
    limit = targets.LIMITS[name]
    verdict = "not usable" if not usable else "met" if float(form.format(value)) <= limit.limit else "missed"
    return limit.words, f"{form.format(value)} {limit.unit}", f"{limit.limit:g} {limit.unit}", verdict
