"""What every format is asked: the rows of a bench, or the report rows of the run that the model is
from, as that run asks and judges them. Answers are greedy: formats differ by their weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from engine.contract.errors import RLLoopError
from engine.contract.kinds.requant import RequantConfig, run_config
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.format import FormatConfig
from engine.contract.run_dir import RunDir
from engine.contract.sources.benches import BenchConfig
from engine.data.heldout import judged_rows
from engine.data.overlong import SHORTEN, misfit_problem, misfits
from engine.data.rows import Question, load
from engine.evaluate.bench import EvalUnit, Judge
from engine.evaluate.of_run import METRIC, unit_of_run
from engine.rewards.adapter import RewardAdapter, ask_all, load_rewards, scheduled_reward
from engine.rewards.routed import RoutedReward
from engine.sampling.prompts import Examples, PromptBuilder
from engine.sampling.shots import drawn_examples, fixed_examples


def unit_of(config: RequantConfig) -> EvalUnit:
    """Raises RLLoopError for rows that cannot be read or are no longer those of the run."""
    if config.bench is not None:
        return _of_bench(config, config.bench)
    run, source = run_config(config), config.run
    if run is None or source is None:
        problem, remedy = "is missing, and base is of no run here", "set bench"
        raise RLLoopError.of("bench", None, problem, remedy)
    return _of_run(config, run, source)


def _of_bench(config: RequantConfig, bench: BenchConfig) -> EvalUnit:
    rows = judged_rows(bench, "bench").questions
    if not rows:
        raise RLLoopError.of("bench.source", bench.source, "has no rows", "name another file")
    return EvalUnit(
        bench.name,
        bench.name,
        rows,
        [Judge("+".join(_named(rows)), METRIC, _reward(config, rows))],
        prompting=config.prompting,
        examples=_examples(config, bench, rows, FormatConfig()),
        shots=bench.shots,
        max_new_tokens=bench.max_new_tokens or config.max_new_tokens,
        sampling=config.sampling,
        batch_size=config.rollout_batch,
        templates={bench.name: bench.template},
    )


def _of_run(config: RequantConfig, run: RLRunConfig, source: RunDir) -> EvalUnit:
    """What is said in the config counts before what the run said."""
    found = unit_of_run(run, source, "report", f"run-{source.root.name}", "bench")
    return replace(
        found,
        prompting=config.prompting,
        temp=0.0,
        max_new_tokens=found.max_new_tokens if _decided(run) else config.max_new_tokens,
        sampling=config.sampling,
        batch_size=config.rollout_batch,
    )


def _decided(run: RLRunConfig) -> bool:
    """Whether a bench with a limit of its own decided."""
    return any(one.name == run.decide and one.max_new_tokens for one in run.heldout)


def _examples(
    config: RequantConfig, bench: BenchConfig, rows: Sequence[Question], form: FormatConfig
) -> Examples:
    template = bench.template or config.prompting.template
    if bench.pool is None:
        return fixed_examples(template, bench.shots)
    pool = load(bench.pool).questions
    return drawn_examples(rows, pool, bench.shots, template=template, config=form)


def _named(rows: Sequence[Question]) -> list[str]:
    """Verifiers that rows name themselves."""
    return sorted({row.verifier for row in rows} - {""})


def _reward(config: RequantConfig, rows: Sequence[Question]) -> RewardAdapter:
    """Each row by its verifier."""
    threshold = config.success_threshold
    limits = {"timeout_s": config.reward_timeout_s, "max_steps": 1}
    asks = {
        name: partial(
            ask_all, load_rewards([(name, 1.0)], threshold, **limits), threshold=threshold
        )
        for name in _named(rows)
    }
    routed = RoutedReward(next(iter(asks.values())), asks)
    return scheduled_reward(routed, threshold, FormatConfig(), 1)


def require_fitting(unit: EvalUnit, prompts: PromptBuilder, window: int | None) -> None:
    """Raises RLLoopError for rows whose prompt leaves no room for an answer."""
    longest = None if window is None else window - unit.max_new_tokens
    found = misfits(unit.rows, prompts.lengths, longest)
    if found:
        problem = misfit_problem(found, len(unit.rows), unit.max_new_tokens, window)
        raise RLLoopError.of("bench", unit.name, problem, SHORTEN.partition(", or")[0])
