#!/usr/bin/python3
"""What can be wrong in the harness without any server running: python3 bench/test_harness.py"""

import os
import sys
import tomllib
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import (compare, handoffs, load, loads, overload, paths, processes, report_handoffs, report_loads, report_overload, report_promise,  # noqa: E402
                 report_scaling, report_step, scaling, stats, step, syscalls)

WRK = ('Running 1s test\nBENCH {"requests":1000,"duration_us":500000,"bytes":200000,"connect":1,"read":2,"write":0,"timeout":3,'
       '"status":4,"p50_us":100,"p75_us":150,"p90_us":1001,"p99_us":2000,"p999_us":3000,"max_us":4000,"mean_us":120}\n')


class Stats(unittest.TestCase):
    def test_interval_holds_the_median_and_repeats(self):
        values = [2.8, 3.1, 3.0, 2.9, 3.2, 3.3, 2.7, 3.05, 2.95]
        low, high = stats.interval(values)
        self.assertLess(low, stats.median(values))
        self.assertGreater(high, stats.median(values))
        self.assertEqual((low, high), stats.interval(values))

    def test_verdicts(self):
        self.assertEqual(stats.verdict([3.1, 3.2, 3.3], 3.0), "met")
        self.assertEqual(stats.verdict([2.7, 2.8, 2.9], 3.0), "missed")
        self.assertEqual(stats.verdict([2.9, 3.0, 3.1], 3.0), "undecided")
        self.assertEqual(stats.verdict([], 3.0), "not measured")
        self.assertTrue(stats.near([2.75], 3.0))
        self.assertFalse(stats.near([3.5], 3.0))


class Load(unittest.TestCase):
    def test_errors_are_counted_and_unfairness_is_seen(self):
        figures = load.parse(WRK)
        self.assertEqual(figures["requests_per_second"], 2000)
        self.assertEqual(figures["errors"], 10)
        self.assertTrue(figures["unfair"])
        self.assertIsNone(load.parse("unable to connect"))


class Ratios(unittest.TestCase):
    def test_more_is_always_better(self):
        def figures(rate, cpu):
            return {"requests_per_second": rate, "cpu_us_per_request_all": cpu}
        rounds = [{"baton": figures(60, 30), "peer": figures(20, 90)}]
        self.assertEqual(compare.ratios(rounds, "rate"), [3.0])
        self.assertEqual(compare.ratios(rounds, "cpu"), [3.0])
        self.assertEqual(compare.ratios([{"peer": figures(20, 90)}], "rate"), [])


    def test_the_middle_of_the_rounds(self):
        def figures(rate, pss, unreadable=0):
            memory = {"rss": 2 * pss, "pss": pss, "unreadable": unreadable}
            return {**dict.fromkeys(compare.MEDIANS, 1.0), "requests_per_second": rate, "memory_kib": memory}
        middle = compare._middle([figures(90, 10), figures(100, 30), figures(120, 20)])
        self.assertEqual((middle["requests_per_second"], middle["spread"]), (100, 0.3))
        self.assertEqual((middle["pss_kib"], middle["rss_kib"]), (20, 40))
        self.assertIsNone(compare._middle([figures(90, 10, unreadable=1)])["pss_kib"])


REPORT = {"requests": 90, "requests_late": 10, "requests_per_second": 30.0, "sent": 130, "unfinished": 1, "unsent": 0,
          "errors": {"total": 29, "status": 25, "timeout": 4, "cut": 0, "examples": {"timeout": "no whole reply"}},
          "statuses": {"200": 100, "503": 24, "504": 1}, "latency_us": None, "warnings": [],
          "generator": {"saturated": True, "cpu_us_per_request": 9.0, "cpu_shares": [0.96], "cpu_wait_shares": [0.1],
                        "lateness_us": None, "turn_us": None}}


