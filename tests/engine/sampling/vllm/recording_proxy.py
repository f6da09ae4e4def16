"""A server's place with a proxy in it that writes down everything that crosses to and from it.

    python recording_proxy.py FOLDER UPSTREAMS COMMAND… --port N

Listens at N and hands every request on: to the command, started at a port of its own, or, where
there is none, to the first of the `UPSTREAMS` (ports with commas between) that no other proxy
has taken. FOLDER/UPSTREAM.jsonl holds a line for the command and one for each exchange, in order.
Standard library alone: it is up before the learner looks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO

_LOCK = threading.Lock()
_OWN = {"connection", "content-length", "date", "server", "transfer-encoding"}
"""Headers of one connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = 0
    record: TextIO

    def do_GET(self) -> None:
        self._hand_on()

    def do_POST(self) -> None:
        self._hand_on()

    def log_message(self, *_: Any) -> None:
        """The record is the log."""

    def _hand_on(self) -> None:
        sent, began = self.rfile.read(int(self.headers.get("content-length", 0))), time.time()
        connection = HTTPConnection("127.0.0.1", self.upstream)
        try:
            connection.request(self.command, self.path, sent, {"content-type": "application/json"})
            reply = connection.getresponse()
            status, headers, told = reply.status, reply.getheaders(), reply.read()
        except OSError:  # it does not listen yet
            status, headers, told = 503, [], b"{}"
        self._write(status, began, sent, told)
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _OWN:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def _write(self, status: int, began: float, sent: bytes, told: bytes) -> None:
        exchange = {
            "method": self.command,
            "path": self.path,
            "status": status,
            "began": began,
            "ended": time.time(),
            "sent": sent.decode(),
            "told": told.decode(),
        }
        with _LOCK:
            self.record.write(json.dumps(exchange) + "\n")
            self.record.flush()


def _claimed(folder: Path, upstreams: Sequence[str]) -> int:
    """An upstream that no other proxy has."""
    for port in upstreams:
        with suppress(FileExistsError):
            (folder / f"{port}.jsonl").touch(exist_ok=False)
            return int(port)
    raise SystemExit("more servers were started than there are upstreams")


def _started(command: Sequence[str]) -> int:
    """The port at which the command will listen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    place = command.index("--port") + 1
    subprocess.Popen([*command[:place], str(port), *command[place + 1 :]])
    return port


def main(folder: Path, upstreams: str, command: Sequence[str]) -> None:
    """Until it is ended."""
    port = _claimed(folder, upstreams.split(",")) if upstreams else _started(command)
    with (folder / f"{port}.jsonl").open("a") as record:
        told = {"command": [*command], "environment": dict(os.environ)}
        record.write(json.dumps(told) + "\n")
        record.flush()
        _Handler.upstream, _Handler.record = port, record
        address = ("127.0.0.1", int(command[command.index("--port") + 1]))
        ThreadingHTTPServer(address, _Handler).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
