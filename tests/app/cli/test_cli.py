"""The command line: data on standard output, one line a mistake, exit codes that mean something."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sqlalchemy import update

from app.cli.output import fitted, print_table
from engine.contract.errors import ConfigError
from engine.contract.hub import in_hub_cache
from tests.app.conftest import Said
from tests.app.night import CONFIG, night, queue
from tests.door import bearer
from worker.db.connection import Database
from worker.db.tables import job
from worker.read import jobs
from worker.settings import WorkerSettings

Cockpit = Callable[..., Said]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def test_enqueue_prints_the_number_of_the_job_and_nothing_else(
    cockpit: Cockpit, recipe: Path, db: Database
) -> None:
    """`JOB=$(cockpit enqueue …)` works; the sentence for people goes to standard error."""
    said = cockpit("enqueue", "rl_run", str(recipe), "--set", "warmup.lr=1e-3", "--name", "tonight")

    job = jobs.get_job(db, int(said.out))
    assert (said.code, job.name, job.config["warmup"]["lr"]) == (0, "tonight", 1e-3)
    assert "cockpit drain" in said.err


def test_enqueue_reads_standard_input(cockpit: Cockpit) -> None:
    """`-` as the file."""
    said = cockpit("enqueue", "rl_run", "-", "--json", stdin=b"base: embedded:qwen3-tiny\n")

    assert json.loads(said.out) == {"job_id": 1, "repeated": False}


def test_a_dry_run_prints_the_resolved_config_and_writes_nothing(
    cockpit: Cockpit, recipe: Path, db: Database
) -> None:
    """Every default written out, as YAML that can be sent again."""
    said = cockpit("enqueue", "rl_run", str(recipe), "--dry-run")

    resolved = yaml.safe_load(said.out)
    assert resolved["data"]["source"] == "embedded:addition"
    assert jobs.list_jobs(db) == []


@pytest.mark.requirement("JB-02")
@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("enqueue", "rl_run", "RECIPE", "--set", "lrr=1"), 2, "did you mean lr?"),
        (("enqueue", "rl_run", "RECIPE", "--set", "group_k=1"), 2, "(got 1); use a larger value"),
        (("enqueue", "rl_run", "RECIPE", "--set", "lr"), 2, "write --set key=value"),
        (("enqueue", "rl_run", "RECIPE", "--set", "lr.x=1"), 2, "lr is a value"),
        (("enqueue", "rl_run", "RECIPE", "--set", "lr=[1"), 2, "is not valid YAML"),
        (("enqueue", "rl_run", "RECIPE", "--name", ""), 2, "name: must have"),
        (("enqueue", "rl_runn", "RECIPE"), 2, "did you mean rl_run?"),
        (("enqueue", "rl_run", "/no/such.yaml"), 2, "FILE: cannot be read: No such file"),
        (("enqueue", "rl_run", "/"), 2, "FILE: cannot be read: Is a directory"),
        (("kinds", "nope"), 2, "kind: is not a kind of job"),
        (("jobs", "--state", "asleep"), 2, "--state: is no state"),
        (("jobs", "--limit", "0"), 2, "Invalid value for '--limit'"),
        (("show", "7"), 3, "job 7 does not exist"),
        (("logs", "7"), 3, "job 7 does not exist"),
        (("show", "x"), 2, "Invalid value"),
        (("nope",), 2, "No such command"),
        (("serve", "--host", "192.0.2.1"), 4, "can be reached from other machines"),
        (("serve", "--port", "99999"), 2, "Invalid value for '--port'"),
    ],
)
def test_a_mistake_is_explained_in_a_line_with_its_exit_code(
    cockpit: Cockpit, recipe: Path, db: Database, arguments: tuple[str, ...], code: int, line: str
) -> None:
    """Field, value and remedy; nothing on standard output; nothing written; no traceback."""
    said = cockpit(*(str(recipe) if part == "RECIPE" else part for part in arguments))

    assert (said.code, said.out) == (code, "")
    assert line in said.err
    assert "Traceback" not in said.err
    assert jobs.list_jobs(db) == []


def test_every_problem_of_a_config_has_a_line_of_its_own(cockpit: Cockpit, recipe: Path) -> None:
    """One round is enough to correct them all."""
    said = cockpit("enqueue", "rl_run", str(recipe), "--set", "a=1", "--set", "lr=x")

    assert len(said.err.strip().splitlines()) == 2


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        *(("LEASE_S", told) for told in ("soon", "inf", "nan", "1_5", "015", "yes", "1e999")),
        *(("MAX_ATTEMPTS", told) for told in ("3.0", "0x3", "1_0", "true")),
        ("OOM_FLOOR_GB", "٤"),
    ],
)
def test_a_wrong_setting_of_the_program_names_its_variable(
    cockpit: Cockpit, monkeypatch: pytest.MonkeyPatch, variable: str, told: str
) -> None:
    """The environment is a door too."""
    monkeypatch.setenv(f"NIGHTLANE_{variable}", told)

    said = cockpit("jobs")

    assert said.code == 2
    assert said.err.startswith(f"cockpit: NIGHTLANE_{variable}: {told!r} is not a")


@pytest.mark.parametrize(
    "words",
    [
        *(("budget", "price", given) for given in ("1_000", "inf", "nan", "٣", "0x1", "yes")),
        ("budget", "add", "1_0"),
        ("autonomy", "on", "--cap-usd", "1_0"),
        ("autonomy", "on", "--interval-min", "inf"),
        ("autonomy", "on", "--max-failures", "2.0"),
        ("enqueue", "rl_run", "-", "--priority", "1_0"),
        ("enqueue", "rl_run", "-", "--after", "1_0"),
        ("cancel", "1_0"),
        ("cancel", "--sweep", "٣"),
        ("show", "01"),
        ("jobs", "--limit", "1e1"),
        ("compare", "1", "2_0"),
        ("export-sft", "0x1"),
        ("serve", "--port", "80_80"),
    ],
)
def test_a_number_on_the_command_line_is_one_in_plain_digits(
    cockpit: Cockpit, words: tuple[str, ...]
) -> None:
    """As in a config and in a request."""
    said = cockpit(*words)

    assert (said.code, "number; write it in" in said.err) == (2, True)


def test_a_user_without_a_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody set the variable whose default leads nowhere; a cache of models is not looked for."""
    monkeypatch.delenv("NIGHTLANE_DATA_DIR")
    for name in ("HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])

    with pytest.raises(ConfigError) as refused:
        WorkerSettings()

    assert str(refused.value) == (
        "NIGHTLANE_DATA_DIR: is not set, and this user has no home directory; "
        "set it to a writable place"
    )
    assert not in_hub_cache("org/model")


def test_a_file_that_is_no_database_is_refused(cockpit: Cockpit, settings: WorkerSettings) -> None:
    """It is left as it is."""
    settings.data_dir.mkdir(parents=True)
    (settings.data_dir / "nightlane.db").write_text("my diary, not a database" * 50)

    said = cockpit("jobs")

    assert said.code == 1
    assert "nightlane.db" in said.err
    assert "Traceback" not in said.err
    assert "my diary" in (settings.data_dir / "nightlane.db").read_text()


def test_the_data_directory_may_stand_before_or_behind_the_command(
    cockpit: Cockpit, recipe: Path, tmp_path: Path
) -> None:
    """Both spellings are the same place."""
    place = str(tmp_path / "elsewhere")
    cockpit("--data-dir", place, "enqueue", "rl_run", str(recipe))

    assert [
        job["id"] for job in json.loads(cockpit("jobs", "--json", "--data-dir", place).out)
    ] == [1]
    assert cockpit("jobs", "--json").out.strip() == "[]"


def test_jobs_and_show_tell_how_a_run_came_out(cockpit: Cockpit, db: Database) -> None:
    """The same words as on the pages."""
    queue(db, name="tonight")
    with night(db) as lane:
        attempt = lane.start()
        attempt.log("one\ntwo\nthree\n")
        attempt.step(40, 0.8)
        attempt.finish()

    assert "tonight  40/40  55.2 % → 81.0 %  gain" in cockpit("jobs").out
    assert (
        "55.2 % → 81.0 % (+25.8 points, 95 % interval +21.8 to +29.8, 500 rows)"
        in cockpit("show", "1").out
    )
    assert json.loads(cockpit("show", "1", "--json").out)["result"]["verdict"] == "gain"
    assert cockpit("logs", "1", "-n", "2").out == "two\nthree\n"


def test_show_tells_a_runs_alerts(cockpit: Cockpit, db: Database) -> None:
    """Who looks from a terminal reads in the morning what the run's page says."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        told = {"code": "ENTROPY_COLLAPSED", "text": "entropy fell\x1b[2J to 0.01", "step": 20}
        attempt.write("progress", alerts=[told])
        attempt.write("progress", step="one")
        attempt.step(20, 0.9)
        shown = cockpit("show", "1").out
        attempt.finish()

    assert "\nalert         ENTROPY_COLLAPSED at step 20: entropy fell�[2J to 0.01\n" in shown
    assert "\nalert         EVENTS_LEFT_OUT: an event of this run was left out, because" in shown


def test_a_job_whose_drain_died_is_not_called_running_alone(cockpit: Cockpit, db: Database) -> None:
    """The board calls it stale too; who looks at the job reads what takes it over."""
    queue(db, name="tonight")
    with night(db) as lane:
        lane.start()
        fresh = cockpit("jobs").out, cockpit("show", "1").out
        with db.write_tx() as conn:
            conn.execute(update(job).values(heartbeat_at=time.time() - 3600))
        stale = cockpit("jobs").out, cockpit("show", "1").out

    assert "stale" not in "".join(fresh)
    assert "1   running, stale  rl_run  tonight" in stale[0]
    said = "state         running, stale: no heartbeat for 1 h; the next drain takes the job over: "
    assert f"\n{said}cockpit drain\n" in stale[1]


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_reindex_without_events_is_refused(cockpit: Cockpit, db: Database, left: str) -> None:
    """Refused: 4; the verdict stands as before."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.finish()
    attempt.run.events.unlink()
    if left == "an empty file":
        attempt.run.events.touch()

    said = cockpit("reindex", "1")

    assert (said.code, said.out) == (4, "")
    assert said.err.startswith(f"cockpit: job 1 has no events at {attempt.run.events}; its result")
    assert jobs.get_job(db, 1).result["verdict"] == "gain"


def test_a_terminal_is_not_moved_by_what_others_wrote(cockpit: Cockpit, db: Database) -> None:
    """An escape sequence in a name stays visible and does nothing."""
    queue(db)
    with db.write_tx() as conn:  # as names were taken in once
        conn.execute(update(job).values(name="\x1b[2Jgone"))

    assert "\x1b" not in cockpit("jobs").out + cockpit("show", "1").out


def test_a_list_fits_the_terminal_and_a_pipe_gets_all_of_it(
    db: Database, settings: WorkerSettings
) -> None:
    """A name of 120 wide characters on a terminal of 40 columns: cut by what is shown, and seen."""
    name = "夜間実行" * 30
    queue(db, name=name)
    command = [sys.executable, "-m", "app.cli", "jobs"]
    environment = os.environ | {"NIGHTLANE_DATA_DIR": str(settings.data_dir), "COLUMNS": ""}

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 40))
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as shown:
        os.close(theirs)
        text = b""
        with suppress(OSError):  # the end of a terminal is an error on Linux
            while read := os.read(ours, 65_536):
                text += read
        assert shown.wait(60) == 0
    os.close(ours)
    piped = subprocess.run(command, capture_output=True, env=environment, check=True)

    lines = text.decode().splitlines()
    assert len(lines) == 2
    assert all(cell_len(line) <= 40 for line in lines)
    assert "…" in lines[1]
    assert "夜" in lines[1]
    assert name in piped.stdout.decode()


