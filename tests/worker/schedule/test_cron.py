"""The crontab line: complete, found again, taken out; through a `crontab` program on the PATH.

The program is a script that keeps one file, as the real one does for one user.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.contract.errors import ConfigError
from tests.worker.lane_rows import NOON
from worker.db.connection import Database
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.schedule import cron, looks, policy
from worker.schedule.autonomy import status, switch_off, switch_on
from worker.settings import WorkerSettings

CRONTAB = """#!{python}
import sys
from pathlib import Path

table = Path({table!r})
if (table.parent / "refuses").exists():
    sys.exit("crontabs: Permission denied")
if sys.argv[1] == "-l":
    if not table.exists():
        sys.exit("no crontab for ada")
    sys.stdout.buffer.write(table.read_bytes())
else:
    table.write_bytes(sys.stdin.buffer.read())
"""

OTHERS = "MAILTO=ada\n0 4 * * * backup  # nightly\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The crontab of a user, behind a `crontab` program of their own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    found = folder / "table"
    program = folder / "crontab"
    program.write_text(CRONTAB.format(python=sys.executable, table=str(found)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return found


@pytest.mark.requirement("LN-01")
def test_on_installs_one_line_and_off_takes_it_out(db: Database, table: Path) -> None:
    """Lines of others stay as they were, byte for byte."""
    table.write_text(OTHERS)

    switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)
    switch_on(db, {"interval_min": 20}, actor="test", now=NOON, install=True)
    installed = table.read_text()
    off = switch_off(db, actor="test", now=NOON)

    assert installed.startswith(OTHERS)
    [line] = installed.removeprefix(OTHERS).splitlines()
    assert line.startswith("*/20 * * * * ")
    assert " drain --scheduled " in line
    assert off.line_removed
    assert table.read_text() == OTHERS


@pytest.mark.requirement("LN-01")
@pytest.mark.parametrize(
    "others",
    [
        "0 4 * * * echo a\u2028b\n",
        "0 4 * * * echo a\x0cb\x1c\x85c\n",
        "0 4 * * * backup\r\n\r\n\n# end\r\n",
        "MAILTO=jörg\n".encode("latin-1"),
        "# nightlane other /elsewhere\n\n\n",
    ],
)
def test_lines_of_others_come_back_byte_for_byte(
    db: Database, table: Path, others: str | bytes
) -> None:
    """Only \\n ends a line; whatever else a person wrote, in whatever encoding, is theirs."""
    theirs = others if isinstance(others, bytes) else others.encode()
    table.write_bytes(theirs)

    switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)
    switch_on(db, {"interval_min": 20}, actor="test", now=NOON, install=True)
    installed = table.read_bytes()
    switch_off(db, actor="test", now=NOON)

    assert installed.startswith(theirs)
    assert installed.removeprefix(theirs).count(b"\n") == 1
    assert table.read_bytes() == theirs


def test_a_last_line_without_an_end_is_not_joined_with_ours(db: Database, table: Path) -> None:
    """Two lines in one would be a broken crontab."""
    table.write_text("0 4 * * * backup")

    switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)

    assert table.read_text().startswith("0 4 * * * backup\n*/30 ")


@pytest.mark.requirement("LN-01")
def test_arming_again_keeps_an_installed_line_up_to_date(db: Database, table: Path) -> None:
    """A new interval or cap without --install-cron must not leave the old line behind."""
    switch_on(db, {"interval_min": 30, "cap_usd": 5}, actor="test", now=NOON, install=True)

    switch_on(db, {"interval_min": 10, "cap_usd": 7}, actor="test", now=NOON)

    [line] = table.read_text().splitlines()
    assert line.startswith("*/10 ")
    found = policy.standing(db)
    assert found is not None
    assert (found.cap_usd, found.cron_line) == (7, line)


@pytest.mark.requirement("LN-01")
def test_the_line_alone_runs_the_queue_under_the_policy(db: Database, table: Path) -> None:
    """Run as cron would: a shell, an empty environment, another directory."""
    switch_on(db, {"interval_min": 30, "cap_usd": 5}, actor="test", now=NOON, install=True)
    number = enqueue(db, "tally", {"steps": 1}, actor="test")
    [line] = table.read_text().splitlines()

    done = subprocess.run(
        ["/bin/sh", "-c", line.split(None, 5)[5].replace(r"\%", "%")],
        env={"HOME": "/", "LOGNAME": "ada"},
        cwd="/",
        check=False,
        timeout=120,
    )

    assert done.returncode == 0
    assert jobs.get_job(db, number).state is State.SUCCEEDED


def test_a_crontab_that_cannot_be_written_leaves_everything_as_it_was(
    db: Database, table: Path
) -> None:
    """One line with the way out; nothing is armed."""
    (table.parent / "refuses").touch()

    with pytest.raises(cron.CrontabError) as refused:
        switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)

    assert "Permission denied" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert policy.standing(db) is None


def test_a_machine_without_a_crontab_says_so(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer of the board does the same work."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(cron.CrontabError, match=r"no crontab program.*cockpit serve"):
        switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)


def test_a_line_that_cannot_be_removed_does_not_keep_the_lane_armed(
    db: Database, table: Path
) -> None:
    """The policy goes first: what cron starts then only rescues."""
    switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)
    (table.parent / "refuses").touch()

    with pytest.raises(cron.CrontabError):
        switch_off(db, actor="test", now=NOON)

    found = policy.standing(db)
    assert found is not None
    assert not found.armed


@pytest.mark.parametrize(
    ("minutes", "expression"),
    [(1, "*/1 * * * *"), (30, "*/30 * * * *"), (60, "0 */1 * * *"), (1440, "0 0 * * *")],
)
def test_an_interval_becomes_five_fields(minutes: float, expression: str) -> None:
    """Only where cron means the same by it."""
    assert cron.expression(minutes) == expression


@pytest.mark.parametrize("minutes", [0.5, 7, 45, 90, 1000])
def test_an_interval_that_a_crontab_cannot_say_is_refused_only_where_it_must(
    db: Database, table: Path, minutes: float
) -> None:
    """*/45 would run at :00 and :45; the board's timer can do it."""
    with pytest.raises(ConfigError, match="interval_min: cannot be said in a crontab"):
        switch_on(db, {"interval_min": minutes}, actor="test", now=NOON, install=True)
    assert policy.standing(db) is None

    done = switch_on(db, {"interval_min": minutes}, actor="test", now=NOON)

    assert done.line is None
    assert not table.exists()


