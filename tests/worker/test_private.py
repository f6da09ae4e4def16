"""The data directory is its user's alone, whatever the umask."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from worker.db.connection import open_database
from worker.read.diagnosis import Level, diagnose
from worker.settings import WorkerSettings

pytestmark = pytest.mark.requirement("AP-06")


def open_to_others(folder: Path) -> list[str]:
    """Mode and name of everything below that others may look into, links left out."""
    everything = [folder, *folder.rglob("*")]
    modes = ((one, stat.S_IMODE(one.lstat().st_mode)) for one in everything if not one.is_symlink())
    return [f"{mode:04o} {one.relative_to(folder)}" for one, mode in modes if mode & 0o077]


def cockpit(*words: str, stdin: str = "") -> str:
    """With the umask of a careless shell."""
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *words],
        input=stdin, capture_output=True, text=True, timeout=60, umask=0, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_that_a_night_leaves_is_open_to_others(
    settings: WorkerSettings, tmp_path: Path
) -> None:
    """Database and its log, run directories, answers, engine's log, a backup."""
    cockpit("enqueue", "tally", "-", stdin="steps: 2")
    cockpit("drain")
    cockpit("db", "backup", str(settings.data_dir / "copy.db"))
    cockpit("db", "backup", str(tmp_path / "elsewhere.db"))

    assert (settings.runs_dir / "1" / "events.jsonl").is_file()
    assert open_to_others(settings.data_dir) == []
    assert stat.S_IMODE((tmp_path / "elsewhere.db").stat().st_mode) == 0o600


def test_a_wider_directory_is_a_risk_until_the_next_start_tightens_it(
    settings: WorkerSettings,
) -> None:
    """As an earlier version left it; doctor says how."""
    with open_database(settings):
        pass
    database = settings.data_dir / "nightlane.db"
    settings.data_dir.chmod(0o755)
    database.chmod(0o644)

    said = diagnose(settings)[0]
    assert (said.level, "(0755); run: chmod 700" in said.detail) == (Level.RISK, True)
    with open_database(settings):
        assert open_to_others(settings.data_dir) == []
    assert diagnose(settings)[0].level is Level.OK


def test_the_directory_of_another_user_is_left_as_it_is(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and not changed."""
    settings.data_dir.mkdir()
    settings.data_dir.chmod(0o755)
    monkeypatch.setattr("worker.private.os.geteuid", lambda: 54321)
    with open_database(settings):
        pass

    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o755
    assert diagnose(settings)[0].level is Level.RISK
