"""What every format is asked: the rows of a bench, or the report rows of the run that the model is
from, as that run asks and judges them. Answers are greedy: formats differ by their weights alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.kinds.requant import RequantConfig, run_config
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.format import FormatConfig
from engine.contract.rl.prompting import PromptingConfig
from engine.contract.run_dir import RunDir
from engine.contract.sources.benches import BenchConfig
from engine.data.heldout import judged_rows, load_rows
from engine.data.overlong import SHORTEN, misfit_problem, misfits
from engine.data.rows import Question, load
from engine.data.split import thawed
from engine.models.chat import local_now
from engine.models.policy import Policy
from engine.rewards.adapter import RewardAdapter, ask_all, load_rewards, scheduled_reward
from engine.rewards.routed import RoutedReward
from engine.sampling.prompts import Examples, PromptBuilder, no_examples
from engine.sampling.shots import drawn_examples, fixed_examples


class Asked(NamedTuple):
    """Rows with how they are asked and judged."""

    name: str
    """Of the bench: its own, or `run:7` for the report rows of that run."""
    questions: Sequence[Question]
    prompting: PromptingConfig
    templates: Mapping[str, str | None]
    """By source."""
    examples: Examples
    shots: int
    max_new_tokens: int
    verifiers: Sequence[str]
    reward: RewardAdapter
    weights: Mapping[str, float]
    """Of a mixture's sources by name; without any, every row counts alike."""

    def prompts(self, policy: Policy) -> PromptBuilder:
        """From a question to the ids that a model reads. Raises RLLoopError."""
        clock = policy.chat.clock if policy.chat else local_now
        return PromptBuilder(
            policy.tokenizer,
            self.prompting,
            self.examples,
            policy.known_tokens,
            clock,
            self.templates,
        )

    @property
    def data_hash(self) -> str:
        """SHA-256 over the rows alone."""
        rows = [[row.id, row.prompt, row.answer] for row in self.questions]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def hash(self, prompts: PromptBuilder) -> str:
        """SHA-256 over all that one must have in common to be compared row by row."""
        texts = [prompts.text(row) for row in self.questions]
        told = [self.data_hash, texts, self.max_new_tokens, self.verifiers, self.reward.threshold]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def asked(config: RequantConfig) -> Asked:
    """Raises RLLoopError for rows that cannot be read or are no longer those of the run."""
    if config.bench is not None:
        return _of_bench(config, config.bench)
    run, source = run_config(config), config.run
    if run is None or source is None:
        problem, remedy = "is missing, and base is of no run here", "set bench"
        raise RLLoopError.of("bench", None, problem, remedy)
    return _of_run(config, run, source)


def _of_bench(config: RequantConfig, bench: BenchConfig) -> Asked:
    rows = judged_rows(bench, "bench").questions
    if not rows:
        raise RLLoopError.of("bench.source", bench.source, "has no rows", "name another file")
    return Asked(
        name=bench.name,
        questions=rows,
        prompting=config.prompting,
        templates={bench.name: bench.template},
        examples=_examples(bench, rows, config.prompting, FormatConfig()),
        shots=bench.shots,
        max_new_tokens=bench.max_new_tokens or config.max_new_tokens,
        verifiers=_named(rows),
        reward=_reward(config, [], rows),
        weights={},
    )


def _of_run(config: RequantConfig, run: RLRunConfig, source: RunDir) -> Asked:
    found = load_rows(run)
    every = [*found.corpus.questions, *(row for rows in found.benches.values() for row in rows)]
    split = thawed(every, source.split)
    if split is None or not split.report:
        problem = "has no report rows that are still there"
        raise RLLoopError.of("bench", str(source.split), problem, "set bench to rows of your own")
    bench = next((one for one in run.heldout if one.name == run.decide), None)
    examples: Examples = no_examples
    if bench is not None:
        examples = _examples(bench, found.benches[bench.name], config.prompting, run.format)
    named = {rows.name: rows.template for rows in (*run.data.mix, *run.heldout)}
    parts = run.reward_parts
    return Asked(
        name=f"run:{source.root.name}",
        questions=split.report,
        prompting=config.prompting,
        templates=named,
        examples=examples,
        shots=0 if bench is None else bench.shots,
        max_new_tokens=(bench and bench.max_new_tokens) or config.max_new_tokens,
        verifiers=_named(split.report) or [name for name, _ in parts],
        reward=_reward(config, parts, split.report),
        weights=run.data.weights if bench is None else {},
    )


def _examples(
    bench: BenchConfig, rows: Sequence[Question], prompting: PromptingConfig, form: FormatConfig
) -> Examples:
    template = bench.template or prompting.template
    if bench.pool is None:
        return fixed_examples(template, bench.shots)
    pool = load(bench.pool).questions
    return drawn_examples(rows, pool, bench.shots, template=template, config=form)


def _named(rows: Sequence[Question]) -> list[str]:
    return sorted({row.verifier for row in rows} - {""})


def _reward(
    config: RequantConfig, parts: Sequence[tuple[str, float]], rows: Sequence[Question]
) -> RewardAdapter:
    """The rewards of a run, and each verifier that rows name themselves."""
    threshold = config.success_threshold
    limits = {"timeout_s": config.reward_timeout_s, "max_steps": 1}
    loaded = {name: load_rewards([(name, 1.0)], threshold, **limits) for name in _named(rows)}
    own = load_rewards(parts, threshold, **limits) if parts else next(iter(loaded.values()))
    if loaded:
        own = RoutedReward(
            partial(ask_all, own, threshold=threshold),
            {name: partial(ask_all, one, threshold=threshold) for name, one in loaded.items()},
        )
    return scheduled_reward(own, threshold, FormatConfig(), 1)


def require_fitting(rows: Asked, prompts: PromptBuilder, window: int | None) -> None:
    """Raises RLLoopError for rows whose prompt leaves no room for an answer."""
    longest = None if window is None else window - rows.max_new_tokens
    found = misfits(rows.questions, prompts.lengths, longest)
    if found:
        problem = misfit_problem(found, len(rows.questions), rows.max_new_tokens, window)
        raise RLLoopError.of("bench", rows.name, problem, SHORTEN.partition(", or")[0])
