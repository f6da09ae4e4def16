"""The guard before every request: who is addressed, where the request comes from, how much it says.

Pure ASGI, so that nothing runs before it. A page of another site that makes this browser call
127.0.0.1 is stopped by the Host list (DNS rebinding) and by Origin / Sec-Fetch-Site (forgery).
Knows no user: who may come in is the door's to say, behind it (`app/web/door.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.web.problems import problem_response
from app.web.protocol import MAX_HEAD_BYTES, TOO_LARGE
from app.web.uploads import MAX_UPLOAD_BYTES

MAX_BODY_BYTES = 1024 * 1024
"""More than any config: data is named by path."""
LARGER_BODIES = {"/new/rows": MAX_UPLOAD_BYTES}
"""By path: what takes a file of rows."""

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

ONCE = (
    *("host", "origin", "sec-fetch-site", "content-length", "content-type", "idempotency-key"),
    "authorization",
)
"""Headers of which two would leave open which one counts (RFC 9112, 3.2; RFC 9110, 5.3)."""

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware; refuses with problem+json, adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = LOOPBACK_NAMES | {name.lower() for name in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Lifespan passes; a websocket finds no route and is closed.
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        guarded = _with_headers(send, _kept(scope), severed=not _by_our_reader(headers))
        most = LARGER_BODIES.get(scope["path"], MAX_BODY_BYTES)
        refusal = self._refusal(scope["method"], headers, most)
        if refusal:
            status, detail = refusal
            await problem_response(status, detail)(scope, receive, guarded)
            return
        await self._app(scope, _limited(receive, most), guarded)

    def _refusal(self, method: str, headers: Headers, most: int) -> tuple[HTTPStatus, str] | None:
        if sum(len(name) + len(value) for name, value in headers.raw) > MAX_HEAD_BYTES:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LARGE
        for name in ONCE:
            if len(headers.getlist(name)) > 1:
                return HTTPStatus.BAD_REQUEST, f"the header {name} was sent twice; send it once"
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                f"the Host {host[:100]!r} is not served here; use http://127.0.0.1:PORT/, "
                "or add the name to NIGHTLANE_ALLOWED_HOSTS",
            )
        if method not in SAFE_METHODS and not _same_origin(headers, host):
            return (
                HTTPStatus.FORBIDDEN,
                "this request comes from another site; send it from a page of this cockpit, "
                "or from a program without an Origin header",
            )
        length = headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 12 or int(length) > most):
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(most)
        return None


def _too_large(most: int) -> str:
    return f"the body is larger than {most} bytes; name data by path"


def _name_of(host: str) -> str:
    """The Host header without its port, lower case: `[::1]:8765` → `[::1]`."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal():
        return name.lower()
    return host.lower()


def _same_origin(headers: Headers, host: str) -> bool:
    """A browser tells the truth in these two; a program sends neither."""
    if "sec-fetch-site" in headers and not _by_our_reader(headers):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _by_our_reader(headers: Headers) -> bool:
    """From a page of ours, or typed, or a bookmark: no page of another site has sent for it."""
    return headers.get("sec-fetch-site") in {"same-origin", "none"}


def _kept(scope: Scope) -> str:
    """How long a browser may keep an answer: a static file asked for by its hash, for good."""
    if not scope["path"].startswith("/static/"):
        return "no-store"
    return "private, max-age=31536000, immutable" if scope["query_string"] else "no-cache"


def _with_headers(send: Send, kept: str, *, severed: bool) -> Send:
    """`severed`: whoever opened the page loses sight of it.

    Not said where nobody did: for a policy that its blank page had not, a new tab throws away the
    renderer that the browser had ready, and starts one when the answer has come (decision 38).
    """

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if severed:
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
            refused = message["status"] >= HTTPStatus.BAD_REQUEST
            headers["Cache-Control"] = "no-store" if refused else kept
        await send(message)

    return guarded


def _limited(receive: Receive, most: int) -> Receive:
    """Count what really arrives: a chunked body names no length."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        if message["type"] == "http.request":
            total += len(message.get("body", b""))
            if total > most:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(most))
        return message

    return counted
