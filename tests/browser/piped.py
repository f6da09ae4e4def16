"""Chromium by its own pipe, as its developer tools speak to it.

Playwright's own scripts and emulation cost a page some 45 ms (docs/experiments.md). Here the tab is
attached to, as the developer tools do. Knows expressions, no selectors.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ATTACH = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
PATIENCE_S = 20.0
WIDTH, HEIGHT, FRAME = 1280, 900, 143
"""The page's part of the window, and the browser's own rows above it, in CSS pixels."""


class Tab:
    """One browser with one tab."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._asked = 0
        self._pages: dict[str, dict[str, Any]] = {}
        """Session → target, of the page in the tab."""
        tab = next(found for found in self.targets() if found["type"] == "tab")
        whole = {"targetId": tab["targetId"], "flatten": True}
        session = self._call("Target.attachToTarget", whole)["sessionId"]
        self._call("Target.setAutoAttach", ATTACH, session)

    def targets(self) -> list[dict[str, Any]]:
        """All that the browser shows or has ready."""
        everything: dict[str, Any] = {"filter": [{}]}
        found: list[dict[str, Any]] = self._call("Target.getTargets", everything)["targetInfos"]
        return found

    def go(self, address: str) -> None:
        """As if typed into the address line."""
        self._call("Page.navigate", {"url": address}, self._session())

    @contextlib.contextmanager
    def another(self, address: str) -> Iterator[Callable[[str], Any]]:
        """A second tab, from its first moment at `address`; what is called asks its page.

        Nobody is attached to it before the first question.
        """
        target = self._call("Target.createTarget", {"url": address})["targetId"]

        def ask(expression: str) -> Any:
            whole = {"targetId": target, "flatten": True}
            session = self._call("Target.attachToTarget", whole)["sessionId"]
            self._pages.pop(session, None)
            wanted = {"expression": expression, "returnByValue": True}
            found = self._call("Runtime.evaluate", wanted, session)["result"].get("value")
            self._call("Target.detachFromTarget", {"sessionId": session})
            return found

        try:
            yield ask
        finally:
            self._call("Target.closeTarget", {"targetId": target})

    def value(self, expression: str) -> Any:
        """What it is in the page shown; None between two pages."""
        wanted = {"expression": expression, "returnByValue": True}
        try:
            session = self._session()
            return self._call("Runtime.evaluate", wanted, session)["result"].get("value")
        except (LookupError, RuntimeError):
            self.targets()  # between two pages: with the answer comes word of the next one
            return None

    def until(self, expression: str) -> Any:
        """Ask until it holds. Raises TimeoutError."""
        ends = time.monotonic() + PATIENCE_S
        while not (found := self.value(expression)):
            if time.monotonic() > ends:
                raise TimeoutError(expression)
            time.sleep(0.02)
        return found

    def _session(self) -> str:
        """Of the page that is seen. Raises LookupError."""
        for session in self._pages:
            return session
        raise LookupError

    # --- the wire: JSON, each message ended by a zero ---

    def _call(self, method: str, params: Any, session: str | None = None) -> dict[str, Any]:
        number = self._send(method, params, session)
        while True:
            told = self._next()
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                result: dict[str, Any] = told["result"]
                return result
            self._heard(told)
            if session and told.get("params", {}).get("sessionId") == session:
                raise LookupError(session)  # the page is gone, and with it its answer

    def _send(self, method: str, params: Any, session: str | None) -> int:
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        return self._asked

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], PATIENCE_S)
            more = os.read(self._reads, 65536) if ready else b""
            if not more:
                raise EOFError("the browser says no more")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def _heard(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        match told.get("method"):
            case "Target.attachedToTarget" if params["targetInfo"]["type"] == "page":
                self._pages[params["sessionId"]] = params["targetInfo"]
            case "Target.detachedFromTarget":
                self._pages.pop(params["sessionId"], None)
            case "Target.targetInfoChanged":
                changed = params["targetInfo"]
                for session, target in self._pages.items():
                    if target["targetId"] == changed["targetId"]:
                        self._pages[session] = changed


@contextlib.contextmanager
def piped(folder: Path, arguments: Sequence[str]) -> Iterator[Tab]:
    """A browser with a fresh profile in `folder`, ended with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [
        "/usr/bin/chromium", "--headless=new", "--remote-debugging-pipe",
        f"--window-size={WIDTH},{HEIGHT + FRAME}", f"--user-data-dir={folder}",
        *arguments, "about:blank",
    ]  # fmt: skip
    child = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "chromium", *command],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(ours_in, ours_out)
    finally:
        os.close(ours_out)  # it ends itself when nobody speaks any more
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        os.close(ours_in)
