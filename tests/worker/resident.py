"""A resident model as a real process: holds memory, answers to SIGTERM, gives the memory back.

The memory is a memfd, which no RSS shows; what the machine has left stands in a file that it keeps.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.deadline import eventually

RESIDENT = """
import os, signal, subprocess, sys, time
from pathlib import Path

verb, home = sys.argv[1], Path(sys.argv[2])
slow = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0


def left(gb):
    # In place and of one length: readers keep the file open.
    text = f"MemTotal: {int(25e9 / 1024):>12} kB\\nMemAvailable: {int(gb * 1e9 / 1024):>12} kB\\n"
    file = os.open(home / "meminfo", os.O_WRONLY | os.O_CREAT)
    os.pwrite(file, text.encode(), 0)
    os.close(file)


def alive():
    try:
        pid = int((home / "pid").read_text())
        return pid if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    except (OSError, ValueError):
        return None


if verb == "serve":
    model = os.memfd_create("weights")
    os.write(model, bytes(8_000_000))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        left(10)
        (home / "pid").write_text(str(os.getpid()))
        time.sleep(600)
    finally:
        time.sleep(slow)
        left(20)
        (home / "pid").unlink()
elif verb == "start":
    if (home / "broken").exists():
        sys.exit("no such model")
    if not alive():
        command = [sys.executable, __file__, "serve", *sys.argv[2:]]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
elif verb == "stop":
    while (home / "hang").exists():
        time.sleep(0.05)
    if pid := alive():
        os.kill(pid, signal.SIGTERM)
elif verb == "check":
    while (home / "mute").exists():
        time.sleep(0.05)
    sys.exit(0 if alive() else 1)
"""


class Resident:
    """The model that lives on the lane."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.program = home / "resident.py"
        self.program.write_text(RESIDENT)

    def command(self, verb: str, *more: str) -> str:
        return shlex.join([sys.executable, "-S", str(self.program), verb, str(self.home), *more])

    def do(self, verb: str, *more: str) -> None:
        subprocess.run(shlex.split(self.command(verb, *more)), check=True)

    def up(self) -> bool:
        return subprocess.run(shlex.split(self.command("check")), check=False).returncode == 0

    def start(self) -> None:
        self.do("start")
        eventually(self.up, "the resident is up", 20)
