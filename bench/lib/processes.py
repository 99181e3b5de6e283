"""What /proc says of a tree of processes: CPU time, memory, wake-ups, descriptors."""

import os

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# A process that ends while we read it is no error; one of another user may not be ours to read.
GONE = (FileNotFoundError, ProcessLookupError)


def _stat(pid):
    """The fields of /proc/PID/stat from the state on: the name before them may hold blanks and brackets."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def identity(pid):
    """(pid, start time): tells a process from a later one with the same number. None if it is gone."""
    try:
        fields = _stat(pid)
    except GONE:
        return None
    return None if fields[0] in "ZX" else (pid, int(fields[19]))


def tree(root):
    """`root` and all its descendants that are alive, as pids."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(_stat(name)[1]), []).append(int(name))
            except GONE:
                pass
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if identity(pid):
            found.append(pid)
        waiting.extend(children.get(pid, []))
    return found


def cpu_ticks(pids):
    """utime + stime of the processes, and of children that they have waited for.

    A child that dies takes its time with it, but its parent's cutime then holds it: over a whole tree the sum
    never goes back."""
    total = 0
    for pid in pids:
        try:
            total += sum(int(field) for field in _stat(pid)[11:15])
        except GONE:
            pass
    return total


def cpu_ns_of(pids, thread):
    """CPU time of the processes' threads of that name, in nanoseconds."""
    total = 0
    for pid in pids:
        for task in _list(f"/proc/{pid}/task"):
            if _lines(f"/proc/{pid}/task/{task}/comm") == [thread]:
                total += sum(int(line.split()[0]) for line in _lines(f"/proc/{pid}/task/{task}/schedstat"))
    return total


def scheduling(pids):
    """Of all threads of the processes: CPU time and time spent waiting for a core, in nanoseconds, and context switches."""
    total = {"cpu_ns": 0, "delay_ns": 0, "switches": 0}
    for pid in pids:
        for task in _list(f"/proc/{pid}/task"):
            for line in _lines(f"/proc/{pid}/task/{task}/schedstat"):
                cpu, delay, _ = map(int, line.split())
                total["cpu_ns"] += cpu
                total["delay_ns"] += delay
            for line in _lines(f"/proc/{pid}/task/{task}/status"):
                if "voluntary_ctxt_switches:" in line:
                    total["switches"] += int(line.split()[1])
    return total


def wake_ups(pids):
    """How often threads of the processes went to sleep by themselves: the finest sign of idle work that there is."""
    total = 0
    for pid in pids:
        for thread in _list(f"/proc/{pid}/task"):
            for line in _lines(f"/proc/{pid}/task/{thread}/status"):
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return total


def memory_kib(pids):
    """Sums over the processes. PSS divides each shared page among its users, so its sum counts every page once."""
    wanted = {"VmRSS": "rss", "RssAnon": "anon", "RssFile": "file", "RssShmem": "shmem", "VmPTE": "page_tables"}
    total = dict.fromkeys([*wanted.values(), "pss", "processes", "unreadable"], 0)
    for pid in pids:
        lines = _lines(f"/proc/{pid}/status")
        if not lines:
            continue
        total["processes"] += 1
        for line in lines:
            name, _, value = line.partition(":")
            if name in wanted:
                total[wanted[name]] += int(value.split()[0])
        rollup = [line for line in _lines(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:")]
        if rollup:
            total["pss"] += int(rollup[0].split()[1])
        else:
            total["unreadable"] += 1
    return total


def rss_kib(pids):
    """The sum of their RSS alone, which is cheap to ask for while a load runs."""
    pages = 0
    for pid in pids:
        for line in _lines(f"/proc/{pid}/statm"):
            pages += int(line.split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def eventfds(pids):
    """Descriptor numbers that are eventfds in each of these processes that has the number open, and those that differ."""
    kinds = {}
    for pid in pids:
        for number in _list(f"/proc/{pid}/fd"):
            try:
                kind = os.readlink(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            kinds.setdefault(int(number), set()).add(kind.startswith("anon_inode:[eventfd]"))
    always = {number for number, seen in kinds.items() if seen == {True}}
    mixed = {number for number, seen in kinds.items() if len(seen) == 2}
    return always, mixed


def _list(folder):
    try:
        return os.listdir(folder)
    except (*GONE, PermissionError):
        return []


def _lines(path):
    try:
        with open(path) as file:
            return file.read().splitlines()
    except (*GONE, PermissionError):
        return []
