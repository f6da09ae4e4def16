"""JSON messages over a stream socket: four bytes of length, then the text.

Knows no message. Lone surrogates of a broken completion survive, escaped as JSON has them.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

LONGEST = 64 * 2**20
"""Bytes of one message; more is a broken or hostile peer."""

_HEAD = struct.Struct("!I")


class ClosedError(ConnectionError):
    """The peer is gone, or speaks something else."""


def send(channel: socket.socket, message: Any) -> None:
    """Blocks until all of it is on its way. Raises ClosedError when the peer is gone."""
    body = json.dumps(message).encode("ascii")
    try:
        channel.sendall(_HEAD.pack(len(body)) + body)
    except OSError as error:
        raise ClosedError(str(error)) from None


def receive(channel: socket.socket, longest: int = LONGEST) -> Any:
    """The next message. Raises ClosedError at the end of the stream."""
    (length,) = _HEAD.unpack(_exactly(channel, _HEAD.size))
    if length > longest:
        raise ClosedError(f"a message of {length} bytes")
    return json.loads(_exactly(channel, length))


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        try:
            part = channel.recv(min(count, 2**20))
        except OSError as error:
            raise ClosedError(str(error)) from None
        if not part:
            raise ClosedError("end of stream")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
