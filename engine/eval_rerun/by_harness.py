"""One bench asked and scored by lm-evaluation-harness, as lines of completions like any other.

The harness's scores count. Our own filters read the same completions beside them, for the answer
and the reason, and a difference is told: the two are meant to agree item by item.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.tasks import SEED, TASKS
from engine.eval_rerun.by_sampler import Asking
from engine.evaluate.bench import EvalUnit, line_of
from engine.evaluate.journal import Line
from engine.models.policy import Policy
from engine.run.stop import check_abort
from engine.sampling.base import Rollout

DISAGREES = "HARNESS_DISAGREES"
_SHOWN = 5


class ByHarness(NamedTuple):
    """The lines of one bench and checkpoint."""

    lines: list[Line]
    version: str
    """Of lm_eval."""


def answered(how: Asking, unit: EvalUnit, one: EvalCheckpoint, policy: Policy) -> ByHarness:
    """Every row; what an earlier attempt got is not asked again. Raises RLLoopError, Aborted."""
    from engine.evaluate.harness.results import Answer  # noqa: PLC0415 - lm_eval is an extra
    from engine.evaluate.harness.run import run_task  # noqa: PLC0415

    journal, recorder = how.journal, how.recorder
    assert unit.task is not None
    rows = {row.id: row for row in unit.rows}
    known = journal.recall(unit.split, one.step, 1)
    since = time.monotonic()

    def recall(row: str, prompt: str) -> Answer | None:
        line = known[row][0] if row in known else None
        if line is None or line.get("asked") != prompt:
            return None
        recorder.answered(1, {"truncated": float(line["truncated"])}, 0.0, is_last=True)
        told = (line["text"], line["truncated"], line["prompt_ids"], line["completion_ids"])
        return Answer(row, prompt, *told)

    def on_item(answer: Answer) -> None:
        nonlocal since
        check_abort()
        line = line_of(rows[answer.row], _rollout(answer), {}, unit.columns(rows[answer.row]))
        journal.add(unit.split, one.step, [{**line, "asked": answer.prompt}])
        now = time.monotonic()
        last = (recorder.done + 1) % unit.batch_size != 0
        told = {"truncated": float(answer.truncated)}
        recorder.answered(1, told, now - since, is_last=last)
        since = now

    how.begin(unit, one)
    result = run_task(
        TASKS[unit.task],
        unit.rows,
        unit.pool,
        policy,
        shots=unit.shots,
        limit=unit.max_new_tokens,
        recall=recall,
        on_item=on_item,
        batch_size=unit.batch_size,
        chat_template=not unit.prompting.skip_chat_template,
        template_variables=unit.prompting.template_variables,
        system_prompt=unit.prompting.system_prompt,
        fewshot_seed=unit.fewshot_seed,
    )
    differ: dict[str, list[str]] = {}
    found: dict[str, Sequence[Line]] = {}
    for item in result.items:
        row = rows[item.answer.row]
        line = unit.judged(row, [_rollout(item.answer)])[0]
        for name in _corrected(line["judged"], item.scores):
            differ.setdefault(name, []).append(row.id)
        own = next(iter(line["judged"].values()))
        found[row.id] = [{**line, **own, "asked": item.answer.prompt}]
    for name, ids in differ.items():
        how.warn(DISAGREES, _difference(unit.split, name, ids))
    return ByHarness(
        journal.finish(unit.split, one.step, [row.id for row in unit.rows], found), result.version
    )


def seeds(unit: EvalUnit) -> dict[str, int]:
    """Those of the harness, which are one setting; greedy decoding draws nothing from them."""
    return {"random": SEED, "numpy": SEED, "torch": SEED, "fewshot": unit.fewshot_seed}


def _corrected(judged: Mapping[str, dict[str, Any]], scores: Mapping[str, float]) -> Sequence[str]:
    """The filters that read an item otherwise than the harness, whose scores are written in."""
    found = []
    for name, score in scores.items():
        told = judged[name]
        if told["reward"] == score:
            continue
        found.append(name)
        told |= {"reward": score, "success": score >= 1, "reason": "correct" if score else "wrong"}
        if "of" in told:
            told["right"] = round(score * told["of"])
    return found


def _difference(split: str, name: str, ids: Sequence[str]) -> str:
    shown = ", ".join(map(repr, ids[:_SHOWN]))
    return (
        f"{split}: {name} reads {len(ids)} items otherwise than lm-evaluation-harness, whose score "
        f"counts: {shown}"
    )


def _rollout(answer: Any) -> Rollout:
    """As a sampler would give it; the harness keeps no log-probabilities."""
    return Rollout(
        question_id=answer.row,
        sample=0,
        prompt_ids=tuple(answer.prompt_ids),
        completion_ids=tuple(answer.completion_ids),
        logprobs=(),
        text=answer.text,
        truncated=answer.truncated,
        version=0,
    )
