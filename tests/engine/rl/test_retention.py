"""Checkpoints that a gate scored stay until the report, while the disk has room for them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from engine.contract.evaluate.watching import Awaited, tell_awaited
from engine.contract.events import Event
from engine.contract.run_dir import RunDir, complete_checkpoints
from engine.rl.rl_run import run as rl_run
from engine.run import retention
from engine.run.report import report_once
from engine.run.session import Attempt

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]


class _Disk(NamedTuple):
    free: int


@pytest.fixture
def at_report(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The checkpoints that stand when the report begins, a list for each run."""
    seen: list[list[int]] = []

    def watched(store: Any, **asked: Any) -> Any:
        seen.append(sorted(store.complete()))
        return report_once(store, **asked)

    monkeypatch.setattr("engine.rl.report.report_once", watched)
    return seen


@pytest.fixture
def gated(recipe: dict[str, Any]) -> dict[str, Any]:
    return recipe | {"max_steps": 8, "heldout_every": 2, "keep_checkpoints": 1, "save_every": 1}


def _left(run: RunDir) -> list[int]:
    return [step for step, _ in complete_checkpoints(run)]


def test_every_checkpoint_that_a_gate_scored_stands_until_the_report(
    gated: dict[str, Any],
    at_report: list[list[int]],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """After it those of `keep_checkpoints`, step 0 and the picked one are left."""
    run = new_attempt(gated)
    result = rl_run(open_newest(run))

    assert at_report == [[0, 2, 4, 6, 8]]
    assert set(_left(run)) == {0, result["selected_step"], 8}
    assert "CHECKPOINT_GAP" not in {event["code"] for event in events(run, "note")}


def _awaits(run: RunDir, every: int, *scored: int) -> None:
    """As the worker writes it."""
    tell_awaited(run, [Awaited(every, scored)])


def test_checkpoints_that_wait_to_be_scored_stay_after_the_report_too(
    gated: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Those that have their scores go as all others do."""
    run = new_attempt(gated)
    _awaits(run, 3, 3)
    result = rl_run(open_newest(run))

    assert set(_left(run)) == {0, 6, 8, result["selected_step"]}


def test_checkpoints_that_are_gone_before_they_were_scored_are_said(
    gated: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk would not hold one more."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Disk(retention.FREE_BYTES - 1))
    run = new_attempt(gated)
    _awaits(run, 1)
    rl_run(open_newest(run))

    said = [event["text"] for event in events(run, "note") if event["code"] == "CHECKPOINT_GAP"]
    assert any("step 1 " in text or "steps 1 " in text for text in said if "scored:" in text)
    assert 1 not in _left(run)


def test_where_the_disk_would_not_hold_them_the_best_and_the_last_stay_and_it_is_said(
    gated: dict[str, Any],
    at_report: list[list[int]],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Disk(retention.FREE_BYTES - 1))
    run = new_attempt(gated)
    result = rl_run(open_newest(run))

    assert at_report == [sorted({0, result["selected_step"], 8})]
    gaps = [event["text"] for event in events(run, "note") if event["code"] == "CHECKPOINT_GAP"]
    said = {int(step) for text in gaps for step in re.findall(r"\d+", text.partition("were")[0])}
    assert said == {2, 4, 6} - {result["selected_step"]}


def test_room_is_counted_for_the_gates_that_are_to_come(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").write_bytes(b"x" * 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Disk(retention.FREE_BYTES + 5000))

    assert retention.gated_fit(tmp_path, coming=4)
    assert not retention.gated_fit(tmp_path, coming=5)
