"""A server that answers for one checkpoint of an `eval_rerun`, up while its benches are asked.

It loads the checkpoint's base, and is brought the adapter or the merged weights as a run's server
is, with the same proof. Starts nothing where the model itself answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from engine.contract.envelope import ModelShape
from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.served import SYNC_TOLERANCE
from engine.contract.serving import Serving
from engine.evaluate.bench import EvalUnit
from engine.models import lora, tiny
from engine.models.policy import Policy
from engine.run.session import Attempt
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.parity import CONTEXTS
from engine.sampling.vllm.places import parallel
from engine.sampling.vllm.sync.needs import Mode


@contextmanager
def lane_of(
    attempt: Attempt,
    config: EvalRerunConfig,
    one: EvalCheckpoint,
    policy: Policy,
    units: Sequence[EvalUnit],
) -> Iterator[ServingLane | None]:
    """None where the model itself answers. Raises RLLoopError, ServerError, Aborted."""
    own = [unit for unit in units if unit.runner != "harness"]
    if not config.serves or not own:
        yield None
        return
    prompts = [ids for unit in own for ids in _prompts(unit, policy)]
    window = max(
        unit.max_new_tokens + max((len(ids) for ids in _prompts(unit, policy)), default=0)
        for unit in own
    )
    lane = ServingLane(
        attempt.job.serving or Serving(),
        Needs(
            base=tiny.folder_of(one.base, one.base_seed, Path(attempt.job.cache_dir)),
            dtype="float32",
            window=window,
            at_once=config.rollout_batch,
            rank=_rank(policy),
            kv_gib=_kv_gib(config, policy, window),
            version=None,
            parallel=parallel(config.vllm, torch.cuda.device_count()),
        ),
        policy,
        contexts=prompts[:CONTEXTS],
        folder=attempt.run.serving,
        log=attempt.dir.serving_log,
        tolerance=SYNC_TOLERANCE["fp32"],
        say=attempt.note,
        vllm=config.vllm,
        mode=_mode(policy),
    )
    with lane:
        lane.bring()
        yield lane


def _prompts(unit: EvalUnit, policy: Policy) -> list[tuple[int, ...]]:
    encode = unit.prompts(policy)
    return [encode(row) for row in unit.rows]


def _mode(policy: Policy) -> Mode:
    """vLLM takes plain LoRA as an adapter; all else is merged."""
    if not lora.adapted(policy.model) or lora.reaches_stacks(policy.model):
        return "full"
    return "full" if policy.model.peft_config["default"].use_dora else "adapter"


def _kv_gib(config: EvalRerunConfig, policy: Policy, window: int) -> int:
    shape = ModelShape.of_config(policy.model.config.to_dict())
    return 1 if shape is None else shape.served_kv_gib(config.rollout_batch * window)


def _rank(policy: Policy) -> int:
    return int(policy.model.peft_config["default"].r) if lora.adapted(policy.model) else 0
