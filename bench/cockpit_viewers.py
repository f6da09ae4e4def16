"""Open pages without a browser: so many live streams of one cockpit, each read as it comes.

`python bench/cockpit_viewers.py URL COUNT` says `open` when all stand, and for each number of a
change on its input how many have heard of that change, or of a later one. The variable
AUTHORIZATION holds the header of that name.
"""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import urlsplit


class Viewer:
    """One stream."""

    def __init__(self) -> None:
        self.newest = 0
        self.opened = asyncio.Event()

    async def follow(self, host: str, port: int) -> None:
        """Read until the server ends it."""
        reader, writer = await asyncio.open_connection(host, port)
        token = f"Authorization: {os.environ['AUTHORIZATION']}"
        request = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\n{token}\r\n\r\n"
        writer.write(request.encode())
        while line := await reader.readline():
            if line.startswith(b"event: beat"):
                self.opened.set()
            if line.startswith(b"id: "):
                self.newest = int(line[4:])


async def main(url: str, count: int) -> None:
    """Follow, and answer."""
    place = urlsplit(url)
    viewers = [Viewer() for _ in range(count)]
    follow = [viewer.follow(place.hostname or "", place.port or 80) for viewer in viewers]
    tasks = [asyncio.create_task(one) for one in follow]
    await asyncio.gather(*(viewer.opened.wait() for viewer in viewers))
    print("open", flush=True)
    while asked := await asyncio.to_thread(sys.stdin.readline):
        print(sum(viewer.newest >= int(asked) for viewer in viewers), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