class Loads(unittest.TestCase):
    def test_only_good_replies_are_handled(self):
        figures = loads.figures(REPORT)
        self.assertEqual(figures["handled"], 100)
        self.assertEqual(figures["not_handled"], {"timeout": 4, "status 503": 24, "status 504": 1, "unfinished": 1})

    def test_the_scenarios_in_less_time(self):
        for load in loads.LOADS:
            long = loads.seconds(load.text())
            self.assertIn(long, (30, 45, 50, 60))
            text = loads.scaled(load.text(), loads.QUICK_S / long)
            self.assertAlmostEqual(loads.seconds(text), loads.QUICK_S, delta=0.01)
            before, after = tomllib.loads(load.text()), tomllib.loads(text)
            for one, other in zip(before["target"], after["target"]):
                self.assertEqual(one.get("parameters"), other.get("parameters"))
        hanging = loads.scaled('path = "/work.php?sleep_ms=15000&lines=100"\nfrom = "0s", to = "10s"', 0.05)
        self.assertEqual(hanging, 'path = "/work.php?sleep_ms=750&lines=100"\nfrom = "0ms", to = "500ms"')

    def test_the_report_doubts_a_saturated_generator(self):
        round_ = {"baton": {**loads.figures(REPORT), "cpu_us_per_handled": 5.0, "processes_max": 6, "rss_kib_max": 2048}}
        none = {**round_["baton"], "handled": 0}
        text = report_loads.markdown([{"name": "load-x", "seconds": 3, "deadline_ms": 5000, "rounds": [{**round_, "other": none}]}])
        self.assertIn("| load-x | baton | 100 | 100.0 % |  |  | 5.0 | 6 | 2 | 24 status 503, 1 status 504, 4 timeout, 1 unfinished |", text)
        self.assertIn("SATURATED", text)
        self.assertIn("| other | 0 | 0.0 % |", text)
        self.assertEqual(report_loads.markdown([]), "")


class Calls(unittest.TestCase):
    def test_strace_lines(self):
        counter = syscalls._Strace([])
        counter.eventfds = {9}
        counter.lines = ['12 read(5, ""..., 65536) = 44', '12 write(9, ""..., 8) = 8', '13 futex(0x7f, FUTEX_WAIT <unfinished ...>',
                         '13 <... futex resumed>) = 0', '12 epoll_wait(4, [], 64, 0) = 0']
        self.assertEqual(counter.counts(), {"read": 1, syscalls.EVENTFD: 1, "futex": 1, "epoll_wait": 1})

    def test_perf_counts_eventfds_apart(self):
        counter = syscalls._Perf([])
        counter.order = ["total", "read", "write", "eventfd:read", "eventfd:write"]
        counter.lines = [f"{count},,{name},1,100.00,," for count, name in
                         ((30, "raw_syscalls:sys_enter"), (10, "syscalls:sys_enter_read"), (12, "syscalls:sys_enter_write"),
                          (0, "syscalls:sys_enter_read"), (2, "syscalls:sys_enter_write"))]
        self.assertEqual(counter.counts(), {"read": 10, "write": 10, syscalls.EVENTFD: 2, "other": 8})

    def test_waking_is_not_judged(self):
        one = syscalls.summary({"read": 1.0, "write": 1.0, "futex": 0.5, syscalls.EVENTFD: 0.25, "epoll_wait": 0.1})
        self.assertAlmostEqual(one["judged"], 2.1)
        self.assertAlmostEqual(one["total"], 2.85)


class Overload(unittest.TestCase):
    def test_percentiles_are_of_what_is_there(self):
        self.assertEqual(overload._percentile(range(1, 201), 99), 199)
        self.assertEqual(overload._percentile([7], 99), 7)
        self.assertEqual(overload._percentile([], 99), 0)

    def test_the_rate_is_that_of_the_middle(self):
        series = [{"stage": stage, "requests": count} for stage, count in (("warm-up", 9), ("measured", 4), ("measured", 5), ("measured", 6), ("drain", 1))]
        self.assertEqual(overload._handled_per_second({"series": series}), 5)

    def test_tables(self):
        one = {"goodput": 0.99, "answered_p99_ms": 1250, "refused_p50_ms": 0.2, "refused_p99_ms": 3, "refused_max_ms": 9, "others": 0}
        apps = [{"alone": {"p50_ms": 10, "p99_ms": 12}, "beside": {"p50_ms": 10, "p99_ms": 15}}]
        text = "\n".join(report_overload.markdown({"overload": {"baton": {"capacity": [800], 2: [one], 5: [one, one]}}, "two-apps": {"baton": apps}}))
        for part in ("800 req/s", "| 5x | 99.0% (99.0% to 99.0%) |", "1.25x of P99 alone"):
            self.assertIn(part, text)


