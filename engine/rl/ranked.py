"""An `rl_run` of several ranks: the first runs the loop, the others draw and learn with it.

What is decided, judged, scored, written down or asked of a server is the first rank's alone. It
tells the others each order before it takes part in it: a step's prompts, of which each rank draws
its stretch, and a step's groups, of which each learns its own. Gradients are added up, so that
every rank makes the same update.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig, ranks_problems
from engine.contract.trace import TraceWriter
from engine.data.rows import Question
from engine.models.policy import Policy
from engine.rl import parts
from engine.rl.trainer import Trainer
from engine.run.ranks import Ranks
from engine.run.session import Attempt
from engine.run.stop import Aborted, Collapsed
from engine.sampling.base import Groups, Sampler
from engine.sampling.vllm.lane import ServingLane

_PATIENCE_S = datetime.timedelta(days=7).total_seconds()
"""Others wait while the first warms up or scores. Who is gone is noticed at once all the same."""


class _Draw(NamedTuple):
    tasks: Sequence[Question]
    k: int


class _Learn(NamedTuple):
    groups: Groups
    advantages: Sequence[Sequence[float]]
    step: int
    lr_scale: float


class _Load(NamedTuple):
    folder: Path


class LeadingTrainer(Trainer):
    """The first rank's: the others make each of its updates with it."""

    def __call__(
        self, rollouts: Groups, advantages: Sequence[Sequence[float]], step: int
    ) -> Mapping[str, float]:
        self.ranks.from_first(lambda: _Learn(rollouts, advantages, step, self.lr_scale))
        return super().__call__(rollouts, advantages, step)

    def load(self, folder: Path) -> None:
        self.ranks.from_first(lambda: _Load(folder))
        super().load(folder)


class LeadingSampler:
    """The first rank's: each rank draws its stretch of the prompts."""

    def __init__(self, ranks: Ranks, own: Sampler) -> None:
        self._ranks, self._own = ranks, own

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        self._ranks.from_first(lambda: _Draw(tasks, k))
        return _drawn(self._ranks, self._own, tasks, k)


def run(
    attempt: Attempt,
    config: RLRunConfig,
    first: Callable[[Ranks, TraceWriter], dict[str, Any]],
) -> dict[str, Any]:
    """What `first` comes to on the first rank, with the help of the others; they have no result.

    Raises RLLoopError for what so many learner ranks cannot do.
    """
    ranks = Ranks.join(_PATIENCE_S, config.threads)
    if problems := ranks_problems(config, ranks.size):
        raise RLLoopError(problems)
    with ranks.together():
        if not ranks.is_first:
            _follow(attempt, config, ranks)
            return {}
        with closing(TraceWriter(attempt.run.trace, attempt.job.attempt)) as trace:
            result = first(ranks, trace)
        ranks.from_first(_over)
        return result


def lead(config: RLRunConfig, policy: Policy, ranks: Ranks, train: Sequence[Question]) -> Trainer:
    """The first rank's trainer, once its policy stands at step 0: all begin with its weights."""
    ranks.from_first(lambda: train)
    ranks.share_weights(policy.trainable().values())
    return parts.build_trainer(config, policy, ranks, LeadingTrainer if ranks.size > 1 else Trainer)


def sampler(
    config: RLRunConfig,
    policy: Policy,
    train: Sequence[Question],
    lane: ServingLane | None,
    ranks: Ranks,
) -> Sampler:
    """Of training rollouts, on the first rank: it asks a server for all."""
    own = parts.build_sampler(config, policy, "train", train, lane)
    return own if lane is not None or ranks.size == 1 else LeadingSampler(ranks, own)


def _follow(attempt: Attempt, config: RLRunConfig, ranks: Ranks) -> None:
    """Every other rank: does what the first one tells, until that has its result."""
    policy = parts.build_policy(config, attempt.now)
    train: Sequence[Question] = ranks.from_first(list)
    ranks.share_weights(policy.trainable().values())
    trainer = parts.build_trainer(config, policy, ranks)
    own = parts.build_sampler(config, policy, "train", train)
    while (order := ranks.from_first(_over)) is not None:
        try:
            _obey(order, ranks, trainer, own)
        except (Aborted, Collapsed):
            continue  # all ranks raised it: what comes of it is decided by the first


def _over() -> _Draw | _Learn | _Load | None:
    return None


def _obey(order: _Draw | _Learn | _Load, ranks: Ranks, trainer: Trainer, sampler: Sampler) -> None:
    match order:
        case _Draw(tasks, k):
            _drawn(ranks, sampler, tasks, k)
        case _Learn(groups, advantages, step, lr_scale):
            trainer.lr_scale = lr_scale
            trainer(groups, advantages, step)
        case _Load(folder):
            trainer.load(folder)


def _drawn(ranks: Ranks, sampler: Sampler, tasks: Sequence[Question], k: int) -> Groups:
    mine: Groups = []
    with ranks.stopping_together():
        mine = sampler(ranks.part(tasks), k)
    return ranks.gather(list(mine))
