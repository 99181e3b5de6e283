"""Is what a server answers what we think that we measure? Asked before anything is timed."""

import hashlib
import http.client
import json

PATTERN = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
HELLO = b"Hello, world!"
BIG = PATTERN * 3125
# path -> (body, number of X-Bench- headers)
EXPECTED = {
    "/hello.php": (HELLO, 0),
    "/hello.txt": (HELLO, 0),
    "/work.php": (HELLO + b" 0 done\n", 0),
    "/work": (HELLO + b" 0 done\n", 0),
    "/": (HELLO, 0),
    "/a/hello.php": (HELLO, 0),
    "/big.php": (BIG, 25),
    "/parts.php": (BIG, 25),
    "/worker/hello": (HELLO, 0),
    "/worker/big": (BIG, 25),
    "/worker/parts": (BIG, 25),
    # Of `constant`, which is started with a body of so many bytes.
    "/?bytes=11": (HELLO[:11], 0),
    "/?bytes=200000": ((HELLO * 15385)[:200_000], 0),
    "/1k.txt": (PATTERN * 16, 0),
    "/1m.bin": (PATTERN * 16384, 0),
}
# path -> (what the page says, least number of bytes): pages that differ from one request to the next.
PAGES = {
    "/index.php?title=Main_Page": (b"MediaWiki has been installed", 10_000),
    "/?p=1": (b"Hello world!", 10_000),
}
TIMEOUT_S = 5


class WrongAnswer(Exception):
    pass


def fetch(port, path, timeout_s=TIMEOUT_S):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Host": "127.0.0.1"})
        response = connection.getresponse()
        return response.status, response.getheaders(), response.read()
    finally:
        connection.close()


def bytes_min(path):
    """An answer with fewer bytes is not whole."""
    return PAGES[path][1] if path in PAGES else len(EXPECTED[path][0])


def check(name, port, path):
    """Raises WrongAnswer unless status, length, hash and headers are as expected. Returns the body's length."""
    status, headers, body = fetch(port, path)
    if path in PAGES:
        marker, least = PAGES[path]
        if status != 200 or marker not in body or len(body) < least:
            raise WrongAnswer(f"{name} answers {path} with status {status} and {len(body)} bytes: {body[:200]!r}")
        return len(body)
    expected, headers_expected = EXPECTED[path]
    ours = sum(1 for key, _ in headers if key.lower().startswith("x-bench-"))
    if status != 200:
        raise WrongAnswer(f"{name} answers {path} with status {status}: {body[:200]!r}")
    if hashlib.sha256(body).digest() != hashlib.sha256(expected).digest():
        raise WrongAnswer(f"{name} answers {path} with {len(body)} bytes, not the {len(expected)} expected: {body[:60]!r}")
    if ours != headers_expected:
        raise WrongAnswer(f"{name} answers {path} with {ours} X-Bench headers, not {headers_expected}")
    return len(body)


def probe(name, port):
    """What probe.php says; raises WrongAnswer if PHP does not run as the comparison needs it."""
    check(name, port, "/hello.php")
    status, _, body = fetch(port, "/probe.php")
    try:
        facts = json.loads(body)
    except ValueError:
        raise WrongAnswer(f"{name} answers /probe.php with status {status}: {body[:200]!r}") from None
    if not facts["opcache"]:
        raise WrongAnswer(f"{name} runs PHP without opcache")
    if not facts["hello_cached"]:
        raise WrongAnswer(f"{name} does not keep hello.php in opcache")
    if not facts["bench_ini"]:
        raise WrongAnswer(f"{name} did not read bench.ini (PHP_INI_SCAN_DIR)")
    return facts
