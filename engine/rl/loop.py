"""The loop: split → sample → reward → advantages → update → held-out gate → selection.

GRPO (arXiv 2402.03300) with one on-policy update a step, so without ratio and clipping. Control
flow alone, deterministic, torch-free: what computes comes in through three seams (sampler,
trainer, heldout_eval), and what listens through an observer. The published checkpoint is picked
by held-out `select` scores; the pool score of the training rollouts never picks anything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, SupportsFloat

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import GRPOConfig, corpus_problems
from engine.data import Question
from engine.hooks import (
    AbortCheck,
    Aborted,
    ProgressCallback,
    check_abort,
    current_rl_hooks,
    rl_hooks,
)
from engine.lineage import LineageSnapshot, snapshot
from engine.reward import RewardAdapter, Verdict
from engine.rl.advantages import USED, group_advantages
from engine.rl.curriculum import Curriculum
from engine.rl.split import Split, carve
from engine.rollout import Groups, Sampler

TrainerSeam = Callable[[Groups, Sequence[Sequence[float]], int], Mapping[str, float]]
"""`(rollouts, advantages, step) → metrics`: one optimizer update."""
HeldoutEval = Callable[[int, Sequence[Question]], SupportsFloat]
"""`(step, tasks) → score` of the current policy; anything that converts to a float."""


class HasQuestions(Protocol):
    """What the loop needs of a bench."""

    @property
    def questions(self) -> Sequence[Question]: ...


@dataclass(frozen=True)
class StepReport:
    """What one step measured. `metrics` are series by name."""

    step: int
    pool_score: float
    """Success rate of the training rollouts."""
    trained: bool
    """False when every group tied: nothing to rank, so no update."""
    n_used: int
    keep_rate: float
    """Share of the groups whose rewards differ."""
    adv_spread: float
    """Largest minus smallest advantage used."""
    metrics: Mapping[str, float]


@dataclass
class LoopState:
    """All that a resumed loop must know; JSON as it stands."""

    step: int = 0
    heldout_scores: dict[int, float] = field(default_factory=dict)
    pool_scores: dict[int, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    aborted_after: list[int] = field(default_factory=list)
    seconds: float = 0.0
    """Time spent in steps and gates, over all attempts."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form; keys of the score tables become strings there."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> LoopState:
        """The inverse of `as_dict` through JSON."""
        tables = {
            name: {int(step): score for step, score in value[name].items()}
            for name in ("heldout_scores", "pool_scores")
        }
        return cls(**{**value, **tables})

    @property
    def selected_step(self) -> int | None:
        """The gated step with the highest held-out score, the earliest of equals."""
        scores = self.heldout_scores
        return min(scores, key=lambda step: (-scores[step], step)) if scores else None

    def gates_without_best(self) -> int:
        """How many gates lie behind the best one."""
        best = self.selected_step
        return sum(1 for step in self.heldout_scores if best is not None and step > best)


class LoopObserver:
    """Listens to a loop; this one does nothing. Called in the order of the methods."""

    def phase(self, name: str, step: int) -> None:
        """A phase of `engine.contract.events.PHASES` begins."""

    def sampled(
        self,
        step: int,
        tasks: Sequence[Question],
        groups: Groups,
        verdicts: Sequence[Sequence[Verdict]],
        advantages: Sequence[Sequence[float]],
    ) -> None:
        """Rollouts of a step are judged; nothing has been trained on them."""

    def stepped(self, report: StepReport, state: LoopState) -> None:
        """A step is over."""

    def gated(self, step: int, result: SupportsFloat, state: LoopState) -> None:
        """A held-out gate is over; its score stands in the state."""

    def checkpoint(
        self,
        state: LoopState,  # noqa: ARG002 - for those who override
        *,
        gate: bool,  # noqa: ARG002 - for those who override
        stopping: bool,  # noqa: ARG002 - for those who override
    ) -> bool:
        """The state is resumable here; returns whether it was kept.

        Asked before the baseline, after each step with its gate, and when stopping.
        """
        return True


