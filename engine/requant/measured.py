"""What one format came to: read back, asked every row, and compared with the 16-bit model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.contract.asked import asked as question_of
from engine.contract.intervals import PairedAt, PairedComparison, compare, weighted
from engine.contract.jsonl import write_rows
from engine.contract.kinds.requant import RequantConfig
from engine.contract.scores import BenchScore, Part
from engine.data.rows import Question
from engine.evaluate.gate import Gate, GateResult, Scored
from engine.models.policy import Policy
from engine.requant.rows import Asked
from engine.run.session import Attempt
from engine.sampling.base import Groups, OwnWeights, Sampler
from engine.sampling.decoding import Way, take_way, way_of
from engine.sampling.hf import HFSampler
from engine.sampling.prompts import PromptBuilder
from engine.sampling.rollouts import Rollouts


@dataclass
class _Timed:
    """A sampler, with the seconds that it took and the tokens that it drew."""

    sampler: Sampler
    seconds: float = 0.0
    tokens: int = field(default=0)

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        began = time.monotonic()
        groups = self.sampler(tasks, k)
        self.seconds += time.monotonic() - began
        self.tokens += sum(len(one.completion_ids) for group in groups for one in group)
        return groups


def measure(
    attempt: Attempt,
    policy: Policy,
    rows: Asked,
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
    if way is not None:
        take_way(policy, Way(way))
    config = attempt.config
    assert isinstance(config, RequantConfig)
    prompts = rows.prompts(policy)
    timed = _Timed(_sampler(policy, rows, prompts, config))
    result = Gate(timed, rows.reward, 0.0, rows.weights)(policy.version, rows.questions)
    score = score_of(
        result, rows, config, label=label, path=str(place), bench_hash=rows.hash(prompts)
    )
    file = f"heldout-{score.split}-{score.step:06d}.jsonl"
    write_rows(attempt.run.rollouts / file, [*lines(result, rows.verifiers)])
    attempt.events.write("score", step=step, score=score.model_dump(mode="json"))
    attempt.metric(step, {"requant/score": score.score})
    return {
        "format": label,
        "checkpoint": score.checkpoint,
        "path": str(place),
        "way": way_of(policy).value,
        "speed": round(timed.tokens / timed.seconds, 1),
        "outcomes": result.outcomes,
        **{name: getattr(score, name) for name in ("score", "low", "high", "n", "truncated")},
    }


def _sampler(policy: Policy, rows: Asked, prompts: PromptBuilder, config: RequantConfig) -> Sampler:
    own = HFSampler(
        policy=policy,
        seed=0,  # no completion depends on it
        purpose="eval",
        temp=0.0,
        max_new_tokens=rows.max_new_tokens,
        batch_size=config.rollout_batch,
        sampling=config.sampling,
        encode=prompts,
    )
    return Rollouts(own, OwnWeights(), prompts.begins)


def lines(result: GateResult, verifiers: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The completions as they are stored."""
    name = "+".join(verifiers)
    for item in result.items:
        judged = {
            "reward": item.verdict.reward,
            "success": item.success,
            "answer": item.verdict.answer,
            "reason": item.verdict.reason.value,
        }
        yield {**_asked_and_said(item), **judged, "judged": {name: judged}}


def _asked_and_said(item: Scored) -> dict[str, Any]:
    rollout, row = item.rollout, item.question
    return {
        "id": row.id,
        "sample": rollout.sample,
        "version": rollout.version,
        "prompt": row.prompt,
        "text": rollout.text,
        "truncated": rollout.truncated,
        "finish_reason": "length" if rollout.truncated else "stop",
        "prompt_ids": list(rollout.prompt_ids),
        "completion_ids": list(rollout.completion_ids),
        "gold": row.answer,
        "columns": {},
    }


def beside(before: Mapping[str, Any], after: Mapping[str, Any], rows: Asked) -> dict[str, Any]:
    """Row by row: how a format's score differs from that of the 16-bit model; of a mixture the mean
    over its sources by weight.
    """
    found = weighted(
        _compared(before, after, rows, range(len(rows.questions))),
        [
            PairedAt(weight, _compared(before, after, rows, places))
            for name, weight in rows.weights.items()
            for places in [[i for i, row in enumerate(rows.questions) if row.source == name]]
        ],
    )
    return {
        "lift": found.lift,
        "ci95": list(found.ci95),
        "p_value": found.p_value,
        "gained": found.gained,
        "lost": found.lost,
        "paired": found.n,
    }


def _compared(
    before: Mapping[str, Any], after: Mapping[str, Any], rows: Asked, places: Sequence[int]
) -> PairedComparison:
    return compare(
        [before["outcomes"][i] for i in places],
        [after["outcomes"][i] for i in places],
        [question_of(rows.questions[i].prompt) for i in places],
    )


def score_of(
    result: GateResult,
    rows: Asked,
    config: RequantConfig,
    *,
    label: str,
    path: str,
    bench_hash: str,
) -> BenchScore:
    """For the leaderboard; `label`: what the weights are stored as."""
    run = config.run
    low, high = result.ci95
    ended = [item.success for item in result.items if not item.rollout.truncated]
    judged = [one for one in ended if one is not None]
    return BenchScore(
        checkpoint=f"{_called(config)} {label}",
        path=path,
        base=config.base,
        run=int(run.root.name) if run is not None and run.root.name.isdecimal() else None,
        step=config.step,
        bench=rows.name,
        split=split_of(rows, label),
        shots=rows.shots,
        filter="+".join(rows.verifiers),
        n=len(result.counted),
        score=float(result),
        low=low,
        high=high,
        truncated=result.truncated,
        unparsed=result.unparsed,
        ended_n=len(judged),
        ended=sum(judged) / len(judged) if judged else None,
        parts=[_part(name, part) for name, part in result.by_source().items()],
        formats={k: v for k, v in result.shares().items() if k.startswith("format/")},
        max_new_tokens=rows.max_new_tokens,
        chat_template=not rows.prompting.skip_chat_template,
        bench_hash=bench_hash,
        data_hash=rows.data_hash,
    )


def _part(name: str, result: GateResult) -> Part:
    low, high = result.ci95
    score = float(result)
    return Part(by="source", name=name, n=len(result.counted), score=score, low=low, high=high)


def split_of(rows: Asked, label: str) -> str:
    """Under which a format's completions are stored.

    >>> split_of(Asked("run:7", *[None] * 9), "int8")
    'run-7-int8'
    """
    return f"{rows.name}-{label}".replace(":", "-")


def _called(config: RequantConfig) -> str:
    """What people call the checkpoint: its step in its run, else its own name."""
    if config.checkpoint is not None:
        return f"step {config.step}"
    return (config.adapter_init or config.base).rpartition("/")[2]


_INSIDE = frozenset({"outcomes", "speed", "way"})
"""What is compared or handed on, and not shown."""


def table_of(
    config: RequantConfig, rows: Asked, measured: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """For the result and the run card: the 16-bit model, then each format."""
    return {
        "of": None if config.run is None else str(config.run.root),
        "bench": rows.name,
        "formats": [{k: v for k, v in one.items() if k not in _INSIDE} for one in measured],
    }
