"""An `rl_run`'s serving lane, built from its config: what it asks of a server, and what it records.

Knows the run directory and the policy; not how a server is started or asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.contract.envelope import ModelShape
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.envelope import serving_kv_gib
from engine.contract.serving import Serving
from engine.data.rows import Question
from engine.models import tiny
from engine.models.policy import Policy
from engine.run.session import Attempt
from engine.sampling.prompts import PromptBuilder
from engine.sampling.vllm.launch import Needs, Say, ServingLane
from engine.sampling.vllm.parity import CONTEXTS
from engine.sampling.vllm.sync import Synced

_DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16"}


def build_lane(
    attempt: Attempt,
    config: RLRunConfig,
    policy: Policy,
    *,
    heldout: tuple[PromptBuilder, Sequence[Question]],
    training: tuple[PromptBuilder, Sequence[Question]],
) -> ServingLane:
    """Not up yet. `heldout` and `training`: the prompts that will be asked, with their rows.

    The weights are proven at the first held-out prompts of the run.
    """
    window = config.max_new_tokens + max(
        max(build.lengths(rows, enough=0), default=0) for build, rows in (heldout, training)
    )
    build, rows = heldout
    lane = ServingLane(
        attempt.job.serving or Serving(),
        Needs(
            base=served_base(config, Path(attempt.job.cache_dir)),
            dtype=_DTYPES[config.optim.precision],
            window=window,
            at_once=config.rollout_batch,
            rank=int(policy.model.peft_config["default"].r),
            kv_gib=_kv_gib(config, policy, window),
            version=config.vllm_pin,
        ),
        policy,
        contexts=[build(row) for row in rows[:CONTEXTS]],
        folder=attempt.run.serving,
        log=attempt.dir.serving_log,
        tolerance=config.sync_tolerance_used,
        say=_notes(attempt),
    )
    lane.listener = _Syncs(attempt, policy)
    return lane


def served_base(config: RLRunConfig, cache_dir: Path) -> str:
    """What a server loads: the embedded base becomes a folder, made once for each seed."""
    if config.base != tiny.NAME:
        return config.base
    folder = cache_dir / f"base-qwen3-tiny-{config.seed}"
    if not folder.is_dir():
        temporary = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        tiny.build_model(config.seed).save_pretrained(temporary)
        tiny.build_tokenizer().save_pretrained(temporary)
        temporary.rename(folder)
    return str(folder)


def _kv_gib(config: RLRunConfig, policy: Policy, window: int) -> int:
    shape = ModelShape.of_config(policy.model.config.to_dict())
    return 1 if shape is None else serving_kv_gib(config, shape, window)


def _notes(attempt: Attempt) -> Say:
    def say(code: str, text: str) -> None:
        attempt.events.write("note", level="info", code=code, text=text)

    return say


class _Syncs:
    """Writes each sync down: how long it took, and the proof's numbers once a step."""

    def __init__(self, attempt: Attempt, policy: Policy) -> None:
        self._events = attempt.events
        self._policy = policy
        self._step = 0

    def __call__(self, synced: Synced) -> None:
        step = self._policy.version
        seconds = round(synced.seconds, 4)
        self._events.write("span", name="weight-sync", seconds=seconds, step=step)
        if step <= self._step:  # a checkpoint was taken back, or nothing was trained yet
            return
        self._step = step
        values = {"time/sync_s": synced.seconds, "sync/gap": synced.compared.gap}
        if synced.compared.moved is not None:
            values["sync/moved"] = synced.compared.moved
        self._events.write("metric", step=step, values=values)
