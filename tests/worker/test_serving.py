"""The serving lane as the worker sees it: settings, the pre-flight, and what an engine is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from engine.contract.run_dir import RunDir
from engine.contract.serving import Serving
from tests.worker.conftest import DrainProcess
from worker.db.connection import Database
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.settings import WorkerSettings

StartDrain = Callable[..., DrainProcess]
SERVED = {"base": "embedded:qwen3-tiny", "rollout_backend": "vllm", "threads": 1}
ESTABLISHED = {
    "VLLM_URL": ("vllm_url", "http://127.0.0.1:8123/v1"),
    "LORA_NAME": ("lora_name", "night"),
    "GPU_UTIL": ("gpu_util", 0.4),
    "SERVE_CMD": ("serve_cmd", "docker exec box serve {base}"),
    "STOP_CMD": ("stop_cmd", "docker stop box"),
    "VLLM_BIN": ("vllm_bin", "/opt/vllm"),
}


@pytest.mark.requirement("LN-12")
def test_the_serving_lane_has_the_established_defaults() -> None:
    """What an engine is told when nobody set anything."""
    assert WorkerSettings().serving == Serving(
        url="http://localhost:8000/v1",
        lora_name="policy",
        gpu_util=0.55,
        program="vllm",
        serve_cmd=None,
        stop_cmd=None,
    )


@pytest.mark.requirement("LN-12")
@pytest.mark.parametrize("prefix", ["FK_RL_", "NIGHTLANE_"])
@pytest.mark.parametrize("name", ESTABLISHED)
def test_each_established_name_reaches_the_engine(
    monkeypatch: pytest.MonkeyPatch, prefix: str, name: str
) -> None:
    """Under its own prefix and under ours."""
    field, value = ESTABLISHED[name]
    monkeypatch.setenv(prefix + name, str(value))

    settings = WorkerSettings()

    assert getattr(settings, field) == value
    assert value in settings.serving.model_dump().values()


@pytest.mark.requirement("LN-12")
def test_our_own_name_counts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are set."""
    monkeypatch.setenv("FK_RL_VLLM_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("NIGHTLANE_VLLM_URL", "http://127.0.0.1:2/v1")

    assert WorkerSettings().vllm_url == "http://127.0.0.1:2/v1"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("VLLM_URL", "localhost:8000", "is no address of a server; write it like http://"),
        ("GPU_UTIL", "1.5", "less than or equal to 1"),
        ("LORA_NAME", "a b", "should match pattern"),
        ("SERVE_CMD", "serve 'it", "is no command: No closing quotation; close the quote"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    """When the worker starts, not at two in the morning."""
    monkeypatch.setenv(f"NIGHTLANE_{name}", value)

    with pytest.raises(ValidationError, match=said):
        WorkerSettings()


@pytest.mark.requirement("LN-04")
@pytest.mark.parametrize(
    ("setting", "value", "program"),
    [
        ("NIGHTLANE_VLLM_BIN", "/nowhere/vllm", "/nowhere/vllm"),
        ("NIGHTLANE_SERVE_CMD", "/nowhere/docker exec box serve", "/nowhere/docker"),
    ],
)
def test_a_served_run_without_its_program_waits_and_the_next_job_runs(
    db: Database,
    tally: Callable[..., int],
    start_drain: StartDrain,
    setting: str,
    value: str,
    program: str,
) -> None:
    """A clean deferral with the remedy; no engine was started and no attempt counted."""
    served, plain = enqueue(db, "rl_run", SERVED, actor="test"), tally()

    code, out, _ = start_drain(**{setting: value}).finish()

    assert (code, out) == (0, f"[({plain}, 'succeeded')]\n")
    waiting = jobs.get_job(db, served)
    assert (waiting.state, waiting.attempt) == (State.QUEUED, 0)
    assert waiting.waits_for is not None
    assert waiting.waits_for.reason == Reason.LANE_BIN_ABSENT
    assert f"{program} is not installed; install it, or set {setting}" in waiting.waits_for.detail


@pytest.mark.requirement("LN-04", "LN-12")
def test_a_serving_command_that_fails_ends_its_job_in_one_line_and_the_next_one_runs(
    db: Database,
    tally: Callable[..., int],
    start_drain: StartDrain,
) -> None:
    """The engine is told the operator's settings in job.json; a kind that serves nothing is not."""
    served, plain = enqueue(db, "rl_run", SERVED, actor="test"), tally()
    command = f"{sys.executable} -c 'raise SystemExit(\"no GPU here\")'"

    code, out, _ = start_drain(
        FK_RL_SERVE_CMD=command, FK_RL_VLLM_URL="http://127.0.0.1:9/v1"
    ).finish(timeout=240)

    assert (code, out) == (0, f"[({served}, 'failed'), ({plain}, 'succeeded')]\n")
    failed = jobs.get_job(db, served)
    assert failed.cause == "CONFIG"
    assert failed.error is not None
    assert "ended with status 1 before it was healthy: no GPU here (got " in failed.error
    assert "\n" not in failed.error
    assert _told(db, served)["serve_cmd"] == command
    assert _told(db, plain) is None


def _told(db: Database, number: int) -> dict[str, str]:
    job_file = RunDir(db.settings.runs_dir / str(number)).attempt(1).job_file
    told: dict[str, str] = json.loads(job_file.read_bytes())["serving"]
    return told