@given(st.lists(st.integers(0, 300), min_size=1, max_size=9), st.integers(1, 400))
def test_columns_give_up_no_more_than_they_must(widths: list[int], room: int) -> None:
    """The widest give first, down to four cells; none that has fewer gives any."""
    found = fitted(widths, room)

    assert all(now >= 4 or now == was for was, now in zip(widths, found, strict=True))
    assert all(now <= was for was, now in zip(widths, found, strict=True))
    if sum(widths) <= room:
        assert found == widths
    elif max(found) > 4:
        assert sum(found) == room
        cut = [now for was, now in zip(widths, found, strict=True) if now < was]
        assert max(cut) - min(cut) <= 1
        assert max(found) <= max(cut) + 1


def test_a_table_stays_in_its_columns_under_wide_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A name of two cells a character moves nothing behind it."""
    print_table(("name", "state"), [("夜間の実行", "queued"), ("plain", "done")])

    head, wide, plain = capsys.readouterr().out.splitlines()
    assert cell_len(wide.partition("queued")[0]) == head.index("state") == plain.index("done")


def test_every_line_of_a_setting_is_indented_under_its_name(cockpit: Cockpit) -> None:
    """A second paragraph is no setting of its own."""
    lines = cockpit("kinds", "rl_run").out.splitlines()

    assert all(line.startswith("    ") or "  (" in line for line in lines if line)


def test_a_second_drain_is_refused_with_who_holds_the_lane(cockpit: Cockpit, db: Database) -> None:
    """Refused by policy: 4; the message says what to do."""
    queue(db)
    with night(db) as lane:
        lane.start()

        said = cockpit("drain")

    assert said.code == 4
    assert "is held by" in said.err


def test_a_drain_without_work_ends_at_once(cockpit: Cockpit, db: Database) -> None:
    """It says that there was nothing, and succeeds."""
    said = cockpit("drain", "--json")

    nothing: dict[str, object] = {"rescued": [], "ran": [], "put_off": []}
    assert json.loads(said.out) == nothing | {"stopped": False, "paused": False, "withheld": None}


def test_looking_at_jobs_loads_neither_torch_nor_the_web(settings: WorkerSettings) -> None:
    """`--help` and `jobs` are typed all day; they stay light."""
    heavy = {"torch", "transformers", "fastapi", "starlette", "uvicorn", "alembic", "httpx"}
    look = (
        "import sys\nfrom app.cli.app import main\n"
        "sys.argv = ['cockpit', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    subprocess.run(
        [sys.executable, "-m", "app.cli", "db", "upgrade"], check=True, capture_output=True
    )
    for arguments in (["--help"], ["jobs"]):
        child = subprocess.run(
            [sys.executable, "-c", look, *arguments], capture_output=True, text=True, check=True
        )
        loaded = {name.strip("' ") for name in child.stderr.splitlines()[-1].strip("[]").split(",")}
        assert not heavy & loaded, arguments


@pytest.mark.parametrize("arguments", [["jobs"], ["jobs", "--json"], ["report"], ["show", "1"]])
def test_an_output_without_room_is_one_line(db: Database, arguments: list[str]) -> None:
    """No traceback, neither at the write nor when Python ends."""
    queue(db)
    with Path("/dev/full").open("wb") as full:
        child = subprocess.run(
            [sys.executable, "-m", "app.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert child.returncode == 1
    assert child.stderr == (
        "cockpit: the output cannot be written: No space left on device; "
        "make room for it, or send it elsewhere\n"
    )


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_what_a_terminal_cannot_show_is_a_question_mark(db: Database, encoding: str) -> None:
    """A table stands; JSON is whole, with escapes."""
    number = queue(db, name="夜 → α")
    environment = os.environ | {"PYTHONIOENCODING": encoding}

    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "app.cli", *arguments]
        child = subprocess.run(command, env=environment, capture_output=True, check=True)
        return child.stdout.decode(encoding)

    assert "? ? ?" in said("jobs")
    assert "? ? ?" in said("show", str(number))
    assert json.loads(said("show", str(number), "--json"))["name"] == "夜 → α"


def test_a_tag_that_nobody_could_type_is_refused(cockpit: Cockpit, db: Database) -> None:
    """A byte that is no text reaches no database."""
    said = cockpit("jobs", "--tag", "\udcff")

    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "a tag is 1 to" in said.err


class Served:
    """`cockpit serve` as a real process."""

    def __init__(self, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().strip()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()


@pytest.mark.parametrize("told", ["box.local, night.example", '["box.local", "night.example"]'])
def test_a_running_cockpit_answers_to_the_names_it_was_told(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """As people write a list, and as JSON; every other name is refused with the variable's name."""
    monkeypatch.setenv("NIGHTLANE_ALLOWED_HOSTS", told)
    with Served() as served, httpx.Client(trust_env=False) as browser:
        answers = {
            host: browser.get(f"{served.url}healthz", headers={"host": host})
            for host in ("box.local", "night.example:8765", "other.example")
        }

    assert {host: answer.status_code for host, answer in answers.items()} == {
        "box.local": 200,
        "night.example:8765": 200,
        "other.example": 421,
    }
    assert "add the name to NIGHTLANE_ALLOWED_HOSTS" in answers["other.example"].text