class RLLoop:
    """Construct with config, reward and bench; inject the seams; `run()`.

    A split given here must be carved by `engine.rl.split.carve`; without one the loop carves it.
    Explicit `progress_cb` and `should_abort` win over the ambient `rl_hooks`.
    """

    def __init__(
        self,
        config: GRPOConfig,
        reward: RewardAdapter,
        bench: HasQuestions,
        *,
        sampler: Sampler | None = None,
        trainer: TrainerSeam | None = None,
        heldout_eval: HeldoutEval | None = None,
        progress_cb: ProgressCallback | None = None,
        should_abort: AbortCheck | None = None,
        observer: LoopObserver | None = None,
        split: Split | None = None,
        state: LoopState | None = None,
    ) -> None:
        self.config = config
        self.reward = reward
        self.bench = bench
        self.sampler = sampler
        self.trainer = trainer
        self.heldout_eval = heldout_eval
        self.progress_cb = progress_cb
        self.should_abort = should_abort
        self.observer = observer or LoopObserver()
        self.split = split
        self.state = state or LoopState()
        self._saved = state is not None
        """Whether a checkpoint of the current step stands."""
        self._aborted = False

    @property
    def heldout_scores(self) -> Mapping[int, float]:
        """Score on `select` by step; 0 is the untrained policy."""
        return self.state.heldout_scores

    @property
    def pool_scores(self) -> Mapping[int, float]:
        """Success rate of the training rollouts by step."""
        return self.state.pool_scores

    @property
    def selected_step(self) -> int | None:
        """The step whose checkpoint held-out picked; None before the first gate."""
        return self.state.selected_step

    @property
    def selected_heldout_score(self) -> float | None:
        """Its score on `select`."""
        step = self.selected_step
        return None if step is None else self.state.heldout_scores[step]

    def run(self) -> LineageSnapshot:
        """Run to `max_steps` and return the run card.

        Raises RLLoopError for a corpus under its floor or a missing seam, Aborted on request;
        the state is then that after the last complete step.
        """
        self._refuse_unfit()
        config = self.config
        self.split = self.split or carve(
            self.bench.questions,
            heldout_frac=config.heldout_frac,
            select_frac=getattr(config, "select_frac", 0.5),
            seed=config.seed,
        )
        with self._hooks():
            try:
                self._run(self.split)
            except Aborted:
                self._stop_resumable()
                raise
        return self.lineage()

    def lineage(self) -> LineageSnapshot:
        """The run card so far."""
        state = self.state
        return snapshot(state.heldout_scores, state.pool_scores, state.aborted_after)

    def summary(self) -> dict[str, Any]:
        """What goes into the job's result: scores, selection, history, run card."""
        state = self.state
        return {
            "base": self.config.base,
            "n_steps": state.step,
            "selected_step": self.selected_step,
            "selected_heldout_score": self.selected_heldout_score,
            "selected_on": "heldout/select",
            "heldout_scores": {str(step): s for step, s in state.heldout_scores.items()},
            "pool_scores": {str(step): s for step, s in state.pool_scores.items()},
            "step_history": state.history,
            "lineage_card": self.lineage().as_dict(),
            "aborted": self._aborted,
        }

    def step(self, index: int, train: Sequence[Question]) -> StepReport:
        """One GRPO step: P prompts × G rollouts → one optimizer update."""
        assert self.sampler is not None
        assert self.trainer is not None
        tasks = Curriculum(train, self.config.tasks_per_step, self.config.seed).draw(index)
        self.observer.phase("sampling", index)
        groups = self.sampler(tasks, self.config.group_k)
        verdicts = self._judge(tasks, groups)
        advantages_PG = group_advantages(
            [[v.reward for v in verdicts_G] for verdicts_G in verdicts]
        )
        self.observer.sampled(index, tasks, groups, verdicts, advantages_PG)
        metrics = _rollout_metrics(groups, verdicts)
        used = [a for advantages_G in advantages_PG for a in advantages_G if abs(a) >= USED]
        if used:
            self.observer.phase("training", index)
            metrics |= self.trainer(groups, advantages_PG, index)
        return StepReport(
            step=index,
            pool_score=self._success_rate(verdicts),
            trained=bool(used),
            n_used=len(used),
            keep_rate=sum(map(any, advantages_PG)) / len(advantages_PG),
            adv_spread=max(used) - min(used) if used else 0.0,
            metrics=metrics,
        )

    def _run(self, split: Split) -> None:
        if not self._saved:
            self._checkpoint(gate=False)
        self._gate_if_due(split)
        while self.state.step < self.config.max_steps and not self._out_of_patience():
            check_abort()
            started = time.monotonic()
            report = self.step(self.state.step + 1, split.train)
            self._take_over(report, time.monotonic() - started)
            gated = self._gate_if_due(split)
            self._checkpoint(gate=gated)

    def _take_over(self, report: StepReport, seconds: float) -> None:
        """The step is complete: from here on its weights and its record stand together."""
        state = self.state
        state.step = report.step
        state.pool_scores[report.step] = report.pool_score
        state.seconds += seconds
        entry = asdict(report)
        entry.pop("metrics")
        state.history.append({**entry, "seconds": round(seconds, 3)})
        self._saved = False
        self.observer.stepped(report, state)
        self._progress(
            step=report.step,
            max_steps=self.config.max_steps,
            pool_score=report.pool_score,
            keep_rate=report.keep_rate,
            n_used=report.n_used,
            adv_spread=report.adv_spread,
            trained=report.trained,
            eta_s=self._eta(),
        )

    def _gate_if_due(self, split: Split) -> bool:
        """The held-out gate: before step 1, at most `heldout_every` steps apart, and at the end."""
        step = self.state.step
        due = step % self.config.heldout_every == 0 or step >= self.config.max_steps
        if not due or step in self.state.heldout_scores:
            return False
        assert self.heldout_eval is not None
        started = time.monotonic()
        self.observer.phase("heldout-gate", step)
        result = self.heldout_eval(step, split.select)
        self.state.heldout_scores[step] = float(result)
        self.state.seconds += time.monotonic() - started
        self.observer.gated(step, result, self.state)
        self._progress(last_heldout=float(result))
        return True

    def _out_of_patience(self) -> bool:
        patience = self.config.heldout_patience
        return patience is not None and self.state.gates_without_best() >= patience

    def _judge(self, tasks: Sequence[Question], groups: Groups) -> list[list[Verdict]]:
        verdicts = []
        for task, group in zip(tasks, groups, strict=True):
            check_abort()
            verdicts.append(
                self.reward.judge_all(
                    [(rollout.text, task.answer) for rollout in group],
                    [rollout.truncated for rollout in group],
                )
            )
        return verdicts

    def _success_rate(self, verdicts: Sequence[Sequence[Verdict]]) -> float:
        return statistics.fmean(
            float(self.reward.success(v)) for verdicts_G in verdicts for v in verdicts_G
        )

    def _stop_resumable(self) -> None:
        """Whatever phase the abort fell into, the weights are those after the last whole step."""
        self._aborted = True
        if self.state.step not in self.state.aborted_after:
            self.state.aborted_after.append(self.state.step)
        if not self._saved:
            self._checkpoint(gate=False, stopping=True)

    def _checkpoint(self, *, gate: bool, stopping: bool = False) -> None:
        self._saved = self.observer.checkpoint(self.state, gate=gate, stopping=stopping)

    def _eta(self) -> float:
        """Seconds to the end at the pace of the last steps."""
        recent = [float(entry["seconds"]) for entry in self.state.history[-10:]]
        return round(statistics.median(recent) * (self.config.max_steps - self.state.step), 1)

    def _progress(self, **fields: Any) -> None:
        callback = current_rl_hooks().progress_cb
        if callback is not None:
            callback(fields)

    def _hooks(self) -> Any:
        """Explicit hooks win; a hook that was not given stays the ambient one."""
        if self.progress_cb is None and self.should_abort is None:
            return nullcontext()
        ambient = current_rl_hooks()
        return rl_hooks(
            self.progress_cb or ambient.progress_cb, self.should_abort or ambient.should_abort
        )

    def _refuse_unfit(self) -> None:
        problems = corpus_problems(len(self.bench.questions), self.config)
        if problems:
            raise RLLoopError(problems)
        for name in ("sampler", "trainer", "heldout_eval"):
            if getattr(self, name) is None:
                raise RLLoopError.of(
                    name, None, "is missing", "inject one, or take those of gpu_seams(config)"
                )


def _rollout_metrics(groups: Groups, verdicts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    """What the rollouts of a step look like, before anything is trained on them."""
    rewards_PG = [[v.reward for v in verdicts_G] for verdicts_G in verdicts]
    rewards = [reward for rewards_G in rewards_PG for reward in rewards_G]
    rollouts = [rollout for group in groups for rollout in group]
    distinct = sum(len({r.completion_ids for r in group}) for group in groups)
    return {
        "pool/reward_mean": statistics.fmean(rewards),
        "pool/reward_std": statistics.pstdev(rewards),
        "rollout/length_mean": statistics.fmean(len(r.completion_ids) for r in rollouts),
        "rollout/truncated": statistics.fmean(float(r.truncated) for r in rollouts),
        "rollout/zero_variance": statistics.fmean(
            float(max(rewards_G) - min(rewards_G) < USED) for rewards_G in rewards_PG
        ),
        "rollout/duplicates": 1 - distinct / len(rollouts),
    }
