"""Peers that no Debian package has: small programs of ours on Rust libraries, and Granian from PyPI."""

import os
import subprocess
import sys

from lib import paths

BUILD_TIMEOUT_S = 600
VENV = os.path.join(paths.OUT, "venv")
REQUIREMENTS = os.path.join(paths.PEERS, "requirements.txt")


class BuildError(Exception):
    pass


def rust(peer):
    """Path of the program in bench/peers/PEER, built if need be."""
    if not paths.CARGO:
        raise BuildError(f"{peer} is left out: it takes cargo to build it")
    target = os.path.join(paths.TARGET, f"bench-{peer}")
    _run(peer, [paths.CARGO, "build", "--release", "--locked", "--quiet", "--manifest-path",
                os.path.join(paths.PEERS, peer, "Cargo.toml"), "--target-dir", target])
    return os.path.join(target, "release", f"bench-{peer}")


def granian():
    """Path of Granian in a virtual environment below bench/out, made if need be."""
    program = os.path.join(VENV, "bin", "granian")
    done = os.path.join(VENV, "installed")
    if not (paths.executable(program) and _same(done, REQUIREMENTS)):
        # Debian's Python, as the other Python peers run on, whichever one runs this.
        python = paths.executable("/usr/bin/python3") or sys.executable
        _run("granian", [python, "-m", "venv", "--clear", VENV])
        _run("granian", [os.path.join(VENV, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
                         "--requirement", REQUIREMENTS])
        with open(REQUIREMENTS) as source, open(done, "w") as copy:
            copy.write(source.read())
    return program


def _same(one, other):
    try:
        with open(one) as first, open(other) as second:
            return first.read() == second.read()
    except FileNotFoundError:
        return False


def _run(peer, argv):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{peer} is left out, it cannot be made: {error}") from None
    if done.returncode != 0:
        raise BuildError(f"{peer} is left out, it cannot be made: {(done.stderr or done.stdout).strip()[-1500:]}")
