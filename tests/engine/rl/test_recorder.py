"""The recorder's held-out rows: what a page needs to show and to pair them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from engine.contract.events import EventLog
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import JobFile, RunDir
from engine.contract.trace import TraceWriter
from engine.data.rows import Question
from engine.evaluate.gate import GateResult, Scored
from engine.rewards.adapter import Reason, Verdict
from engine.rl.recorder import LoopRecorder
from engine.run.checkpoint import CheckpointStore
from engine.run.recorder import Recorder
from engine.run.session import Attempt
from engine.sampling.base import Rollout


def _gated(folder: Path, question: Question, *, truncated: bool = False) -> dict[str, object]:
    """The line that a gate of one row leaves."""
    run = RunDir(folder)
    events, trace = EventLog(run.events, 1), TraceWriter(run.trace, 1)
    config = RLRunConfig(base="embedded:qwen3-tiny")
    job = JobFile(
        job_id=1, kind="rl_run", config={}, seed=0, attempt=1, fence=1, cache_dir=str(folder)
    )
    attempt = Attempt(run, run.attempt(1), job, config, events)
    store = CheckpointStore(run, attempt.warn)
    common = Recorder(attempt, store, resumed=None, keep=1)
    recorder = LoopRecorder(common, trace, config, save=Path.mkdir)
    rollout = Rollout("a", 0, (1,), (2,), (-0.5,), "8", truncated, 0, 0.0)
    verdict = Verdict(0.0, "8", Reason.WRONG)
    item = Scored(question, rollout, verdict, success=False)

    recorder.record_gate("report", GateResult(0, [item], 0.2), selected=False)

    events.close()
    trace.close()
    text = (run.rollouts / "heldout-report-000000.jsonl").read_text()
    return cast("dict[str, object]", json.loads(text))


@pytest.mark.requirement("UI-03")
@pytest.mark.requirement("UI-08")
def test_a_held_out_row_bears_its_question(tmp_path: Path) -> None:
    """Two runs with different tokenizers know by the prompt's text that a row is the same."""
    row = _gated(tmp_path, Question("a", "3+4=", "7"))

    assert (row["prompt"], row["success"], row["reason"]) == ("3+4=", False, "wrong")


@pytest.mark.requirement("EX-23")
def test_a_held_out_row_can_be_judged_again_from_its_line_alone(tmp_path: Path) -> None:
    """What is right, how the completion ended and by what results are split stand in it."""
    columns = {"level": "Level 3", "solution": "so 7", "type": "x" * 500, "subject": ["a"]}
    row = _gated(tmp_path, Question("a", "3+4=", "7", columns=columns), truncated=True)

    assert (row["gold"], row["finish_reason"]) == ("7", "length")
    assert row["columns"] == {"level": "Level 3"}
