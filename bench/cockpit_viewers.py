"""Open pages without a browser: so many live streams of one cockpit, each read as it comes.

`python bench/cockpit_viewers.py URL COUNT` says `open` when all stand, and for each line on its
input how many have heard of a job since the line before.
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit


class Viewer:
    """One stream."""

    def __init__(self) -> None:
        self.heard = False
        self.opened = asyncio.Event()

    async def follow(self, host: str, port: int) -> None:
        """Read until the server ends it."""
        reader, writer = await asyncio.open_connection(host, port)
        request = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        writer.write(request.encode())
        while line := await reader.readline():
            if line.startswith(b"event: beat"):
                self.opened.set()
            if line.startswith(b"event: job"):
                self.heard = True


async def main(url: str, count: int) -> None:
    """Follow, and answer."""
    place = urlsplit(url)
    viewers = [Viewer() for _ in range(count)]
    follow = [viewer.follow(place.hostname or "", place.port or 80) for viewer in viewers]
    tasks = [asyncio.create_task(one) for one in follow]
    await asyncio.gather(*(viewer.opened.wait() for viewer in viewers))
    print("open", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(sum(viewer.heard for viewer in viewers), flush=True)
        for viewer in viewers:
            viewer.heard = False
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
