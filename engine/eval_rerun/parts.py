"""The models of an `eval_rerun`, and its benches as units that are asked of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from peft import get_peft_model_state_dict

from engine.contract.errors import ConfigError, ConfigProblem, RLLoopError
from engine.contract.evaluate.benches import Asked, EvalBench, limit_of
from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.format import FormatConfig
from engine.contract.run_dir import RunDir, RunDirError
from engine.contract.task_rows import changes
from engine.contract.tasks import Filter
from engine.data.overlong import SHORTEN, misfit_problem, misfits
from engine.data.rows import Question, load
from engine.evaluate.bench import EvalUnit, Judge
from engine.evaluate.of_run import METRIC, unit_of_run
from engine.evaluate.task_bench import drawn_by_subject, task_questions
from engine.models import lora
from engine.models.chat import Clock
from engine.models.policy import Policy, build, require_finite, take_template
from engine.rewards.adapter import RewardAdapter, load_rewards, scheduled_reward
from engine.sampling.prompts import Examples, PromptBuilder
from engine.sampling.shots import drawn_examples, fixed_examples

PASSK = "passk"
"""The split of the rows of `data`."""


def open_policy(config: EvalRerunConfig, one: EvalCheckpoint, clock: Clock) -> Policy:
    """A base with its adapter. Raises RLLoopError."""
    policy = build(one.base, one.base_seed)
    take_template(policy, config.prompting, clock)
    if one.adapter_init is not None:
        policy.model = lora.attach_folder(policy.model, one.adapter_init)
        state = get_peft_model_state_dict(policy.model, save_embedding_layers=False)
        require_finite("adapter_init", one.adapter_init, state)
    policy.model.eval()
    return policy


def build_units(config: EvalRerunConfig, say: Callable[[str], None]) -> list[EvalUnit]:
    """Each bench at each number of shots, or the rows of `data`. `say` is told how rows were read.

    Raises RLLoopError.
    """
    if not config.benches:
        return [_of_rows(config, say)]
    found: list[EvalUnit] = []
    for bench in config.benches:
        if bench.run is not None:
            found.append(_of_run(bench, config))
            continue
        rows = _rows_of(bench, say)
        every = (Asked(bench, shots) for shots in bench.numbers_of_shots)
        found += [_of_bench(asked, config, rows) for asked in every]
    return found


def _of_rows(config: EvalRerunConfig, say: Callable[[str], None]) -> EvalUnit:
    bench = load(config.data)
    for told in bench.said:
        say(told)
    judge = Judge(config.verifier, METRIC, build_judge(config, config.verifier))
    return EvalUnit(
        bench.name,
        PASSK,
        bench.questions,
        [judge],
        prompting=config.prompting,
        temp=config.temp,
        max_new_tokens=config.max_new_tokens,
        samples=config.samples,
        sampling=config.sampling,
        seed=config.seed,
        batch_size=config.rollout_batch,
    )


def _of_bench(asked: Asked, config: EvalRerunConfig, rows: Sequence[Question]) -> EvalUnit:
    bench = asked.bench
    return EvalUnit(
        bench.name,
        asked.split,
        rows,
        [_judge(config, one) for one in bench.filters],
        pool=_pool(bench) if bench.runner == "harness" else (),
        prompting=config.prompting.under(bench.form),
        examples=_examples(asked, rows),
        task=bench.task,
        shots=asked.shots,
        runner=bench.runner,
        temp=bench.temp,
        max_new_tokens=limit_of(bench, config.max_new_tokens),
        stops=bench.ends,
        samples=bench.samples,
        sampling=config.sampling,
        seed=config.seed,
        fewshot_seed=bench.fewshot_seed,
        by=bench.by,
        batch_size=config.rollout_batch,
    )


def _judge(config: EvalRerunConfig, one: Filter) -> Judge:
    return Judge(one.name, one.metric, build_judge(config, one.verifier), one.by_instruction)


def _examples(asked: Asked, rows: Sequence[Question]) -> Examples:
    bench = asked.bench
    if bench.pool is None or not asked.shots:
        return fixed_examples(bench.form, asked.shots)
    pool = _pool(bench)
    if bench.of_task is not None:
        return drawn_by_subject(bench.of_task, rows, pool, asked.shots, bench.fewshot_seed)
    return drawn_examples(
        rows,
        pool,
        asked.shots,
        template=bench.form,
        config=FormatConfig(),
        seed=bench.fewshot_seed,
    )


def _pool(bench: EvalBench) -> Sequence[Question]:
    """Training rows that examples are drawn from."""
    if bench.pool is None:
        return ()
    rows = load(bench.pool).questions
    if bench.of_task is None:
        return rows
    return task_questions(bench.of_task, rows, "benches.shots_from")


def _rows_of(bench: EvalBench, say: Callable[[str], None]) -> Sequence[Question]:
    found = load(bench.rows)
    for one in found.said:
        say(f"{bench.name}: {one}")
    if bench.of_task is None:
        return found.questions
    for one in changes(bench.of_task, found.questions):
        say(f"{bench.name}: {one}")
    return task_questions(bench.of_task, found.questions, "benches.source")


def _of_run(bench: EvalBench, config: EvalRerunConfig) -> EvalUnit:
    """The frozen rows of a run, asked and judged as its gates do. Raises RLLoopError."""
    folder = RunDir(Path(bench.run or ""))
    found = unit_of_run(_config_of(folder), folder, bench.part, bench.name, "benches.run")
    also = [Judge(name, METRIC, build_judge(config, name)) for name in bench.also]
    return replace(
        found,
        split=bench.split_of(0),
        judges=[*found.judges, *also],
        by=bench.by,
        batch_size=config.rollout_batch,
    )


def _config_of(run: RunDir) -> RLRunConfig:
    try:
        return RLRunConfig.model_validate(run.attempt(run.latest_attempt()).read_job().config)
    except (RunDirError, ValueError) as error:
        problem = f"has no config that can be read: {error}"
        raise ConfigError(
            [ConfigProblem("benches.run", str(run.root), problem, "name an rl_run's directory")]
        ) from error


def rows_that_fit(
    unit: EvalUnit,
    config: EvalRerunConfig,
    policy: Policy,
    prompts: PromptBuilder,
    warn: Callable[[str, str], None],
) -> Sequence[Question]:
    """Those whose prompts leave room for an answer. Raises RLLoopError where others are refused."""
    window, rows = policy.window, unit.rows
    longest = None if window is None else window - unit.max_new_tokens
    found = misfits(rows, prompts.lengths, longest)
    if not found:
        return rows
    problem = misfit_problem(found, len(rows), unit.max_new_tokens, window)
    left_out = {misfit.id for misfit in found}
    rest = [row for row in rows if row.id not in left_out]
    if config.prompting.too_long == "refuse" or not rest:
        raise RLLoopError.of("data", None, f"{unit.split}: {problem}", SHORTEN)
    warn("PROMPTS_DROPPED", f"{unit.split}: left out: {problem}")
    return rest


def build_judge(config: EvalRerunConfig, verifier: str) -> RewardAdapter:
    """One verifier or reward function."""
    strict = load_rewards(
        [(verifier, 1.0)],
        config.success_threshold,
        timeout_s=config.reward_timeout_s,
        max_steps=1,
    )
    return scheduled_reward(strict, config.success_threshold, FormatConfig(), 1)


def facts(unit: EvalUnit, one: EvalCheckpoint, config: EvalRerunConfig) -> dict[str, Any]:
    """What the scores of one checkpoint on one bench share (`BenchScore`)."""
    return {
        "checkpoint": one.label,
        "path": one.path,
        "base": one.trained_from or one.base,
        "run": one.run,
        "step": one.step,
        "bench": unit.name,
        "split": unit.split,
        "task": unit.task,
        "shots": unit.shots,
        "picked": unit.picked,
        "runner": unit.runner,
        "temp": unit.temp,
        "max_new_tokens": unit.max_new_tokens,
        "chat_template": not unit.prompting.skip_chat_template,
        "tensor_parallel": config.tensor_parallel,
        "seeds": {"sampling": unit.seed, "fewshot": unit.fewshot_seed},
        "bench_hash": unit.hash,
        "data_hash": unit.data_hash,
    }
