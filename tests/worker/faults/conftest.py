"""A small disk of the test's own: a tmpfs in a mount namespace that only one child sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.settings import WorkerSettings

_PRELUDE = """
import json, os, subprocess, sys, threading, time
from pathlib import Path
from worker.db.connection import DatabaseError, open_database
from worker.drain import drain
from worker.read import jobs
from worker.queue.submit import enqueue
from worker.settings import WorkerSettings
from tests.deadline import eventually

settings = WorkerSettings()
disk = settings.data_dir
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
ballast = disk / "ballast"

def fill():
    with ballast.open("ab", buffering=0) as stream:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                pass

def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

def refused(act):
    try:
        act()
    except DatabaseError as error:
        return str(error)
    return None

answer = {}
"""


@pytest.fixture
def on_small_disk(settings: WorkerSettings) -> Callable[[str], dict[str, Any]]:
    """Run a script on a data directory of 4 MB; returns its `answer`."""

    def run(script: str) -> dict[str, Any]:
        # Without root the namespace needs a user namespace around it.
        namespace = ["unshare", "--mount"] + (["--map-root-user"] if os.getuid() else [])
        code = _PRELUDE + script + "\nprint(json.dumps(answer))\n"
        done = subprocess.run(
            [*namespace, sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=Path(__file__).parents[3],
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer | {"stderr": done.stderr}

    return run
