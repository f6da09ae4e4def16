"""What an engine itself holds: its group, strangers left out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.memory.own import WALK_S, OwnMemory

HOLDS = "import sys; held = bytearray(b'x') * {size}; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """Leads a session and holds 200 MB, of which a child of its own holds 100."""
    child = HOLDS.format(size=100_000_000)
    code = (
        "import subprocess, sys; held = bytearray(b'x') * 100_000_000; "
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=-1, stdout=-1); "
        "p.stdout.readline(); print('ready', flush=True); sys.stdin.read()"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def test_a_group_is_its_leader_and_its_workers(holder: subprocess.Popen[bytes]) -> None:
    """200 MB of its own; what this process holds does not count."""
    mine = bytearray(b"x") * 150_000_000

    found = OwnMemory(holder.pid).look(0.0)

    assert found is not None
    assert 0.2 < found < 0.2 + len(mine) / 1e9 / 2


def test_a_peak_stays(tmp_path: Path) -> None:
    """Of the walks and of the high-water marks in between."""
    proc = tmp_path / "7"
    proc.mkdir()
    (proc / "stat").write_text("7 (py (x) y) S 1 7 7 0")
    own = OwnMemory(7, tmp_path)

    def holds(pss: int, mark: int, now: float) -> float | None:
        (proc / "smaps_rollup").write_text(f"Rss: 1 kB\nPss:    {pss} kB\n")
        (proc / "status").write_text(f"VmPeak: 9 kB\nVmHWM:   {mark} kB\n")
        return own.look(now)

    gib = 1024**3 / 1e9
    assert holds(2**20, 2**19, 0.0) == pytest.approx(gib)
    assert holds(2**21, 2**19, 2.0) == pytest.approx(gib)  # no walk yet
    assert holds(2**21, 3 * 2**20, 4.0) == pytest.approx(3 * gib)
    assert holds(2**22, 2**19, WALK_S) == pytest.approx(4 * gib)
    assert holds(1, 1, 3 * WALK_S) == pytest.approx(4 * gib)


def test_nothing_is_known_of_what_is_gone(tmp_path: Path) -> None:
    """No process of that session."""
    assert OwnMemory(7, tmp_path).look(0.0) is None
