"""System calls per request, counted in a pass of its own.

perf's tracepoint counters cost some tens of nanoseconds a call and leave the server's rhythm alone. Where they may
not be used, strace counts instead: it slows the traced side so much that its peer goes to sleep between requests,
so that futex and eventfd calls appear which are not there otherwise. The report names the method."""

import csv
import os
import re
import signal
import subprocess
import tempfile
import time

from lib import load, paths, processes

TRACEPOINTS = "/sys/kernel/tracing/events/syscalls"
ATTACH_TIMEOUT_S = 10
# Asked for one by one; the rest is known as a sum.
NAMES = """read write readv writev pread64 pwrite64 recvfrom sendto recvmsg sendmsg sendfile64 accept accept4 connect
socket shutdown close setsockopt getsockopt getsockname epoll_wait epoll_pwait epoll_pwait2 epoll_ctl poll ppoll select
futex sched_yield rt_sigaction rt_sigprocmask setitimer alarm fcntl ioctl getcwd chdir openat newstat newlstat newfstat
newfstatat statx access lseek mmap munmap mprotect brk madvise times getrusage gettimeofday clock_gettime nanosleep
clock_nanosleep getpid umask flock getrandom timerfd_settime io_uring_enter kill tgkill""".split()
SLEEPS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")
EVENTFD = "eventfd read/write"
LINE = re.compile(r"^\d+ +(\w+)\((\d*)")


def per_request(pids, url, connections, seconds):
    """{"method", "requests", "by_name": calls per request, "judged", "total"}; None if nothing can count here.

    BENCH_COUNTER=perf or strace chooses the method."""
    for method in (_Perf, _Strace):
        counter = method(pids)
        if counter.usable() and os.environ.get("BENCH_COUNTER", counter.name) == counter.name:
            break
    else:
        return None
    with counter:
        figures = load.run(url, connections, seconds)
    requests = max(1, figures["requests"])
    by_name = {name: count / requests for name, count in counter.counts().items() if count}
    return {"method": counter.name, "requests": figures["requests"], "errors": figures["errors"],
            "requests_per_second": figures["requests_per_second"], **summary(by_name)}


def summary(by_name):
    """Waking and being woken is counted apart: it depends on load, and is near 0 when the server is saturated."""
    apart = {"futex": by_name.get("futex", 0.0), "eventfd": by_name.get(EVENTFD, 0.0),
             "sched_yield": by_name.get("sched_yield", 0.0),
             "epoll_wait": sum(by_name.get(name, 0.0) for name in SLEEPS)}
    total = sum(by_name.values())
    return {"by_name": dict(sorted(by_name.items(), key=lambda item: -item[1])), "total": total, **apart,
            # What a thread does while it waits for the other side.
            "judged": max(0, total - apart["futex"] - apart["eventfd"] - apart["sched_yield"])}


class _Counter:
    def __init__(self, pids):
        self.pids = pids
        self.eventfds, self.mixed = processes.eventfds(pids)
        self.child = None
        self.output = None

    def _start(self, argv):
        handle, self.output = tempfile.mkstemp(prefix="baton-bench-calls-")
        os.close(handle)
        self.child = subprocess.Popen([*argv, "-o", self.output, *self.target()],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.wait_attached()

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGINT)
        try:
            self.child.communicate(timeout=ATTACH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()
        with open(self.output, errors="replace") as file:
            self.lines = file.read().splitlines()
        os.unlink(self.output)


class _Perf(_Counter):
    name = "perf"

    def usable(self):
        if not paths.PERF or not os.path.isdir(TRACEPOINTS):
            return False
        trial = subprocess.run([paths.PERF, "stat", "-x,", "-e", "raw_syscalls:sys_enter", "true"],
                               capture_output=True, text=True)
        return trial.returncode == 0 and re.search(r"^[1-9]\d*,.*raw_syscalls", trial.stderr, re.M) is not None

    def target(self):
        return ["-p", ",".join(map(str, self.pids))]

    def __enter__(self):
        # The first event counts everything. Calls on eventfds are counted a second time, under a filter.
        argv = [paths.PERF, "stat", "-x,", "-e", "raw_syscalls:sys_enter"]
        self.order = ["total"]
        for name in NAMES:
            if os.path.isdir(f"{TRACEPOINTS}/sys_enter_{name}"):
                argv += ["-e", f"syscalls:sys_enter_{name}"]
                self.order.append(name)
        if self.eventfds:
            only = " || ".join(f"fd == {number}" for number in sorted(self.eventfds))
            for name in ("read", "write"):
                argv += ["-e", f"syscalls:sys_enter_{name}", "--filter", only]
                self.order.append(f"eventfd:{name}")
        self._start(argv)
        return self

    def wait_attached(self):
        # perf says nothing when it has attached; with some forty events on some tens of threads it takes a moment.
        time.sleep(0.5 + 0.02 * len(self.pids))

    def counts(self):
        values = [row[0] for row in csv.reader(self.lines) if len(row) > 2 and "syscalls:" in row[2]]
        counts = {name: int(value) for name, value in zip(self.order, values) if value.isdigit()}
        if "total" not in counts:
            # No call at all while requests were served: the wrong processes were watched, or perf failed.
            raise load.LoadError(f"perf counted nothing in processes {self.pids}: {self.lines[2:4]}")
        eventfd = 0
        for name in ("read", "write"):
            on_eventfd = counts.pop(f"eventfd:{name}", 0)
            eventfd += on_eventfd
            counts[name] = counts.get(name, 0) - on_eventfd
        counts[EVENTFD] = eventfd
        counts["other"] = counts.pop("total") - sum(counts.values())
        return counts


class _Strace(_Counter):
    name = "strace"

    def usable(self):
        return paths.STRACE is not None

    def target(self):
        return [argument for pid in self.pids for argument in ("-p", str(pid))]

    def __enter__(self):
        # Whole lines instead of `-c`: only they tell a write to an eventfd from one to a socket.
        self._start([paths.STRACE, "-f", "-s", "0", "-e", "signal=none"])
        return self

    def wait_attached(self):
        time.sleep(0.5 + 0.02 * len(self.pids))

    def counts(self):
        counts = {}
        for line in self.lines:
            # The second half of a call, "<... read resumed>", does not match.
            match = LINE.match(line)
            if match:
                name, first = match.groups()
                if name in ("read", "write") and first.isdigit() and int(first) in self.eventfds:
                    name = EVENTFD
                counts[name] = counts.get(name, 0) + 1
        return counts
