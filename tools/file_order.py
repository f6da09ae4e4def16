"""Run the engine and write down in which order it touches the files of its run directory.

`python tools/file_order.py ORDER_FILE RUN_DIR` in the folder of the checkout whose engine is to
run. Heard are opening for writing, renaming, unlinking, linking, removing a folder and `os.fsync`;
new events of the run are put between them where they were written. What native code opens
(safetensors, torch.save) is not heard, but that it is made durable is. Standard library alone: it
runs in the environment of any checkout.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_RANDOM = re.compile(r"\btmp[a-z0-9_]{8}\b")


def main(argv: Sequence[str] | None = None) -> None:
    """Ends with the exit code of `python -m engine run RUN_DIR`."""
    target, run_dir = map(Path, sys.argv[1:] if argv is None else argv)
    order = FileOrder(run_dir.resolve())
    os.fsync = order.fsync
    sys.addaudithook(order.hear)
    sys.path[0] = str(Path.cwd())
    sys.argv = ["engine", "run", str(run_dir)]
    try:
        runpy.run_module("engine", run_name="__main__", alter_sys=True)
    finally:
        target.write_text("".join(f"{line}\n" for line in order.lines()), "utf-8")


def label(event: Mapping[str, Any]) -> str:
    """An event in a word or two: its type and what is the same each time."""
    shown = [event.get(name) for name in ("phase", "split", "code", "name", "status", "step")]
    shown.append(min(event.get("values", ()), default=None))
    return " ".join([event["type"], *(str(one) for one in shown if one is not None)])


class FileOrder:
    """What was heard of the files below `root`, oldest first."""

    def __init__(self, root: Path) -> None:
        self._fsync = os.fsync
        self._root = str(root)
        self._pid = re.compile(rf"\.{os.getpid()}\b")
        self._lines: list[str] = []
        self._events = root / "events.jsonl"
        self._read = 0
        self._busy = False

    def lines(self) -> Sequence[str]:
        """Everything so far, with the events that were written since the last operation."""
        self._note_events()
        return list(self._lines)

    def fsync(self, fd: FileDescriptorLike) -> None:
        """In the place of `os.fsync`, of which no audit event tells."""
        number = fd if isinstance(fd, int) else fd.fileno()
        self._note("fsync", Path(f"/proc/self/fd/{number}").readlink())
        self._fsync(fd)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook."""
        if self._busy:
            return
        self._busy = True
        try:
            self._heard(event, args)
        finally:
            self._busy = False

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        match event, args:
            case "open", (path, _, flags) if flags & os.O_ACCMODE != os.O_RDONLY:
                self._note("append" if flags & os.O_APPEND else "open", path)
            case "os.rename", (source, target, *_):
                self._note("rename", source, target)
            case "os.link", (source, target, *_):
                self._note("link", source, target)
            case "os.symlink", (source, target, *_):
                self._note(f"symlink to {self._plain(os.fsdecode(source))}", target)
            # rmtree's own removals have a folder's descriptor, and no order of their own
            case "os.remove" | "os.rmdir", (path, -1) if os.path.lexists(path):
                self._note("unlink" if event == "os.remove" else "rmdir", path)
            case "shutil.rmtree", (path, *_) if os.path.lexists(path):
                self._note("rmtree", path)
            case _:
                pass

    def _note(self, what: str, *paths: Any) -> None:
        if any(isinstance(path, int) for path in paths):
            return
        full = [os.path.abspath(os.fsdecode(path)) for path in paths]  # noqa: PTH100 - keeps links
        if not any(path == self._root or path.startswith(f"{self._root}/") for path in full):
            return
        self._note_events()
        self._lines.append(" ".join([what, " → ".join(self._plain(path) for path in full)]))

    def _plain(self, path: str) -> str:
        relative = path.removeprefix(self._root).removeprefix("/") or "."
        return _RANDOM.sub("RANDOM", self._pid.sub(".PID", relative))

    def _note_events(self) -> None:
        """Events are appended to a file that stays open: nothing else tells when."""
        busy, self._busy = self._busy, True
        try:
            with self._events.open("rb") as stream:
                stream.seek(self._read)
                for line in stream:
                    self._read += len(line)
                    self._lines.append(f"event {label(json.loads(line))}")
        except FileNotFoundError:
            pass
        finally:
            self._busy = busy


if __name__ == "__main__":
    main()
