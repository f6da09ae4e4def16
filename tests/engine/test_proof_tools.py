"""What a proof of unchanged bits stands on: differences are found, file operations are heard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import file_order
from tools.run_outcome import differences, without_time

ENGINE = """
import json, os, shutil, sys
from pathlib import Path
run = Path(sys.argv[2])
events = (run / "events.jsonl").open("ab", buffering=0)
(run / "old" / "deep").mkdir(parents=True)
(run / "old" / "deep" / "file").write_text("")
temporary = run / f".report.{os.getpid()}.tmp"
with temporary.open("w") as stream:
    os.fsync(stream.fileno())
events.write(json.dumps({"type": "gate", "split": "select", "step": 3, "t": 1.5}).encode() + b"\\n")
temporary.rename(run / "report.json")
(run / "selected").symlink_to("report.json")
(run / "missing").unlink(missing_ok=True)
(run / "report.json").read_text()
(run.parent / "elsewhere").write_text("")
shutil.rmtree(run / "old")
os.fsync(events.fileno())
"""


def test_operations_and_events_are_written_down_in_their_order(tmp_path: Path) -> None:
    """Below the run directory alone, with names that are the same next time."""
    checkout, run = tmp_path / "checkout", tmp_path / "run"
    (checkout / "engine").mkdir(parents=True)
    run.mkdir()
    (checkout / "engine" / "__init__.py").touch()
    (checkout / "engine" / "__main__.py").write_text(ENGINE)
    command = [sys.executable, file_order.__file__, str(tmp_path / "order"), str(run)]

    subprocess.run(command, cwd=checkout, check=True, timeout=60)

    assert (tmp_path / "order").read_text().splitlines() == [
        "append events.jsonl",
        "open old/deep/file",
        "open .report.PID.tmp",
        "fsync .report.PID.tmp",
        "event gate select 3",
        "rename .report.PID.tmp → report.json",
        "symlink to report.json selected",
        "rmtree old",
        "rmdir old",
        "fsync events.jsonl",
    ]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"a": {"b": 2}, "c": ["x", "y"]}, ".a.b: 2 is not 1"),
        ({"a": {}, "c": ["x", "y"]}, ".a.b: nothing is not 1"),
        ({"a": {"b": 1, "d": None}, "c": ["x", "y"]}, ".a.d: None is not nothing"),
        ({"a": {"b": 1}, "c": ["x", "new", "y"]}, ".c[1]: ['new'] is not []"),
        ({"a": {"b": 1}, "c": ["y"]}, ".c[0]: [] is not ['x']"),
    ],
)
def test_a_difference_is_said_where_it_is(found: dict[str, Any], line: str) -> None:
    """Of a list, what was put in, left out or replaced; the rest of it does not differ."""
    expected = {"a": {"b": 1}, "c": ["x", "y"]}

    assert differences(found, expected) == [line]
    assert differences(expected, expected) == []


def test_times_do_not_count_wherever_they_are() -> None:
    """What was measured of the machine differs each time."""
    value = [{"seconds": 1.5, "time/step_s": 2, "loss": 3, "mem": {"rss_gb": 4}, "cached": True}]

    assert without_time(value) == [{"loss": 3, "cached": True}]
    assert without_time(value, {"cached"}) == [{"loss": 3}]
