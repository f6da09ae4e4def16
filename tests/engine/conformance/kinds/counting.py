"""The smallest kind: it counts its rows, gates and checkpoints. A new kind is written after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.contract.kind import Kind
from engine.run.checkpoint import CheckpointStore
from engine.run.proof import Check, Measured, prove
from engine.run.recorder import Gated, Recorder
from engine.run.report import ended, report_once, result_fields
from engine.run.session import Attempt
from engine.run.stop import Aborted, check_abort
from engine.verdict.verdicts import best_step


class Config(BaseModel):
    """Adds up the lengths of `rows`, one row a step, and gates every second step."""

    model_config = ConfigDict(extra="forbid")

    model: Path
    rows: Path
    max_steps: int = 6
    keep_checkpoints: int = 2


def run(attempt: Attempt) -> dict[str, Any]:
    """One attempt. Raises Aborted with the result so far once a checkpoint stands."""
    config = attempt.config
    assert isinstance(config, Config)
    store = CheckpointStore(attempt.run, attempt.warn)
    resumed = store.newest()
    attempt.begin(resumed, max_steps=config.max_steps)
    recorder = Recorder(attempt, store, resumed=resumed, keep=config.keep_checkpoints)
    counted: list[int] = [0] if resumed is None else resumed.state["counted"]
    rows = config.rows.read_text("utf-8").splitlines()
    stops: list[int] = [*attempt.stopped_before(resumed)]

    def save() -> None:
        step, scores = len(counted) - 1, recorder.gates("select")
        write = lambda folder: (folder / "counted.txt").write_text(str(counted))  # noqa: E731
        recorder.checkpoint(step, {"counted": counted}, write)
        recorder.keep_selected(best_step(scores), config.max_steps - step)

    def result() -> dict[str, Any]:
        card = recorder.card(recorder.gates("select"), dict(enumerate(counted)), stops)
        return result_fields(attempt, len(counted) - 1, 0.0) | {"aborted": False, "card": card}

    if resumed is None:
        save()
    try:
        prove(recorder, [Check("rows", "are empty", "fill", lambda: Measured(rows.count(""), 0))])
        for step in range(len(counted), config.max_steps + 1):
            check_abort()
            attempt.progress(phase="training", step=step)
            counted.append(counted[-1] + len(rows[step % len(rows)]))
            attempt.metric(step, {"counted": counted[step]})
            if step % 2 == 0:
                found = Gated(counted[step] % 7, n=1, ci95=(0.0, 7.0), temp=0.0)
                recorder.gate("select", step, found, lambda: [{"id": "a"}], selected=False)
            save()
    except Aborted as stop:
        stops.append(len(counted) - 1)
        stop.result = result() | {"aborted": True}
        raise
    scores = recorder.gates("select")
    best = best_step(scores) or 0
    make = lambda picked: {"published_step": picked}  # noqa: E731
    report, _ = report_once(store, best=best, scores=scores, make=make)
    recorder.let_go(best)
    return ended(attempt, config.max_steps, result() | report, None)


KIND = Kind(
    "counting", "Counts.", Config, f"{__name__}:run", lambda c: [*c.model.iterdir(), c.rows]
)
