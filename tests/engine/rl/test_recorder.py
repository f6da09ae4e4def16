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


@pytest.mark.requirement("UI-03")
@pytest.mark.requirement("UI-08")
def test_a_held_out_row_bears_its_question(tmp_path: Path) -> None:
    """Two runs with different tokenizers know by the prompt's text that a row is the same."""
    run = RunDir(tmp_path)
    events, trace = EventLog(run.events, 1), TraceWriter(run.trace, 1)
    config = RLRunConfig(base="embedded:qwen3-tiny")
    job = JobFile(
        job_id=1, kind="rl_run", config={}, seed=0, attempt=1, fence=1, cache_dir=str(tmp_path)
    )
    attempt = Attempt(run, run.attempt(1), job, config, events)
    store = CheckpointStore(run, attempt.warn)
    common = Recorder(attempt, store, resumed=None, keep=1)
    recorder = LoopRecorder(common, trace, config, save=Path.mkdir)
    rollout = Rollout("a", 0, (1,), (2,), (-0.5,), "8", False, 0, 0.0)
    verdict = Verdict(0.0, "8", Reason.WRONG)
    item = Scored(Question("a", "3+4=", "7"), rollout, verdict, success=False)

    recorder.record_gate("report", GateResult(0, [item], 0.2), selected=False)

    events.close()
    trace.close()
    text = (run.rollouts / "heldout-report-000000.jsonl").read_text()
    row = cast("dict[str, object]", json.loads(text))
    assert (row["prompt"], row["success"], row["reason"]) == ("3+4=", False, "wrong")
