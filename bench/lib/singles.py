"""Figures that no pair of rounds is needed for: counts, memory, idleness, time to start."""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from lib import answers, instructions, load, measure, paths, processes, servers, stats, syscalls, targets

WARM_UP_S = 1


def system_calls(make, options, progress):
    """Per hello request at 50 connections, front and app apart, with PHP's time limits as shipped and without."""
    result = {}
    for without_time_limits in (False, True):
        with make(without_time_limits=without_time_limits) as server:
            facts = answers.probe(server.name, server.port)
            if without_time_limits != (facts["max_execution_time"] == 0 and facts["max_input_time"] == 0):
                raise answers.WrongAnswer(f"{server.name} runs with other time limits than asked for: {facts}")
            load.run(server.url("/hello.php"), 50, WARM_UP_S)
            sides = {}
            for side, pids in (("front", server.front_pids()), ("app", server.app_pids())):
                sides[side] = syscalls.per_request(pids, server.url("/hello.php"), 50, options.syscall_seconds)
                progress.done(options.syscall_seconds + 1)
                if sides[side]:
                    progress.say(f"syscalls {server.name} {side}{', no time limits' if without_time_limits else ''}: "
                                 f"{sides[side]['judged']:.2f} per request, futex {sides[side]['futex']:.3f}, "
                                 f"eventfd {sides[side]['eventfd']:.3f} ({sides[side]['method']})")
            result["without_time_limits" if without_time_limits else "as_shipped"] = sides
    return result


def system_calls_of_worker(make, options, progress):
    """Of the app side, per hello request at 50 connections. A loop in one script: PHP's time limits as shipped."""
    with make() as server:
        url = server.url(server.path_of("/hello.php"))
        load.run(url, 50, WARM_UP_S)
        counted = syscalls.per_request(server.app_pids(), url, 50, options.syscall_seconds)
    progress.done(options.syscall_seconds + 1)
    if counted:
        progress.say(f"syscalls {server.name} app: {counted['judged']:.2f} per request, futex {counted['futex']:.3f} ({counted['method']})")
    return {"as_shipped": {"app": counted}}


def system_calls_of_all(server, options, progress):
    """Per hello request at 50 connections, all processes together; None where nothing can count."""
    counted = syscalls.per_request(server.pids(), server.url(server.path_of("/hello.php")), 50, options.syscall_seconds)
    progress.done(options.syscall_seconds + 1)
    if counted:
        progress.say(f"syscalls {server.name}: {counted['total']:.1f} per request ({counted['method']})")
    return counted


def clock(progress):
    """The clock read once a tick, against at each use, in counts."""
    if not paths.VALGRIND or not paths.CONSTANT:
        raise servers.ServerError("the clock's counts are left out: apt-get install valgrind, and make bench")
    result = {name: instructions.per_request(paths.CONSTANT, targets.VARIANTS[name]) for name in ("clock-per-tick", "clock-per-use")}
    progress.done(20)
    for name, one in result.items():
        progress.say(f"{name}: {one['clock_reads']:.2f} readings and {one['instructions']:,.0f} instructions per request")
    return result


def idle(make, options, progress):
    """After a load has ended: no CPU time, no wake-ups."""
    with make() as server:
        load.run(server.url("/hello.php"), 50, WARM_UP_S)
        time.sleep(1)
        result = measure.idle(server, options.idle_seconds)
        result["memory_front"] = processes.memory_kib(server.front_pids())
        result["memory_app"] = processes.memory_kib(server.app_pids())
    progress.done(options.idle_seconds + 2)
    progress.say(f"idle {server.name}: {result['cpu_ticks']} ticks and {result['wake_ups']} wake-ups in {result['seconds']} s, "
                 f"front RSS {result['memory_front']['rss'] / 1024:.1f} MB")
    return result


def start(make, options, progress):
    """Seconds from the start of the processes to the first right answer of hello."""
    times = []
    for _ in range(options.starts):
        with make() as server:
            times.append(server.first_answer_s)
        progress.done(1)
    progress.say(f"start {server.name}: first answer after {stats.median(times) * 1e3:.0f} ms")
    return {"seconds": times, "median": stats.median(times)}


