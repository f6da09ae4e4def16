"""`python -m engine selftest`: overfit ten samples; the reward must rise.

The smallest run that can tell a working loop from a broken one: the embedded model learns ten
sums by heart, a little by being shown them and the rest by reward alone, through the real sampler,
verifier, advantages, loss and optimizer. Takes seconds, downloads nothing, writes nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data import addition
from engine.data.rows import Bench, load
from engine.data.split import Split
from engine.models.tiny import NAME
from engine.rewards.of_run import build_reward
from engine.rl.loop import RLLoop
from engine.rl.parts import (
    build_gate,
    build_policy,
    build_prompts,
    build_sampler,
    build_trainer,
)
from engine.rl.warmup import prepare

SAMPLES = 10
RISE = 0.25
"""Points that the mean reward must gain; what is left out of 1 is at most half at the start."""

RECIPE = RLRunConfig(
    base=NAME,
    tuning="full",
    data={"source": addition.SOURCE, "limit": 10_000},
    warmup={"target_heldout": 0.4, "eval_every": 1, "batch_size": SAMPLES, "lr": 3e-3},
    corpus_min=1,
    tasks_per_step=SAMPLES,
    group_k=16,
    temp=1.0,
    heldout_temp=1.0,
    max_new_tokens=4,
    lr=1e-3,
    kl_coef=0.0,
    max_steps=20,
    heldout_every=10,
    force_headroom=True,
    threads=1,
)


@dataclass(frozen=True)
class SelfTest:
    """Mean reward of the first and of the last three steps."""

    before: float
    after: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.after >= self.before + RISE

    def __str__(self) -> str:
        verdict = "rose" if self.passed else "did not rise enough"
        return (
            f"selftest: the reward on {SAMPLES} samples {verdict}: {self.before:.2f} → "
            f"{self.after:.2f} in {RECIPE.max_steps} steps, {self.seconds:.0f} s"
        )


def run() -> SelfTest:
    """Deterministic on one machine."""
    started = time.monotonic()
    torch.set_num_threads(1)
    questions = load(RECIPE.data).questions
    asked = questions[7 :: len(questions) // SAMPLES][:SAMPLES]
    # Overfitting is the point: the same ten rows are taught, asked and looked at.
    split = Split(train=asked, select=asked, report=[])
    policy = build_policy(RECIPE)
    reward = build_reward(RECIPE)
    gate = build_gate(RECIPE, policy, reward)
    prompts = build_prompts(RECIPE, policy)
    prepare(policy, split, RECIPE, gate=gate, encode=prompts, listen=lambda *_: None)
    loop = RLLoop(
        RECIPE,
        reward,
        Bench("selftest", asked),
        sampler=build_sampler(RECIPE, policy, "train"),
        trainer=build_trainer(RECIPE, policy),
        heldout_eval=gate,
        split=split,
    )
    loop.run()
    scores = [loop.pool_scores[step] for step in sorted(loop.pool_scores)]
    return SelfTest(sum(scores[:3]) / 3, sum(scores[-3:]) / 3, round(time.monotonic() - started, 1))
