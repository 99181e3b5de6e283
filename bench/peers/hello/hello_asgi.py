"""13 bytes, as little as an ASGI application can do."""

START = {"type": "http.response.start", "status": 200,
         "headers": [(b"content-type", b"text/plain"), (b"content-length", b"13")]}
BODY = {"type": "http.response.body", "body": b"Hello, world!"}


async def application(scope, receive, send):
    if scope["type"] == "http":
        await send(START)
        await send(BODY)