def memory(make, options, progress):
    """Memory per added thread, each having served hello: the whole tree's PSS and page tables with 40 threads and with 8.

    Every page is in exactly one process's share of PSS, so what front and app share counts once. Pages of shared
    memory that nobody touched are not there."""
    result = {}
    for threads in (targets.THREADS, targets.THREADS_MANY):
        with make(threads=threads) as server:
            seen = _touch_every_thread(server, threads)
            load.run(server.url("/hello.php"), 100, options.seconds)
            time.sleep(0.5)
            pids = server.pids()
            result[threads] = {**processes.memory_kib(pids), "threads_seen": seen}
        progress.done(options.seconds + 3)
    few, many = result[targets.THREADS], result[targets.THREADS_MANY]
    added = targets.THREADS_MANY - targets.THREADS
    result["per_thread_kib"] = (many["pss"] + many["page_tables"] - few["pss"] - few["page_tables"]) / added
    result["complete"] = all(result[threads]["threads_seen"] >= threads for threads in (targets.THREADS, targets.THREADS_MANY))
    progress.say(f"memory {server.name}: {result['per_thread_kib'] / 1024:.2f} MB per added thread"
                 + ("" if result["complete"] else ", BUT not every thread served a request"))
    return result


def many_threads(make, options, progress):
    """Memory of the whole tree with 600 threads, each of which has served requests."""
    threads = targets.THREADS_IN_1_GIB
    with make(threads=threads) as server:
        seen = _touch_every_thread(server, threads)
        load.run(server.url("/hello.php"), 100, options.seconds)
        time.sleep(0.5)
        result = {**processes.memory_kib(server.pids()), "threads": threads, "threads_seen": seen}
    progress.done(options.seconds + 30)
    progress.say(f"{threads} threads: {(result['pss'] + result['page_tables']) / 1024:.0f} MiB, {seen} of them seen")
    return result


def thread_cost(make, options, progress):
    """CPU time of the front per hello request with 8 threads and with 1,000, in turns. Four connections: in both few threads
    are busy, and those that get a request had to be woken."""
    numbers = (targets.THREADS, targets.THREADS_MOST)
    rounds = []
    with make(threads=numbers[0]) as few, make(threads=numbers[1]) as many:
        for server in (few, many):
            load.run(server.url("/hello.php"), 4, WARM_UP_S)
        for number in range(max(1, options.rounds)):
            one = {}
            for threads, server in list(zip(numbers, (few, many)))[:: 1 if number % 2 == 0 else -1]:
                one[threads] = measure.under_load(server, "/hello.php", 4, options.seconds)["cpu_us_per_request_front"]
                progress.done(options.seconds)
            rounds.append(one)
    ratios = [one[numbers[1]] / one[numbers[0]] for one in rounds if one[numbers[0]]]
    progress.say(f"front CPU per request with {numbers[1]} threads: {stats.median(ratios) or 0:.2f} of that with {numbers[0]}")
    return {"rounds": rounds, "ratios": ratios}


def _touch_every_thread(server, threads, tries=20):
    """Sends slow requests together until as many processes have answered as there are threads."""
    pids = set()
    with ThreadPoolExecutor(2 * threads) as pool:
        for _ in range(tries):
            for status, _, body in pool.map(lambda _: answers.fetch(server.port, "/pid.php", 10), range(4 * threads)):
                if status == 200:
                    pids.add(body)
            if len(pids) >= threads:
                break
    return len(pids)


def idle_connections(make, options, progress):
    """Front RSS before and with 10,000 keep-alive connections, each of which has been answered once and now rests."""
    count = options.connections
    with make() as server, contextlib.ExitStack() as sockets:
        load.run(server.url("/hello.php"), 50, WARM_UP_S)
        before = processes.memory_kib(server.front_pids())
        clients = []
        for number in range(count):
            clients.append(sockets.enter_context(_resting_connection(server.port, number)))
        time.sleep(1)
        during = processes.memory_kib(server.front_pids())
        # Every 100th must still answer.
        alive = sum(_ask(client) for client in clients[::100])
        result = {"connections": count, "before": before, "with": during, "asked_again": len(clients[::100]), "answered_again": alive}
    progress.done(count / 1500 + 3)
    progress.say(f"connections {server.name}: front RSS {before['rss'] / 1024:.1f} MB, with {count} idle connections "
                 f"{during['rss'] / 1024:.1f} MB; {alive}/{result['asked_again']} answered again")
    return result


def _resting_connection(port, number):
    client = socket.socket()
    # Several source addresses: each has its own range of ports.
    client.bind((f"127.0.0.{2 + number % 8}", 0))
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    if not _ask(client):
        raise servers.ServerError(f"connection {number + 1} got no answer")
    return client


def _ask(client):
    try:
        client.sendall(b"GET /hello.php HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        got = b""
        while not _whole(got):
            part = client.recv(4096)
            if not part:
                return False
            got += part
        return got.startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _whole(got):
    """Is hello's answer complete, be it chunked or with a length?"""
    head, _, body = got.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    return body.endswith(answers.HELLO)