def test_no_password_gets_into_a_crontab(settings: WorkerSettings) -> None:
    """Every user of the machine may read what runs."""
    environment = {"NIGHTLANE_DATABASE_URL": "postgresql://ada:secret@host/db"}

    with pytest.raises(ConfigError) as refused:
        cron.line_for(settings, 30, environment=environment)

    assert "NIGHTLANE_DATABASE_URL" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_line_survives_names_that_a_shell_would_read(settings: WorkerSettings) -> None:
    """Spaces, quotes and the per cent sign, which ends a command in a crontab."""
    odd = settings.model_copy(update={"data_dir": Path("/data/it's 100% mine")})

    line = cron.line_for(
        odd, 30, environment={"FK_RL_RESIDENT_STOP_CMD": "sh -c 'kill $(cat pid)'"}
    )

    command = line.split(None, 5)[5].replace(r"\%", "%")
    said = subprocess.run(
        ["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert r"100\% mine" in line
    assert "100% mine" not in line


def test_the_next_start_is_read_from_the_line() -> None:
    """At most one interval away, on the minute."""
    line = f"{cron.expression(30)} something"

    moment = cron.next_run(line, NOON + 60)

    assert 0 < moment - NOON - 60 <= 1800
    assert moment % 1800 == 0


# --- the opening of a window, and who looks ---


@pytest.mark.requirement("LN-01")
def test_cron_looks_when_the_window_opens(db: Database, table: Path) -> None:
    """At every full hour it would never meet a window of 40 minutes; off takes both lines out."""
    terms = {"interval_min": 60, "window": "01:10-01:50", "days": "mon-fri"}

    done = switch_on(db, terms, actor="test", now=NOON, install=True)

    hourly, opening = table.read_text().splitlines()
    assert hourly.startswith("0 */1 * * * ")
    assert opening.startswith("10 1 * * 1,2,3,4,5 ")
    assert done.line is not None
    looks = cron.runs(done.line, NOON)
    within = done.standing.opens_at(NOON)
    assert within in itertools.islice(looks, 30)
    assert status(db, NOON).cautions == []
    switch_off(db, actor="test", now=NOON)
    assert table.read_text() == ""


@pytest.mark.parametrize(
    ("terms", "cautioned"),
    [
        ({"window": "01:50-02:10", "zone": "Asia/Kathmandu"}, True),
        ({"window": "01:10-02:50", "zone": "Asia/Kathmandu"}, False),
        ({"window": "22:00-07:00", "zone": "Asia/Kathmandu"}, False),
        ({}, False),
    ],
)
@pytest.mark.usefixtures("table")
def test_a_window_that_no_look_of_cron_meets_is_cautioned(
    db: Database, terms: dict[str, str], cautioned: bool
) -> None:
    """Cron goes by the machine's clock and cannot say an hour of another zone."""
    switch_on(db, {"interval_min": 60, **terms}, actor="test", now=NOON, install=True)

    said = status(db, NOON).cautions

    assert any("outside of the window" in text for text in said) is cautioned


def test_a_lane_that_nobody_looks_at_says_so(db: Database, table: Path) -> None:
    """No board, no crontab line, or one that somebody took out by hand."""
    looks._in_crontab.cache_clear()
    switch_on(db, {"interval_min": 30}, actor="test", now=NOON, install=True)
    by_cron = status(db, NOON)
    table.write_text(OTHERS)
    looks._in_crontab.cache_clear()
    gone = status(db, NOON)
    with looks.Timer(db.settings) as timer:
        timer.says(NOON + 17)
        served = status(db, NOON)
    ended = status(db, NOON)

    assert (by_cron.looked_at_by, by_cron.cautions) == (["cron"], [])
    assert by_cron.next_look_at == NOON + 1800
    assert (gone.looked_at_by, gone.next_look_at, gone.cautions) == ([], None, [looks.NOBODY])
    assert (served.looked_at_by, served.next_look_at) == (["serve"], NOON + 17)
    assert served.cautions == []
    assert ended.cautions == [looks.NOBODY]


@pytest.mark.parametrize(
    ("terms", "price", "said"),
    [
        ({"cap_usd": 5}, 0.0, "the cap of $5 can stop nothing: an hour of the lane costs $0"),
        ({"cap_usd": 5}, 1.0, None),
        ({"cap_gpu_hours": 60}, 0.0, "60 lane hours a day are more than a day has"),
        ({"cap_gpu_hours": 8}, 0.0, None),
    ],
)
def test_a_cap_that_can_stop_nothing_is_cautioned(
    db: Database, terms: dict[str, float], price: float, said: str | None
) -> None:
    """Whoever arms it believes that it is bounded."""
    db.settings = db.settings.model_copy(update={"price_usd_h": price})
    switch_on(db, terms, actor="test", now=NOON)

    cautions = [text for text in status(db, NOON).cautions if text != looks.NOBODY]

    assert [text[: len(said or "")] for text in cautions] == ([] if said is None else [said])
