"""The server's reader of HTTP with a bound on what comes before a body.

httptools keeps a header of any length in memory until its end comes. Knows no route.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
"""Of the request line and the headers together; browsers and proxies send a few kilobytes."""

TOO_LARGE = f"the headers are larger than {MAX_HEAD_BYTES} bytes; send fewer of them"


class BoundedHead(HttpToolsProtocol):
    """Answers 431 and closes the connection once a head without an end is over the bound.

    One that ends within the chunk in which it passes the bound is the guard's to refuse.
    """

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # what was on its way when it was refused
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()

    def on_message_begin(self) -> None:
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes, self._in_head = 0, True

    def _refuse(self) -> None:
        body = TOO_LARGE.encode()
        head = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(STATUS_LINE[431] + head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()
