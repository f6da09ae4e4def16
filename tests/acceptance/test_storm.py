"""The short form of `make storm`: real processes, killed at every named moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STRIKES = 24
"""Three in each phase; the long form has a thousand."""


@pytest.mark.timeout(900)
@pytest.mark.requirement("JB-04", "JB-08", "LN-03")
def test_nothing_is_lost_or_run_twice_whatever_is_killed(tmp_path: Path) -> None:
    """Web, client, drain, engine and grandchild killed, a drain stopped past its lease, a holder
    that does not notice its takeover: every acknowledged job has the result of an unbroken run,
    and audit, attempts, counters, events and projections tell one story.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tools.storm",
            "--strikes",
            str(STRIKES),
            "--minutes",
            "10",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["broken"] == []
    assert report["strikes"] == STRIKES
    assert all(report["phases"].values()), report["phases"]
