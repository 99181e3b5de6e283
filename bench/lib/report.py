"""bench/out/results.json with every figure, and RESULTS.md for people."""

import json
import os

from lib import paths, report_handoffs, report_loads, report_overload, report_promise, report_scaling, report_step, stats, targets, verdicts
from lib.tables import table


def write(results, whole):
    """Only a whole run replaces bench/RESULTS.md; a part of one goes beside the JSON. Returns the two paths."""
    os.makedirs(paths.OUT, exist_ok=True)
    figures = os.path.join(paths.OUT, "results.json")
    text = os.path.join(paths.BENCH if whole else paths.OUT, "RESULTS.md")
    with open(figures, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    with open(text, "w") as file:
        file.write(markdown(results))
    return text, figures


def markdown(results):
    parts = ["# Results\n", _machine(results["machine"], results["settings"])]
    if results["problems"]:
        parts.append("## Not measured, or not to be trusted\n\n" + "".join(f"- {line}\n" for line in results["problems"]))
    if results["comparisons"]:
        parts += [_targets(results["comparisons"]), _figures(results["comparisons"])]
    if results["peers"]:
        parts.append(_peers(results["peers"]))
    parts += [report_loads.markdown(results["loads"]), report_scaling.markdown(results["scaling"]), report_step.markdown(results["step"]),
              report_handoffs.markdown(results["handoffs"])]
    parts += _singles(results["singles"])
    return "\n".join(part for part in parts if part)


def _machine(machine, settings):
    versions = ", ".join(f"{name} {_short(version)}" for name, version in machine["versions"].items() if version)
    return (f"`{machine['command']}`, {machine['date']}, commit {machine['commit'] or 'unknown'}.\n\n"
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mib']} MiB, Linux {machine['kernel']}, "
            f"load before the run {machine['load_before']:.2f}.\n"
            f"{versions}.\n\n"
            f"Server and generator share the cores; loopback only; wrk with one thread; {settings['seconds']:g} s a round, the "
            f"servers of a row in turns. Baton: {settings['threads']} PHP threads. php-fpm: {settings['threads']} children, nginx: "
            f"{settings['nginx_workers']} workers. opcache on for both, same ini file (`bench/peers`). CPU is user and kernel time "
            f"of the server's whole tree of processes. wrk's latencies are those of a closed loop.\n")


def _short(version):
    """"nginx version: nginx/1.22.1" and the like, without the words."""
    for word in version.replace("/", " ").split():
        if word[:1].isdigit():
            return word
    return version


def _targets(comparisons):
    rows = []
    for one in comparisons:
        peer_unfair = unfair([each[one["servers"][-1]] for each in one["rounds"]])
        for metric, judged in one["ratios"].items():
            target = judged["target"]
            rows.append([one["name"], targets.METRICS[metric][0], f"{judged['median']:.2f}x",
                         f"{judged['low']:.2f} to {judged['high']:.2f}", f"{target:g}x" if target else "",
                         (judged["verdict"] or "") + (", UNFAIR PEER" if target and peer_unfair else ""), len(judged["ratios"])])
    if not rows:
        return ""
    return ("## Against the peers\n\nHow many times better the first server of the row below is, round against round: the median "
            "and its bootstrap 95 % interval. Undecided: the target lies inside the interval.\n\n"
            + table(["scenario", "what", "times better", "95 % interval", "target", "verdict", "rounds"], rows))


def _figures(comparisons):
    rows = [[one["name"], one["connections"], name, *_figures_of(one, name), *_app_share(one["middle"][name]), *_doubts(one, name)]
            for one in comparisons for name in one["servers"]]
    notes = "".join(f"- {one['name']}: {one['note']}.\n" for one in comparisons if one["note"])
    return (f"## Figures\n\n{EXPLAINED}\n\n"
            + table(["scenario", "connections", "server", *FIGURES, "front + app", *DOUBTS], rows) + "\n" + notes)


def _peers(one):
    """Other servers are not compared but shown: they do other things in other languages."""
    rows = [[name, one["arrangements"][name], *_figures_of(one, name), _calls(one["syscalls"].get(name)), *_doubts(one, name)]
            for name in one["servers"]]
    return (f"## Other servers, their own hello\n\n{one['note']}; {one['connections']} connections. {EXPLAINED}\n\n"
            + table(["server", "what answers", *FIGURES, "system calls", *DOUBTS], rows))


EXPLAINED = ("Medians of the rounds. Spread: between the fastest round and the slowest. Latencies in milliseconds, CPU in "
             "microseconds per request, PSS in MiB after the load.")
FIGURES = ["req/s", "spread", "P50", "P90", "P99", "CPU", "PSS"]
DOUBTS = ["errors", "remarks"]


def _figures_of(one, name):
    middle = one["middle"][name]
    return [f"{middle['requests_per_second']:,.0f}", f"{middle['spread'] * 100:.0f} %",
            *(f"{middle[key] / 1e3:.2f}" for key in ("p50_us", "p90_us", "p99_us")),
            f"{middle['cpu_us_per_request_all']:.1f}", "" if middle["pss_kib"] is None else f"{middle['pss_kib'] / 1024:.0f}"]


def _app_share(middle):
    front, app = middle["cpu_us_per_request_front"], middle["cpu_us_per_request_app"]
    return [f"{front:.1f} + {app:.1f}" if app else ""]


def _doubts(one, name):
    rounds = [each[name] for each in one["rounds"]]
    return [_errors(rounds), _remarks(rounds)]


def _calls(counted):
    return f"{counted['total']:.1f}" if counted else ""


def _errors(rounds):
    kinds = ("connect", "read", "write", "timeout", "status")
    counted = {kind: sum(each[kind] for each in rounds) for kind in kinds}
    return ", ".join(f"{count} {kind}" for kind, count in counted.items() if count) or 0


def unfair(rounds):
    """A server that starves most of its clients to please a few is not one to compare with. Judged by the usual round."""
    return sum(each["unfair"] for each in rounds) * 2 > len(rounds)


def _remarks(rounds):
    remarks = []
    if unfair(rounds):
        remarks.append("P90 over 10x P50: not a fair setting")
    if any(each["generator_saturated"] for each in rounds):
        remarks.append("wrk's core was full")
    if any(each["short_answers"] for each in rounds):
        remarks.append("SHORT ANSWERS")
    return "; ".join(remarks)


def _singles(singles):
    parts = []
    judged = verdicts.lines(singles)
    if judged:
        parts.append("## Limits\n\n" + table(["what", "measured", "limit", "verdict"], judged))
    calls = [[name, side, mode.replace("_", " "), f"{one['judged']:.2f}", f"{one['epoll_wait']:.3f}", f"{one['sched_yield']:.3f}",
              f"{one['futex']:.3f}", f"{one['eventfd']:.3f}", _most(one["by_name"]), one["method"], f"{one['requests_per_second']:,.0f}"]
             for name, modes in singles.get("syscalls", {}).items() for mode, sides in modes.items()
             for side, one in sides.items() if one]
    if calls:
        parts.append("## System calls per hello request, 50 connections\n\nCounted in a pass of its own. \"Calls\" leaves out "
                     "futex, eventfd and sched_yield, by which one side waits for the other: they depend on how busy the server is. Time limits: PHP's max_execution_time and max_input_time.\n\n"
                     + table(["server", "side", "time limits", "calls", "of them epoll_wait", "apart: sched_yield", "futex", "eventfd",
                               "most frequent", "method", "req/s meanwhile"], calls))
    clocks = [[name, f"{one['clock_reads']:.2f}", f"{one['instructions']:,.0f}"] for name, one in singles.get("clock", {}).items()]
    if clocks:
        parts.append("## Readings of the clock per request\n\nCounted by callgrind at 50 connections, user space only: under it a "
                     "reading is a system call, whose own instructions do not count.\n\n"
                     + table(["the clock is read", "readings", "instructions"], clocks))
    rest = [[name, f"{one['cpu_ticks']} ticks, {one['wake_ups']} wake-ups in {one['seconds']:g} s",
             f"{one['memory_front']['rss'] / 1024:.1f} MiB"] for name, one in singles.get("idle", {}).items()]
    if rest:
        parts.append("## Idle, after a load\n\n" + table(["server", "CPU and wake-ups", "front RSS"], rest))
    starts = [[name, f"{one['median'] * 1e3:.0f} ms", f"{min(one['seconds']) * 1e3:.0f} to {max(one['seconds']) * 1e3:.0f} ms"]
              for name, one in singles.get("start", {}).items()]
    if starts:
        parts.append("## From start to the first answer\n\n" + table(["server", "median", "range"], starts))
    many = [[name, one["connections"], f"{one['before']['rss'] / 1024:.1f} MiB", f"{one['with']['rss'] / 1024:.1f} MiB",
             f"{(one['with']['rss'] - one['before']['rss']) * 1024 / one['connections']:.0f}",
             f"{one['answered_again']} of {one['asked_again']}"] for name, one in singles.get("connections", {}).items()]
    if many:
        parts.append("## Idle keep-alive connections\n\n" + table(
            ["server", "connections", "front RSS before", "with them", "bytes each", "asked again, answered"], many))
    few, most = targets.THREADS, targets.THREADS_MANY
    sizes = [[name, *(f"{(one[n]['pss'] + one[n]['page_tables']) / 1024:.1f} MiB" for n in (few, most)),
              f"{one['per_thread_kib']:.0f} KiB"] for name, one in singles.get("memory", {}).items()]
    if sizes:
        parts.append("## Memory per added thread\n\nPSS and page tables of the whole tree; every thread has served requests.\n\n"
                     + table(["server", f"{few} threads", f"{most} threads", "per added thread"], sizes))
    for one in singles.get("threads-1000", {}).values():
        few, most = targets.THREADS, targets.THREADS_MOST
        low, high = stats.interval(one["ratios"])
        parts.append(f"## CPU of the front per hello request, 4 connections\n\nWith {most} threads beside {few}, in turns.\n\n"
                     + table([f"{few} threads", f"{most} threads", "ratio", "95 % interval", "rounds"],
                             [[*(f"{stats.median([each[n] for each in one['rounds']]):.1f} us" for n in (few, most)),
                               f"{stats.median(one['ratios']):.2f}", f"{low:.2f} to {high:.2f}", len(one["ratios"])]]))
    parts += report_overload.markdown(singles)
    promised = report_promise.markdown(singles.get("promise", {}).get("baton"))
    parts += [promised] if promised else []
    return parts


def _most(by_name, count=6):
    shown = [f"{name} {value:.2f}" for name, value in by_name.items() if value >= 0.005][:count]
    return ", ".join(shown)
