"""HEAD: whatever can be got can be asked for its headers (RFC 9110, 9.3.2).

Knows no route: it asks for the page and keeps the body back.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware; to whoever makes the answer the caller has gone once its headers stand."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        answered = False

        async def headers_only(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        async def gone() -> Message:
            return {"type": "http.disconnect"} if answered else await receive()

        await self._app({**scope, "method": "GET"}, gone, headers_only)
