"""What several processes make at once is made whole, and by one of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from engine.run.once import make_once

pytestmark = pytest.mark.requirement("RL-11")

MAKER = """
import sys
from pathlib import Path
from engine.run.once import make_once

def make(folder):
    (folder / "first").write_text("1")
    print("half", flush=True)
    sys.stdin.readline()
    (folder / "second").write_text("2")

print(make_once(Path(sys.argv[1]), make), flush=True)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """A maker that has written half of it, and waits for a line."""
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert maker.stdout is not None
    assert maker.stdout.readline() == "half\n"
    return maker


def whole(folder: Path) -> bool:
    return {file.name for file in folder.iterdir()} == {"first", "second"}


def test_two_processes_at_once_both_find_it_whole(tmp_path: Path) -> None:
    """Neither removes what the other is writing; the second to finish takes the first one's."""
    folder = tmp_path / "cache" / "model"
    one, two = start(folder), start(folder)
    assert not folder.exists()

    for maker in (two, one):
        out, _ = maker.communicate("go\n", timeout=30)
        assert maker.returncode == 0
        assert out.strip() == str(folder)
        assert whole(folder)

    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_killed_maker_leaves_nothing_half_and_nothing_behind(tmp_path: Path) -> None:
    """The next one clears its rest away, and leaves that of a living one alone."""
    folder = tmp_path / "model"
    killed, lives = start(folder), start(folder)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not folder.exists()

    made = make_once(folder, lambda place: [(place / n).write_text(n) for n in ("first", "second")])

    assert whole(made)
    lives.communicate("go\n", timeout=30)
    assert lives.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    """The error is the maker's own; the next one may succeed."""
    folder = tmp_path / "model"

    def fails(place: Path) -> None:
        (place / "first").write_text("1")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        make_once(folder, fails)

    assert list(tmp_path.iterdir()) == []


def test_it_is_made_once(tmp_path: Path) -> None:
    """Of many threads too."""
    start_together = Barrier(4)
    folder = tmp_path / "model"

    def make(place: Path) -> None:
        start_together.wait()
        (place / "first").write_text("1")

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: make_once(folder, make), range(4)))

    assert made == [folder] * 4
    assert make_once(folder, lambda _: pytest.fail("it stands")) == folder
