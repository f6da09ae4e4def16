"""The main job as a user meets it: the real CLI, real processes, a real tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.conftest import Cockpit
from tests.deadline import eventually
from worker.db.connection import open_database
from worker.read import jobs
from worker.settings import WorkerSettings

QUICK = """\
base: embedded:qwen3-tiny
tuning: full
threads: 1
data: {source: "embedded:addition", limit: 600}
lr: 3e-4
kl_coef: 0.01
tasks_per_step: 8
group_k: 4
max_steps: 6
heldout_every: 3
heldout_temp: 0
force_headroom: true          # random weights solve nothing, and learn nothing
guard: {collapse: false}
"""
LONG = QUICK.replace("max_steps: 6", "max_steps: 5000")


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    path = tmp_path / "quick.yaml"
    path.write_text(QUICK)
    return path


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Long enough to be killed at leisure."""
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    return path


def _show(cockpit: Cockpit, job_id: int = 1) -> dict[str, Any]:
    done = cockpit("show", str(job_id), "--json")
    shown: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return shown


def _at_step(cockpit: Cockpit, step: int, process: subprocess.Popen[str]) -> Callable[[], bool]:
    """Looks into the table itself: a run of small steps is over before a command line starts."""

    def reached() -> bool:
        assert process.poll() is None, f"it ended: {process.communicate()}"
        if not (cockpit.data_dir / "nightlane.db").exists():
            return False
        with open_database(WorkerSettings()) as database:
            running = jobs.running(database)
        return bool(running) and (running[0].result.get("step") or 0) >= step

    return reached


def test_the_demo_ends_with_one_object(cockpit: Cockpit, quick: Path, port: int) -> None:
    """`cockpit demo --json` prints exactly the documented fields, and leaves nothing running."""
    done = cockpit("demo", "--json", "--recipe", str(quick), "--port", str(port))

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer) == {
        "job_id",
        "heldout_before",
        "heldout_after",
        "lift",
        "lift_ci95",
        "verdict",
        "steps",
        "seconds",
        "peak_gb",
        "url",
    }
    assert answer["steps"] == 6
    assert answer["url"] == f"http://127.0.0.1:{port}/jobs/1"


@pytest.mark.timeout(900)
@pytest.mark.requirement("RL-03", "RL-04")
def test_the_demos_recipe_gains_and_its_control_does_not(cockpit: Cockpit, port: int) -> None:
    """What `make demo` shows, and the same run with learning rate 0, which must not be praised."""
    arguments = ("demo", "--json", "--port", str(port))

    run = json.loads(cockpit(*arguments, timeout=800).stdout)
    few = ("--set", "lr=0", "--set", "max_steps=20")
    control = json.loads(cockpit(*arguments, *few, timeout=400).stdout)

    assert run["verdict"] == "gain"
    assert run["lift_ci95"][0] > 0
    assert run["heldout_after"] >= 0.70
    assert control["heldout_before"] == control["heldout_after"] == run["heldout_before"]
    assert (control["verdict"], control["lift"]) == ("no gain proven", 0.0)


def test_the_demo_starts_nobody_elses_job(cockpit: Cockpit, quick: Path, port: int) -> None:
    """A queue that waits for the night is not started by a show."""
    cockpit("enqueue", "rl_run", str(quick), "--name", "for the night")

    done = cockpit("demo", "--recipe", str(quick), "--port", str(port))

    assert done.returncode == 4
    assert "for the night" in done.stderr
    assert "--data-dir" in done.stderr
    assert _show(cockpit)["state"] == "queued"


def test_killing_the_web_process_does_not_stop_the_run(
    cockpit: Cockpit, long: Path, port: int
) -> None:
    """The run needs no page; the demo brings the pages back."""
    demo = cockpit.start("demo", "--recipe", str(long), "--port", str(port))
    eventually(_at_step(cockpit, 2, demo), "the run takes steps")
    engine = cockpit.processes("engine run")[0]
    web = cockpit.processes("serve")[0]

    web.kill()
    before = _show(cockpit)["result"]["step"]
    eventually(_at_step(cockpit, before + 2, demo), "the run goes on without the web process")

    assert engine.is_running()
    eventually(lambda: cockpit.processes("serve"), "the pages are started again")
    assert _stop(demo, signal.SIGINT) == 130


def test_a_killed_drain_leaves_a_job_that_the_next_drain_finishes(
    cockpit: Cockpit, tmp_path: Path
) -> None:
    """kill -9 takes the engine down too, loses no row, and costs at most the open step."""
    recipe = tmp_path / "run.yaml"
    recipe.write_text(QUICK.replace("max_steps: 6", "max_steps: 100"))
    assert cockpit("enqueue", "rl_run", str(recipe)).returncode == 0
    drain = cockpit.start("drain")
    eventually(_at_step(cockpit, 4, drain), "the run takes steps")
    engine = cockpit.processes("engine run")[0]

    drain.kill()
    drain.communicate()
    eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, "dead")
    assert _show(cockpit)["state"] == "running"
    second = cockpit("drain", timeout=300)

    assert second.returncode == 0, second.stderr
    shown = _show(cockpit)
    assert (shown["state"], shown["attempt"]) == ("succeeded", 2)
    resumed = [
        event["resumed_from"]
        for event in _events(Path(shown["run_dir"]))
        if event["type"] == "started" and event["attempt"] == 2
    ]
    assert resumed[0] >= 3


