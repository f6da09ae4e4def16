"""One message through Apprise, in a process of its own: `python -m worker.report.messenger`.

A receiver may take for ever with its answer, and Apprise's threads would keep a drain from ending
until it has given it; a process can be killed. Reads `{"file", "title", "body"}`, writes `Outcome`.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TypedDict


class Outcome(TypedDict):
    """What came of a message."""

    addresses: int
    taken: bool
    """By all of them."""
    said: str
    """What Apprise says about those that did not take it."""


def deliver(file: Path, title: str, body: str) -> Outcome:
    """Send one message to every address of a configuration file."""
    import apprise  # noqa: PLC0415 - half a second that only a message pays

    # A redirect would carry the message to an address that the file does not name.
    asset = apprise.AppriseAsset(http_redirects=False)
    # A configuration may not fetch another one: addresses come from this file alone.
    config = apprise.AppriseConfig(recursion=0, insecure_includes=False, asset=asset)
    config.add(str(file))
    messenger = apprise.Apprise(asset=asset)
    messenger.add(config)
    if len(messenger) == 0:
        return Outcome(addresses=0, taken=False, said="")
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as said:  # type: ignore[no-untyped-call]
        taken = messenger.notify(title=title, body=body)
        reasons = "; ".join(dict.fromkeys(said.getvalue().split("\n"))).strip("; ")
    return Outcome(addresses=len(messenger), taken=bool(taken), said=reasons)


def main() -> None:
    """Of the process."""
    wanted = json.load(sys.stdin)
    json.dump(deliver(Path(wanted["file"]), wanted["title"], wanted["body"]), sys.stdout)


if __name__ == "__main__":
    main()