@pytest.mark.parametrize("told", ["http://box.local", "box.local:8765", '["a b"]', "[1]"])
def test_a_name_that_no_host_has_is_one_line(
    cockpit: Cockpit, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Before anything listens."""
    monkeypatch.setenv("NIGHTLANE_ALLOWED_HOSTS", told)

    said = cockpit("serve", "--port", "0")

    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("cockpit: NIGHTLANE_ALLOWED_HOSTS")


@pytest.mark.parametrize(
    "name", ["DATA_DIR", "WORK_DIR", "LOCK_DIR", "RESIDENT_STOP_CMD", "SERVE_CMD", "POLL_S"]
)
def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As a line `NIGHTLANE_DATA_DIR=` of a file of variables means it; never the current folder."""
    for prefix in ("NIGHTLANE", "FK_RL"):
        monkeypatch.delenv(f"{prefix}_{name}", raising=False)
    unset = WorkerSettings()
    for prefix in ("NIGHTLANE", "FK_RL"):
        monkeypatch.setenv(f"{prefix}_{name}", "")

    assert WorkerSettings() == unset


@pytest.mark.parametrize("place", ["before", "behind"])
def test_an_empty_data_directory_is_no_place(cockpit: Cockpit, place: str) -> None:
    """It would be the folder that the command happens to run in."""
    option = ("--data-dir", "")

    said = cockpit(*option, "jobs") if place == "before" else cockpit("jobs", *option)

    assert said.code == 2
    assert "it is empty; name a directory, or leave the option out" in said.err


def test_the_head_of_the_event_stream_is_an_answer_of_its_own(db: Database) -> None:
    """It ends with its headers; the connection answers the next question."""
    client = httpx.Client(headers=bearer(db), trust_env=False, timeout=10)
    with Served() as served, client as browser:
        head = browser.head(f"{served.url}api/v1/stream")
        after = browser.get(f"{served.url}healthz")

    assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    assert after.status_code == 200


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_within_three_seconds_although_streams_are_open(
    db: Database, sign: signal.Signals
) -> None:
    """An open page must not keep the process alive, and ending leaves no traceback."""
    with (
        Served() as served,
        httpx.Client(headers=bearer(db), trust_env=False) as browser,
        browser.stream("GET", f"{served.url}api/v1/stream") as stream,
    ):
        next(stream.iter_lines())
        begun = time.monotonic()
        os.kill(served.child.pid, sign)
        _, err = served.child.communicate(timeout=10)
        took = time.monotonic() - begun

    assert took < 3
    assert "Traceback" not in err


def test_a_port_in_use_is_said_with_the_way_out(cockpit: Cockpit) -> None:
    """Nothing listens half; the remedy is the option's name."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        said = cockpit("serve", "--port", str(port))

    assert said.code == 1
    assert said.err == (
        f"cockpit: port: 127.0.0.1:{port} cannot be used: address already in use; "
        "choose another with --port\n"
    )


@pytest.mark.requirement("AP-06")
def test_a_job_file_is_refused_from_its_size_and_its_kind(cockpit: Cockpit, tmp_path: Path) -> None:
    """Two gigabytes are not read to find that they are too many; nobody waits at a pipe."""
    large, pipe, deep = (tmp_path / name for name in ("large.yaml", "pipe", "deep.yaml"))
    large.touch()
    os.truncate(large, 2 * 10**9)
    os.mkfifo(pipe)
    deep.write_text("base: " + "[" * 200_000)
    words = {
        large: "has 2 GB; at most 262 kB are read",
        pipe: "is a pipe, and no regular file",
        Path("/dev/zero"): "is a device, and no regular file",
        deep: "is not valid YAML",
    }

    for path, problem in words.items():
        said = cockpit("enqueue", "rl_run", str(path))
        assert (said.code, problem in said.err) == (2, True), said.err
    said = cockpit("enqueue", "rl_run", "-", stdin=b"#" * 300_000)
    assert (said.code, "has more than 262 kB" in said.err) == (2, True)


@pytest.mark.requirement("AP-06")
def test_a_few_of_very_many_problems_are_told(cockpit: Cockpit) -> None:
    """At this door as at the others, and how many more there are."""
    text = "base: org/model\n" + "".join(f"unknown_setting_{n}: {n}\n" for n in range(8_000))

    said = cockpit("enqueue", "rl_run", "-", stdin=text.encode())

    assert said.code == 2
    assert len(said.err.splitlines()) == 21
    assert "and 7980 more problems; correct these first" in said.err
