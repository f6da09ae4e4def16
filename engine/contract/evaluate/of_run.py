"""An `eval_rerun` that asks and judges as the run did that a checkpoint is from. Knows no queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.contract.base_model import checkpoint_origin
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.evaluate.benches import EvalBench
from engine.contract.paths import located
from engine.contract.sources.questions import SourceConfig

EVALUATION = "eval_rerun"
"""The kind that scores."""

_AS_TRAINED = (
    "prompting",
    "sampling",
    "temp",
    "max_new_tokens",
    "reward_timeout_s",
    "success_threshold",
)
"""Settings of a run that mean the same here."""


def as_its_run(checkpoint: str, source: str, *, verifier: str | None) -> dict[str, Any]:
    """What `cockpit passk` queues for one source; without a run `base` and `data.source` alone.

    Where the run read this source, its fields are read as there. Raises ConfigError where the run
    was paid by several rewards and nobody says which one calls a row solved.
    """
    run = config_of_run(checkpoint)
    raw: dict[str, Any] = {"base": checkpoint, "data": {"source": source}, **as_trained(run)}
    rows = next((rows for rows in _sources(run) if _is_same(rows.get("source"), source)), {})
    named = SourceConfig.model_fields.keys() - {"source", "limit"}
    raw["data"] |= {name: rows[name] for name in sorted(named) if name in rows}
    if rows.get("template") is not None:
        raw["prompting"] = {**raw["prompting"], "template": rows["template"]}
        raw["prompting"].pop("question_format", None)
    judge = verifier or rows.get("verifier") or judge_of(run)
    return raw if judge is None else raw | {"verifier": judge}


def as_trained(run: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an `eval_rerun` by which a run asked."""
    return {name: run[name] for name in _AS_TRAINED if name in run}


def evaluation_of(
    run: Mapping[str, Any], evaluate: Mapping[str, Any], folder: Path, steps: Sequence[int]
) -> dict[str, Any]:
    """The config that scores steps of the run in `folder` as its `evaluate` says."""
    asked = {name: value for name, value in as_trained(run).items() if name != "temp"}
    benches = judged_as(run, [EvalBench.model_validate(one) for one in evaluate["benches"]])
    return {
        **asked,
        "base": str(folder),
        "checkpoints": [*steps],
        "benches": [bench.model_dump(mode="json") for bench in benches],
    }


def as_asked(checkpoint: str, benches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Benches, and the settings by which the run of a checkpoint asked. One that says no verifier
    has that run's. Raises ConfigError where the run had several.
    """
    run = config_of_run(checkpoint)
    asked = {name: value for name, value in as_trained(run).items() if name != "temp"}
    return {**asked, "benches": [_with_judge(run, one) for one in benches]}


def _with_judge(run: Mapping[str, Any], bench: Mapping[str, Any]) -> dict[str, Any]:
    try:
        is_judged = EvalBench.model_validate(dict(bench)).judged
    except ValidationError:
        return dict(bench)  # said of the config
    judge = None if is_judged else judge_of(run)
    return {**bench, "verifier": judge} if judge else dict(bench)


def judged_as(run: Mapping[str, Any], benches: Sequence[EvalBench]) -> list[EvalBench]:
    """Benches that name no verifier are judged as the run was. Raises ConfigError where nothing
    says how.
    """
    return [one if one.judged else _judged(run, one) for one in benches]


def _judged(run: Mapping[str, Any], bench: EvalBench) -> EvalBench:
    judge = judge_of(run)
    if judge is None:
        problem = f"{bench.name} has no verifier, and no run tells of one"
        raise ConfigError(
            [ConfigProblem("benches", bench.name, problem, "say its verifier or its task")]
        )
    return bench.model_copy(update={"verifier": judge})


def config_of_run(checkpoint: str) -> Mapping[str, Any]:
    """Of the run that a checkpoint is from; empty where none asked questions in text."""
    if checkpoint.startswith("embedded:"):
        return {}
    try:
        found = checkpoint_origin(located(checkpoint))
    except (OSError, ValueError):
        return {}  # said of `base`
    # Another kind's checkpoint answers no questions in text.
    return found.config if found is not None and "prompting" in found.config else {}


def _sources(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data = run.get("data") or {}
    yield from (data, *data.get("mix", ()), *run.get("heldout", ()))


def _is_same(one: Any, source: str) -> bool:
    embedded = source.startswith("embedded:")
    return bool(one == (source if embedded else str(located(source))))


def judge_of(run: Mapping[str, Any]) -> str | None:
    """Who called a row of a run solved. Raises ConfigError where several rewards paid for it."""
    rewards = run.get("rewards") or []
    if len(rewards) > 1:
        problem = f"is not said, and the run was paid by {len(rewards)} rewards"
        remedy = "name the one that calls a row solved"
        raise ConfigError([ConfigProblem("--verifier", None, problem, remedy)])
    if rewards:
        told = rewards[0].get("verifier") or rewards[0].get("function")
    else:
        told = run.get("verifier")
    return None if told is None else str(told)