def test_a_killed_drain_inside_the_demo_is_followed_by_another(
    cockpit: Cockpit, tmp_path: Path, port: int
) -> None:
    """The watcher of a demo sees the rescue happen."""
    recipe = tmp_path / "run.yaml"
    recipe.write_text(QUICK.replace("max_steps: 6", "max_steps: 100"))
    demo = cockpit.start("demo", "--json", "--recipe", str(recipe), "--port", str(port))
    eventually(_at_step(cockpit, 4, demo), "the run takes steps")

    cockpit.processes("app.cli drain")[0].kill()
    out, err = demo.communicate(timeout=300)

    assert demo.returncode == 0, err
    assert "starting another" in err
    assert json.loads(out)["steps"] == 100


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_demo_leaves_no_process_and_a_job_that_resumes(
    cockpit: Cockpit, long: Path, port: int, how: signal.Signals
) -> None:
    """Ctrl-C is a pause: the engine checkpoints, the job waits, the next demo takes it up."""
    demo = cockpit.start("demo", "--recipe", str(long), "--port", str(port))
    eventually(_at_step(cockpit, 2, demo), "the run takes steps")

    assert _stop(demo, how) == 130
    assert cockpit.processes("app.cli") + cockpit.processes("engine") == []
    shown = _show(cockpit)
    assert shown["state"] == "queued"

    again = cockpit.start("demo", "--recipe", str(long), "--port", str(port))
    eventually(_at_step(cockpit, 2, again), "the same job goes on")
    assert _stop(again, signal.SIGINT) == 130
    started = [e for e in _events(Path(shown["run_dir"])) if e["type"] == "started"]
    assert [event["attempt"] for event in started] == [1, 2]
    assert started[1]["resumed_from"] >= 1


@pytest.mark.requirement("LN-08")
def test_an_operators_touch_stops_a_run_within_seconds(cockpit: Cockpit, long: Path) -> None:
    """`touch attempts/001/abort` is all it takes; the checkpoint stays."""
    cockpit("enqueue", "rl_run", str(long))
    drain = cockpit.start("drain")
    eventually(_at_step(cockpit, 2, drain), "the run takes steps")
    run_dir = Path(_show(cockpit)["run_dir"])

    (run_dir / "attempts/001/abort").touch()
    drain.communicate(timeout=20)

    assert _show(cockpit)["state"] == "aborted"
    assert list(run_dir.glob("checkpoints/step-*/complete.json"))


def test_a_second_drain_is_refused_with_the_holder_named(cockpit: Cockpit, long: Path) -> None:
    """One lane, one drain: the second says who holds it and ends with status 4."""
    cockpit("enqueue", "rl_run", str(long))
    first = cockpit.start("drain")
    eventually(_at_step(cockpit, 1, first), "the run takes steps")

    second = cockpit("drain")

    assert second.returncode == 4
    assert 'lane "test" is held by job 1' in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=30)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("base: embedded:qwen3-tiny\nlrr: 1\n", "lrr: is not a setting; did you mean lr?"),
        ("base: embedded:qwen3-tiny\ngroup_k: many\n", "group_k: "),
        ("base: embedded:qwen3-tiny\ndata: {limit: 42}\n", "under the floor corpus_min=100"),
        ("base: .\ndata: {source: 'embedded:addition'}\n", "is no model folder"),
        ("base: org/model\ndata: {source: nowhere.jsonl}\n", "data.source: cannot be read"),
        ("base: [\n", "is not valid YAML"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    cockpit: Cockpit, tmp_path: Path, text: str, word: str
) -> None:
    """Field, value, remedy; status 2; no row, no run directory, no traceback."""
    recipe = tmp_path / "bad.yaml"
    recipe.write_text(text)

    done = cockpit("enqueue", "rl_run", str(recipe))

    assert done.returncode == 2
    assert done.stdout == ""
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert json.loads(cockpit("jobs", "--json").stdout) == []
    assert list(cockpit.data_dir.glob("runs/*")) == []


def test_a_missing_recipe_is_a_usage_error(cockpit: Cockpit) -> None:
    """A file that is not there is named."""
    done = cockpit("enqueue", "rl_run", "nowhere.yaml")

    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_one_line_with_the_way_out(cockpit: Cockpit, port: int) -> None:
    """Two cockpits on one port: the second says which port and how to choose another."""
    first = cockpit.start("serve", "--port", str(port))
    eventually(lambda: _answers(port), "the first cockpit answers")

    second = cockpit("serve", "--port", str(port))

    assert second.returncode == 1
    assert str(port) in second.stderr
    assert "--port" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    assert _stop(first, signal.SIGTERM) in (0, -signal.SIGTERM, 143)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _stop(process: subprocess.Popen[str], how: signal.Signals) -> int:
    os.kill(process.pid, how)
    process.communicate(timeout=60)
    return process.returncode


def _events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
