"""Instructions and clock readings per request of a program of ours, counted by callgrind: figures that no noise touches."""

import os
import re
import socket
import subprocess
import tempfile
import time

from lib import paths, servers

CONNECTIONS = 50
ROUNDS_FEW, ROUNDS_MANY = 20, 120
START_TIMEOUT_S = 30
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
CLOCK = "SystemClock as baton_server::clock::Clock>::read"


def per_request(program, arguments):
    """{"instructions", "clock_reads"}: the difference between a long and a short run, so that the start does not count."""
    few, many = (_run(program, arguments, rounds) for rounds in (ROUNDS_FEW, ROUNDS_MANY))
    requests = (ROUNDS_MANY - ROUNDS_FEW) * CONNECTIONS
    return {name: (many[name] - few[name]) / requests for name in few}


def _run(program, arguments, rounds):
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder:
        profile = os.path.join(folder, "profile")
        port = servers.free_port()
        child = subprocess.Popen([paths.VALGRIND, "--tool=callgrind", f"--callgrind-out-file={profile}", program,
                                  f"127.0.0.1:{port}", "1", *arguments],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _ask(port, rounds)
        finally:
            child.terminate()
            child.wait()
        with open(profile) as file:
            return _read(file.read())


def _ask(port, rounds):
    """Every client asks at once, then all answers are read: many requests to a tick, as under load."""
    clients = [_connect(port) for _ in range(CONNECTIONS)]
    for _ in range(rounds):
        for client in clients:
            client.sendall(REQUEST)
        for client in clients:
            if not client.recv(4096).startswith(b"HTTP/1.1 200"):
                raise servers.ServerError("a wrong answer under callgrind")
    for client in clients:
        client.close()


def _connect(port):
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", port), timeout=START_TIMEOUT_S)
            return client
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _read(profile):
    """callgrind's format: names are written out once, "fn=(id) name", calls as "cfn=(id)" and "calls=count"."""
    total = re.search(r"^(?:summary|totals): (\d+)", profile, re.M)
    identity = re.search(r"^c?fn=\((\d+)\) .*" + re.escape(CLOCK), profile, re.M)
    reads = 0
    if identity:
        calls = re.findall(rf"^cfn=\({identity[1]}\).*\n(?:c[a-z]+=.*\n)*calls=(\d+)", profile, re.M)
        reads = sum(map(int, calls))
    return {"instructions": int(total[1]), "clock_reads": reads}
