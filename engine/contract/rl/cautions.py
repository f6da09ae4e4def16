"""What a config may say but has gone wrong before: said when it is enqueued, never refused.

Knows settings, and what an adapter's folder says of itself; whether the run collapses is the
collapse guard's to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from engine.contract.adapter_folder import base_cautions
from engine.contract.errors import ConfigProblem
from engine.contract.rl.objective import ObjectiveConfig
from engine.contract.rl.optim import OptimConfig
from engine.contract.verifiers import READS_TEXT

COLLAPSED_LR = 5e-5
COLLAPSED_KL_COEF = 0.001
LEAST_LORA_LR = 5e-6
"""Below it LoRA hardly leaves its start within a night: measured on the tiny model, 34 steps at
1e-6 changed nothing, at 1e-4 they took it from 0.33 to 0.93."""
SHORT_ANSWER = 16
"""Tokens: what `max_new_tokens` is by default, enough for a number and for no reasoning."""
_REASONS = READS_TEXT | {
    *("apps", "reasoning_gym", "ifeval", "ifeval_prompt_strict", "ifeval_inst_strict"),
    *("humaneval", "humaneval_pass_at_1", "mbpp", "mbpp_pass_at_1"),
}


class Knobs(Protocol):
    """What of an `rl_run` config decides here."""

    @property
    def base(self) -> str: ...
    @property
    def lr(self) -> float: ...
    @property
    def kl_coef(self) -> float: ...
    @property
    def tuning(self) -> str: ...
    @property
    def adapter_init(self) -> str | None: ...
    @property
    def max_steps(self) -> int: ...
    @property
    def verifier(self) -> str: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def objective(self) -> ObjectiveConfig: ...
    @property
    def optim(self) -> OptimConfig: ...


def cautions(config: Knobs) -> Iterator[ConfigProblem]:
    """One entry a caution, in the form of a config problem."""
    if config.adapter_init is not None:
        yield from base_cautions("adapter_init", Path(config.adapter_init), config.base)
    if config.lr >= COLLAPSED_LR and config.kl_coef <= COLLAPSED_KL_COEF:
        yield ConfigProblem(
            "lr",
            config.lr,
            f"with kl_coef={config.kl_coef:g} is what collapsed within 15 steps in experiments",
            "lr 1e-6 with kl_coef 0.001 stayed stable, as did lr 1e-5 with kl_coef 0.04",
        )
    # AdamW moves a weight by about lr a step at most; an adapter that is given is not at zero.
    fresh = config.tuning != "full" and config.adapter_init is None
    if fresh and 0 < config.lr < LEAST_LORA_LR:
        yield ConfigProblem(
            "lr",
            config.lr,
            "is about the most that a weight moves in a step, and with tuning: "
            f"{config.tuning} they start at zero: {config.max_steps} steps may change nothing",
            "LoRA takes 1e-5 to 1e-4; 1e-6 is for tuning: full",
        )
    if config.optim.warmup_steps >= config.max_steps:
        yield ConfigProblem(
            "optim.warmup_steps",
            config.optim.warmup_steps,
            f"lasts as long as the run (max_steps={config.max_steps}): lr is reached at its end or "
            "never",
            "set it to a tenth of max_steps or less",
        )
    if config.verifier in _REASONS and config.max_new_tokens <= SHORT_ANSWER:
        yield ConfigProblem(
            "max_new_tokens",
            config.max_new_tokens,
            f"cuts off what verifier: {config.verifier} reads before its end",
            "set it to what an answer takes, 256 or more where the model reasons first",
        )
    if config.objective.kl == "k1" and config.kl_coef > 0:
        yield ConfigProblem(
            "objective.kl",
            "k1",
            "as a penalty has no gradient on average, so it restrains nothing",
            "use k3 or k2, or set kl_coef to 0",
        )
