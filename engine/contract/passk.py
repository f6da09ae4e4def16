"""What `cockpit passk` queues: an `eval_rerun` that asks and judges as the run that a checkpoint is
from did. Knows no queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.contract.base_model import checkpoint_origin
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.paths import located
from engine.contract.sources.questions import SourceConfig

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
    """The config of the kind for one source; without a run only `base` and `data.source` are said.

    Where the run read this source, its fields are read as there. Raises ConfigError where the run
    was paid by several rewards and nobody says which one calls a row solved.
    """
    raw: dict[str, Any] = {"base": checkpoint, "data": {"source": source}}
    run = _config_of_run(checkpoint)
    raw |= {name: run[name] for name in _AS_TRAINED if name in run}
    rows = next((rows for rows in _sources(run) if _is_same(rows.get("source"), source)), {})
    named = SourceConfig.model_fields.keys() - {"source", "limit"}
    raw["data"] |= {name: rows[name] for name in sorted(named) if name in rows}
    if rows.get("template") is not None:
        raw["prompting"] = {**raw["prompting"], "template": rows["template"]}
        raw["prompting"].pop("question_format", None)
    judge = verifier or rows.get("verifier") or _judge(run)
    return raw if judge is None else raw | {"verifier": judge}


def _config_of_run(checkpoint: str) -> Mapping[str, Any]:
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


def _judge(run: Mapping[str, Any]) -> str | None:
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