class Scaling(unittest.TestCase):
    def test_table(self):
        def one(handled):
            return {"handled": handled, "p99_us": 5000, "app_processes": [5, 60], "scaler_cpu_share": 0.012}
        rounds = [{scaling.SCALING: one(scaled), scaling.DEFAULT: one(20), "ideal": one(100)} for scaled in (96, 97, 98)]
        text = report_scaling.markdown([{"name": "scaling-database", "searched": {24: 90, 48: 100}, "ideal": 48, "rounds": rounds}])
        self.assertIn("| database | 48 threads | 24: 90, 48: 100 | 100 | 20.0% | 97.0% | 96.0% to 98.0% | met | 5 to 60 | 1.2% | 5.0, 5.0 | 3 |", text)
        self.assertEqual(set(scaling.CANDIDATES), {load.scenario for load in loads.LOADS})

    def test_the_search_goes_on_while_the_most_does_best(self):
        self.assertEqual(scaling.search((2, 4), 99, lambda threads: min(threads, 10)), {2: 2, 4: 4, 8: 8, 16: 10, 32: 10})
        self.assertEqual(scaling.search((2, 4), 99, lambda threads: -threads), {2: -2, 4: -4})
        self.assertEqual(scaling.search((2, 4), 6, lambda threads: threads), {2: 2, 4: 4, 6: 6})

    def test_no_more_threads_than_clients_are_tried(self):
        self.assertEqual(loads.most_clients('connections = "20s:150,20s:1000,10s:0"'), 1000)

    def test_step(self):
        pair = {"scaling": [1, 1, 1, 40, 95, 100, 100, 90, 100], "ideal": [1, 1, 1, 100, 100, 100, 100, 100, 90]}
        self.assertEqual(step.shares([pair], 1), [0.95])
        self.assertIn("95%", report_step.markdown([{"mode": "worker", "searched": {24: 100}, "ideal": 24, "rounds": [pair]}]))

    def test_handoffs(self):
        one = {"rate": 90, "p50_us": 1, "p75_us": 2, "p90_us": 3, "p99_us": 4, "switches": 1, "off_cpu_us": 1, "cpu_us": 1}
        rounds = [{"direct": one, "queue": {**one, "rate": 45}, "semaphore": one, "none": one}]
        self.assertEqual(handoffs.ratios(rounds, "rate", "queue"), [2])
        found = {"load": "workers", "threads": 8, "connections": 500, "io_threads": 1, "rounds": rounds, "futex": {"direct": 0.1, "queue": None, "semaphore": 0.2, "none": 0}}
        self.assertIn("2.00x", report_handoffs.markdown([found]))

    def test_promise(self):
        one = {"rate": 95, "cpu_us": 500, "p50_us": 9000, "p99_us": 20000, "processes": 45, "errors": 0}
        text = report_promise.markdown({"searched": {8: [50], 40: [90, 100]}, "best": 40, "rounds": [{"baton": one, "php-fpm": {**one, "rate": 100}}] * 3})
        for part in ("| req/s | 50 | 95 |", "0.950x (0.950 to 0.950, 3 pairs; target 0.95: met)"):
            self.assertIn(part, text)


class Processes(unittest.TestCase):
    def test_we_see_ourselves(self):
        self.assertIn(os.getpid(), processes.tree(os.getpid()))
        sum(range(3_000_000))
        self.assertGreater(processes.cpu_ticks([os.getpid()]), 0)
        self.assertGreater(processes.memory_kib([os.getpid()])["pss"], 0)
        self.assertIsNone(processes.identity(2 ** 22 + 1))

    def test_eventfds(self):
        number = os.eventfd(0)
        always, mixed = processes.eventfds([os.getpid()])
        os.close(number)
        self.assertIn(number, always)
        self.assertEqual(mixed, set())

    def test_no_program(self):
        self.assertIsNone(paths.program("no-such-program-*"))


if __name__ == "__main__":
    unittest.main()
