"""What every format is asked: the rows of a bench, or the report rows of the run that the model is
from, as that run asks and judges them. Answers are greedy: formats differ by their weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from engine.contract.errors import RLLoopError
from engine.contract.kinds.requant import RequantConfig, run_config
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.format import FormatConfig
from engine.contract.run_dir import RunDir
from engine.contract.sources.benches import BenchConfig
from engine.data.heldout import judged_rows, load_rows
from engine.data.overlong import SHORTEN, misfit_problem, misfits
from engine.data.rows import Question, load
from engine.data.split import thawed
from engine.evaluate.bench import EvalUnit, Judge
from engine.rewards.adapter import RewardAdapter, ask_all, load_rewards, scheduled_reward
from engine.rewards.of_run import build_reward
from engine.rewards.routed import RoutedReward
from engine.sampling.prompts import Examples, PromptBuilder, no_examples
from engine.sampling.shots import drawn_examples, fixed_examples

_METRIC = "success"


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
        [Judge("+".join(_named(rows)), _METRIC, _reward(config, rows))],
        prompting=config.prompting,
        examples=_examples(config, bench, rows, FormatConfig()),
        shots=bench.shots,
        max_new_tokens=bench.max_new_tokens or config.max_new_tokens,
        sampling=config.sampling,
        batch_size=config.rollout_batch,
        templates={bench.name: bench.template},
    )


def _of_run(config: RequantConfig, run: RLRunConfig, source: RunDir) -> EvalUnit:
    found = load_rows(run)
    every = [*found.corpus.questions, *(row for rows in found.benches.values() for row in rows)]
    split = thawed(every, source.split)
    if split is None or not split.report:
        problem = "has no report rows that are still there"
        raise RLLoopError.of("bench", str(source.split), problem, "set bench to rows of your own")
    rows, name = split.report, f"run-{source.root.name}"
    bench = next((one for one in run.heldout if one.name == run.decide), None)
    examples: Examples = no_examples
    if bench is not None:
        examples = _examples(config, bench, found.benches[bench.name], run.format)
    return EvalUnit(
        name,
        name,
        rows,
        [Judge("+".join(_named(rows)) or run.verifier, _METRIC, build_reward(run, rows))],
        prompting=config.prompting,
        examples=examples,
        shots=0 if bench is None else bench.shots,
        max_new_tokens=(bench and bench.max_new_tokens) or config.max_new_tokens,
        sampling=config.sampling,
        batch_size=config.rollout_batch,
        templates={one.name: one.template for one in (*run.data.mix, *run.heldout)},
    )


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
