"""What one format came to: asked every row, and compared with the 16-bit model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.contract.asked import asked
from engine.contract.intervals import compare
from engine.contract.jsonl import write_rows
from engine.contract.kinds.requant import RequantConfig
from engine.evaluate.bench import EvalUnit
from engine.evaluate.scores import Line, scores
from engine.models.policy import Policy
from engine.run.session import Attempt
from engine.sampling.decoding import Way, take_way, way_of


def measure(
    attempt: Attempt,
    policy: Policy,
    unit: EvalUnit,
    *,
    label: str,
    place: Path,
    step: int,
    way: str | None,
) -> dict[str, Any]:
    """Ask a model every row: its completions, its score as an event, and what is shown of it.

    `label`: what its weights are stored as; `place`: where it stands; `step`: of this job; `way`:
    how the 16-bit model was decoded, None for that one. Raises Aborted while sampling or judging.
    """
    config = attempt.config
    assert isinstance(config, RequantConfig)
    if way is not None:
        take_way(policy, Way(way))
    unit = replace(unit, split=f"{unit.split}-{label}")
    found, speed = _answered(policy, unit)
    facts = _facts(unit, config, label=label, path=str(place))
    [score] = scores(facts, found, unit.worth, unit.samples, weights=unit.weights)
    file = f"heldout-{score.split}-{score.step:06d}.jsonl"
    write_rows(attempt.run.rollouts / file, found)
    attempt.events.write("score", step=step, score=score.model_dump(mode="json"))
    attempt.metric(step, {"requant/score": score.score})
    return {
        "format": label,
        "checkpoint": score.checkpoint,
        "path": str(place),
        "way": way_of(policy).value,
        "speed": round(speed, 1),
        "outcomes": [line["success"] for line in found],
        **{name: getattr(score, name) for name in ("score", "low", "high", "n", "truncated")},
    }


def _answered(policy: Policy, unit: EvalUnit) -> tuple[list[Line], float]:
    """One completion of each row, and the tokens a second that they were drawn with."""
    way_of(policy)  # tried before the clock runs
    began = time.monotonic()
    groups = unit.sampler(policy, unit.prompts(policy))(unit.rows, 1)
    seconds = time.monotonic() - began
    tokens = sum(len(one.completion_ids) for group in groups for one in group)
    pairs = zip(unit.rows, groups, strict=True)
    return [line for row, group in pairs for line in unit.judged(row, group)], tokens / seconds


def beside(before: Mapping[str, Any], after: Mapping[str, Any], unit: EvalUnit) -> dict[str, Any]:
    """Row by row: how a format's score differs from that of the 16-bit model."""
    questions = [asked(row.prompt) for row in unit.rows]
    found = compare(before["outcomes"], after["outcomes"], questions)
    return {
        "lift": found.lift,
        "ci95": list(found.ci95),
        "p_value": found.p_value,
        "gained": found.gained,
        "lost": found.lost,
        "paired": found.n,
    }


def _facts(unit: EvalUnit, config: RequantConfig, *, label: str, path: str) -> dict[str, Any]:
    """What a score says beside its numbers (`BenchScore`)."""
    run = config.run
    return {
        "checkpoint": f"{_called(config)} {label}",
        "path": path,
        "base": config.base,
        "run": int(run.root.name) if run is not None and run.root.name.isdecimal() else None,
        "step": config.step,
        "format": label,
        "bench": unit.name,
        "split": unit.split,
        "shots": unit.shots,
        "max_new_tokens": unit.max_new_tokens,
        "chat_template": not unit.prompting.skip_chat_template,
        "bench_hash": unit.hash,
        "data_hash": unit.data_hash,
    }


def _called(config: RequantConfig) -> str:
    """What people call the checkpoint: its step in its run, else its own name."""
    if config.checkpoint is not None:
        return f"step {config.step}"
    return (config.adapter_init or config.base).rpartition("/")[2]


_INSIDE = frozenset({"outcomes", "speed", "way"})
"""What is compared or handed on, and not shown."""


def table_of(
    config: RequantConfig, unit: EvalUnit, measured: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """For the result and the run card: the 16-bit model, then each format."""
    return {
        "of": None if config.run is None else str(config.run.root),
        "bench": unit.name,
        "formats": [{k: v for k, v in one.items() if k not in _INSIDE} for one in measured],
    }
