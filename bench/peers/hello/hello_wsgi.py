"""13 bytes, as little as a WSGI application can do."""

BODY = b"Hello, world!"
HEADERS = [("Content-Type", "text/plain"), ("Content-Length", "13")]


def application(environ, start_response):
    start_response("200 OK", HEADERS)
    return [BODY]
