"""A bench as it is asked of one checkpoint after another: rows, prompts, decoding, judges.

A gate, `eval_rerun` and pass@k run the same sampler and the same verifiers. One completion is drawn
once and judged by every filter. Knows no file of a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from engine.contract.asked import asked
from engine.contract.rl.prompting import PromptingConfig
from engine.contract.rl.sampling import SamplingConfig
from engine.contract.scores import Runner
from engine.data.rows import Question
from engine.evaluate.gate import case_of
from engine.models.chat import local_now
from engine.models.policy import Policy
from engine.rewards.adapter import RewardAdapter, Verdict
from engine.run.stop import check_abort
from engine.sampling.base import OwnWeights, Rollout, Sampler
from engine.sampling.hf import HFSampler
from engine.sampling.prompts import Examples, PromptBuilder, no_examples
from engine.sampling.rollouts import Rollouts
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.sampler import VLLMServerSampler

_BATCH = 32
"""Completions judged between two looks at the abort."""


class Judge(NamedTuple):
    """One way to read an answer."""

    name: str
    """Of the filter."""
    metric: str
    reward: RewardAdapter
    by_instruction: bool = False
    """A row counts as often as its gold has instructions, and its reward is the share followed."""


@dataclass(frozen=True)
class EvalUnit:
    """A bench at one number of shots."""

    name: str
    split: str
    """Names its files."""
    rows: Sequence[Question]
    judges: Sequence[Judge]
    pool: Sequence[Question] = ()
    """Training rows that the harness draws its worked examples from; `examples` are ours."""
    prompting: PromptingConfig = field(default_factory=PromptingConfig)
    examples: Examples = no_examples
    task: str | None = None
    shots: int = 0
    runner: Runner = "own"
    temp: float = 0.0
    max_new_tokens: int = 16
    stops: Sequence[str] = ()
    samples: int = 1
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    seed: int = 0
    fewshot_seed: int = 1234
    purpose: str = "eval"
    """Of its random numbers: a gate's completions come again under the gate's own."""
    by: Sequence[str] = ()
    picked: bool = False
    """Its rows picked the checkpoint."""
    batch_size: int = 256
    templates: Mapping[str, str | None] = field(default_factory=dict)
    """By source, where rows of a mixture are asked in forms of their own."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of a mixture's sources by name: its score is their mean."""

    def prompts(self, policy: Policy) -> PromptBuilder:
        """From a question to the ids in front of its completion."""
        return PromptBuilder(
            policy.tokenizer,
            self.prompting,
            self.examples,
            policy.known_tokens,
            policy.chat.clock if policy.chat else local_now,
            self.templates,
        )

    def sampler(
        self, policy: Policy, prompts: PromptBuilder, lane: ServingLane | None = None
    ) -> Sampler:
        """The sampler of every run, with random numbers named by seed, row and sample alone; with a
        lane its server draws.
        """
        if lane is not None:
            served = VLLMServerSampler(
                lane=lane,
                policy=policy,
                seed=self.seed,
                purpose=self.purpose,
                temp=self.temp,
                max_new_tokens=self.max_new_tokens,
                encode=prompts,
                pin_version=True,
            )
            return Rollouts(served, lane, prompts.begins, self.stops)
        own = HFSampler(
            policy=policy,
            seed=self.seed,
            purpose=self.purpose,
            temp=self.temp,
            max_new_tokens=self.max_new_tokens,
            batch_size=self.batch_size,
            pin_version=True,
            sampling=self.sampling,
            encode=prompts,
            stops=self.stops,
        )
        return Rollouts(own, OwnWeights(), prompts.begins)

    def judged(self, question: Question, rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
        """One row's completions as lines of its file. Raises Aborted between two batches."""
        by_filter = {judge.name: self._asked(judge, question, rollouts) for judge in self.judges}
        columns = self.columns(question)
        return [
            line_of(
                question,
                rollout,
                {name: told[place] for name, told in by_filter.items()},
                columns,
            )
            for place, rollout in enumerate(rollouts)
        ]

    def columns(self, question: Question) -> dict[str, Any]:
        """Those that the score is also told by."""
        return {name: value_at(question.columns, name) for name in self.by}

    @property
    def worth(self) -> Sequence[tuple[str, str]]:
        """(filter, metric) of every judge."""
        return [(judge.name, judge.metric) for judge in self.judges]

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 over id, question and answer of every row."""
        return _hash([[row.id, row.prompt, row.answer] for row in self.rows])

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all that a score depends on beside the model: equal ones compare."""
        form = self.prompting.model_dump(mode="json") | {"form": self.prompting.form}
        decoding = [self.temp, self.max_new_tokens, list(self.stops), self.samples]
        shown = [
            [[shot.prompt, answer] for shot, answer in self.examples(row)] for row in self.rows
        ]
        said = [self.task, self.shots, self.runner, list(self.worth), self.seed, self.purpose]
        more = [self.sampling.model_dump(mode="json"), dict(self.templates)]
        return _hash([self.data_hash, form, decoding, shown, said, more])

    def _asked(
        self, judge: Judge, question: Question, rollouts: Sequence[Rollout]
    ) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        size = max(1, len(rollouts)) if judge.reward.batched else _BATCH
        for start in range(0, len(rollouts), size):
            check_abort()
            some = rollouts[start : start + size]
            cases = [case_of(question, rollout, 0) for rollout in some]
            verdicts = judge.reward.judge_all(cases, [rollout.truncated for rollout in some])
            told += [judgement(judge, verdict, question.answer) for verdict in verdicts]
        return told


def judgement(judge: Judge, verdict: Verdict, gold: str) -> dict[str, Any]:
    """What one judge says, as a line of completions keeps it."""
    said = {
        "reward": verdict.reward,
        "success": judge.reward.success(verdict) if verdict.counted else None,
        "answer": verdict.answer,
        "reason": verdict.reason.value,
    }
    if not judge.by_instruction:
        return said
    of = len(json.loads(gold)["instruction_id_list"])
    return {**said, "right": round(verdict.reward * of), "of": of}


def line_of(
    question: Question,
    rollout: Rollout,
    judged: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Any],
) -> dict[str, Any]:
    """One completion as it is stored; the first filter's judgement is the bench's own."""
    first = next(iter(judged.values()), {})
    return {
        "id": question.id,
        "sample": rollout.sample,
        "version": rollout.version,
        "prompt": question.prompt,
        "text": rollout.text,
        **first,
        "truncated": rollout.truncated,
        "finish_reason": "length" if rollout.truncated else "stop",
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": rollout.completion_ids,
        "gold": question.answer,
        **({"source": question.source} if question.source else {}),
        "columns": dict(columns),
        "judged": dict(judged),
    }


def value_at(columns: Mapping[str, Any], name: str) -> Any:
    """`a.b` is b inside a; None where there is none.

    >>> value_at({"extra_info": {"level": "Level 3"}}, "extra_info.level")
    'Level 3'
    """
    if name in columns:
        return columns[name]
    found: Any = columns
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def distinct(rows: Sequence[Question]) -> dict[str, str]:
    """What each row asks, by its id: rows that ask the same count as one."""
    return {row.id: asked(row.prompt) for row in rows}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()
