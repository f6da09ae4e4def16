"""Whose process is at the other end of a connection on loopback, as the kernel lists it.

A browser sends its cookie for 127.0.0.1 to every port, so a page that another user of the machine
serves there gets it. What that user cannot get is a socket of ours: a cookie counts only from the
user whose browser signed in (`app/web/door.py`). Of a connection through an SSH tunnel the user is
the one who logged in.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

_TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_LOCAL, _REMOTE, _UID = 1, 2, 7
"""Columns of proc(5), net/tcp."""

Address = tuple[str, int]


def user_of(client: Address | None, server: Address | None) -> int | None:
    """The user id of the client's socket; None where this machine does not list it."""
    if client is None or server is None:
        return None
    try:
        family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
        wanted = (_listed(family, client), _listed(family, server))
        lines = _TABLES[family].read_text("ascii").splitlines()[1:]
    except (OSError, ValueError):
        return None
    for fields in map(str.split, lines):
        if (fields[_LOCAL], fields[_REMOTE]) == wanted:
            return int(fields[_UID])
    return None


def _listed(family: socket.AddressFamily, address: Address) -> str:
    """`127.0.0.1`, 8765 → `0100007F:223D`: words of 32 bits as this machine keeps them."""
    packed = socket.inet_pton(family, address[0])
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    number = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{number}:{address[1]:04X}"
