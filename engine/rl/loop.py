"""The loop: split → sample → reward → advantages → update → held-out gate → selection.

GRPO (arXiv 2402.03300) and its relatives. Control flow alone, deterministic, torch-free: what
computes comes in through three seams (sampler, trainer, heldout_eval), what remembers a step's
rollouts through a journal, and what listens through an observer. The published checkpoint is
picked by held-out `select` scores; the pool score of the training rollouts never picks anything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol, SupportsFloat

from engine.contract.errors import NightlaneError, RLLoopError
from engine.contract.kinds.rl_run import GRPOConfig, as_run, corpus_problems
from engine.data.rows import Question, numbered, questions_of
from engine.data.split import Split, carve
from engine.evaluate.gate import GateResult
from engine.evaluate.unread import unread
from engine.rewards.adapter import RewardAdapter
from engine.rewards.soundness import Soundness
from engine.rewards.text.forms import FORMS
from engine.rl.advantages import has_signal
from engine.rl.batch import BatchSource, batch_metrics
from engine.rl.buffer import JudgedGroup
from engine.rl.guards.examples import Judged
from engine.rl.guards.guard import UPDATES, CollapseGuard, GuardMemory
from engine.rl.guards.headroom import Baseline, check_headroom
from engine.rl.guards.warnings.seen import WatchMemory
from engine.rl.guards.warnings.watch import Watch
from engine.rl.journal import Journal
from engine.rl.observer import LoopObserver, Reporter
from engine.rl.state import BenchState, LoopState, StepReport, marks_of
from engine.run.lineage import LineageSnapshot
from engine.run.stop import (
    AbortCheck,
    Collapsed,
    Diagnosis,
    ProgressCallback,
    check_abort,
    current_rl_hooks,
    rl_hooks,
    stuck_after,
)
from engine.sampling.base import Groups, Sampler
from engine.sampling.contradiction import SamplerRefused
from engine.verdict.inversion import find_inversion
from engine.verdict.trend import Tally, written

TrainerSeam = Callable[[Groups, Sequence[Sequence[float]], int], Mapping[str, float]]
"""`(rollouts, advantages, step) → metrics`: the optimizer updates of one step."""
HeldoutEval = Callable[[int, Sequence[Question]], SupportsFloat]
"""`(step, tasks) → score` of the current policy; anything that converts to a float."""

_MOST_ALERTS = 20
"""Alerts a run keeps: they travel with every progress event."""


class HasQuestions(Protocol):
    """What the loop needs of a bench: questions, or rows with a prompt and an answer."""

    @property
    def questions(self) -> Sequence[Any]: ...


class HeldoutBench(NamedTuple):
    """Rows that gates score beside those that pick."""

    name: str
    questions: Sequence[Question]
    score: HeldoutEval
    every: int = 1
    """Gates from one score to the next."""


class RLLoop:
    """Construct with config, reward and bench; inject the seams; `run()`.

    A split given here must be carved by `engine.data.split.carve`; without one the loop carves it.
    Explicit `progress_cb` and `should_abort` win over the ambient `rl_hooks`. A plain GRPOConfig
    runs without guard, headroom check and refill (`as_run`).
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
        journal: Journal | None = None,
        prove: Callable[[], None] = lambda: None,
        benches: Sequence[HeldoutBench] = (),
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = as_run(config)
        self.reward = reward
        self.bench = bench
        self.sampler = sampler
        self.trainer = trainer
        self.heldout_eval = heldout_eval
        self.progress_cb = progress_cb
        self.should_abort = should_abort
        self.observer = observer or Reporter(self._progress)
        self.split = split
        self.state = state or LoopState()
        self.journal = journal
        """Where a step's rollouts are kept, and found again by a resumed run."""
        self.prove = prove
        """Called once the first checkpoint stands; raises what must end the run before step 1."""
        self.benches = benches
        """Scored at gates; pick nothing."""
        self.make_room = make_room
        """Called before the trainer learns: what samples beside it gives its memory back."""
        self._guard, self._watch = self._guarding(), self._watching()
        self._source: BatchSource | None = None
        self._prompts: Mapping[str, int] = {}
        """Training rows by id: twins of one question have one number."""
        self._saved = state is not None
        """Whether a checkpoint of the current step stands."""
        self._aborted = False
        self._truncated = 0.0
        """Share of the last gate's completions that were cut off."""
        self._gated: SupportsFloat | None = None
        """The last gate's result."""
        self._failure: str | None = None
        """That the verifier broke on many rows of the last gate, and how."""

    @property
    def heldout_scores(self) -> Mapping[int, float]:
        """Score on `select` by step; 0 is the untrained policy."""
        return self.state.heldout_scores

    @property
    def pool_scores(self) -> Mapping[int, float]:
        """Success rate of the training rollouts by the step that sampled them."""
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

        Raises RLLoopError for a corpus under its floor or a missing seam, Aborted on request,
        SamplerRefused for rollouts that the trainer's model contradicts; the state is then that
        after the last complete step.
        """
        self._refuse_unfit()
        config = self.config
        self.split = self.split or carve(
            questions_of(self.bench.questions),
            heldout_frac=config.heldout_frac,
            select_frac=config.select_frac,
            seed=config.split_seed,
        )
        self._source = self._open_source(self.split)
        self._prompts = numbered(self.split.train)
        with self._hooks(), closing(self._source):
            try:
                self._run(self.split)
            except Collapsed as found:
                self.state.diagnosis = found.diagnosis.as_dict()
                self._saved = False
                self._save_whole_step()
                raise
            except SamplerRefused:
                # Whoever goes on samples anew; this step's completions are evidence, no more.
                if self.journal is not None:
                    self.journal.set_aside_after(self.state.step)
                self._save_whole_step()
                raise
            except NightlaneError as stop:
                if stop.resumable:  # asked to stop, or a server is gone: the run goes on later
                    self._aborted = True
                    if self.state.step not in self.state.aborted_after:
                        self.state.aborted_after.append(self.state.step)
                    self._save_whole_step()
                raise
        return self.lineage()

    @property
    def rollbacks_allowed(self) -> int:
        """How many collapses may go back to an earlier state."""
        return self.config.guard.rollbacks

    def go_back(self, state: LoopState) -> None:
        """Go on from an earlier state, whose checkpoint stands, at the next `run()`."""
        self.state, self._saved = state, True
        self._guard, self._watch = self._guarding(), self._watching()
        self._progress(step=state.step, alerts=state.alerts)

    def _guarding(self) -> CollapseGuard:
        return CollapseGuard(self.config.guard, GuardMemory(**self.state.guard))

    def _watching(self) -> Watch:
        return Watch(self.config, WatchMemory.from_dict(self.state.watch), self._sampled_before)

    def _sampled_before(self, step: int) -> Sequence[Judged]:
        """Of a step that an attempt before this one took."""
        return [] if self.journal is None else [Judged(*one) for one in self.journal.judged(step)]

    def lineage(self) -> LineageSnapshot:
        """The run card so far."""
        return self.state.card()

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
            "alerts": state.alerts,
            "inversion": state.inversion,
            "diagnosis": state.diagnosis,
            "rollbacks": state.rollbacks,
        }

    def step(self, index: int, train: Sequence[Question]) -> StepReport:
        """One step: P prompts × G rollouts → the optimizer updates of one batch."""
        assert self.trainer is not None
        assert self._source is not None
        batch = self._source.gather(index, train)
        self._guard.sampled(batch.measured)
        self._watch.sampled(batch.measured)
        metrics = batch_metrics(batch, self.reward.success, formed=self.state.formed)
        used = batch.used()
        penalised = self.config.objective.trains_on_ties(self.config.kl_coef)
        trains = bool(used) or (penalised and bool(batch.groups))
        if trains:
            self.make_room()
            self.observer.phase("training", index)
            learnt = [group.learnt() for group in batch.groups]
            metrics |= self.trainer(
                [rollouts for rollouts, _ in learnt],
                [advantages for _, advantages in learnt],
                index,
            )
            self._watch.trained(getattr(self.trainer, "farthest", None))
        return StepReport(
            step=index,
            pool_score=self._success_rate(batch.sampled),
            groups=written(self._tallies(batch.sampled)),
            trained=trains and bool(metrics.get(UPDATES, 1)),
            n_used=len(used),
            keep_rate=statistics.fmean(has_signal(g.advantages) for g in batch.measured),
            adv_spread=max(used) - min(used) if used else 0.0,
            sampled=bool(batch.sampled),
            fates=batch.fates,
            metrics=metrics,
            soundness=Soundness.of([v for group in batch.sampled for v in group.verdicts]),
        )

    # --- the run around the steps ---

    def _run(self, split: Split) -> None:
        self._give_up_again()
        if not self._saved:
            self._checkpoint(gate=False)
        self.prove()
        self._gate_if_due(split)
        if self.state.step == 0 and not self.config.force_headroom:
            check_headroom(self._baseline(), self.config)
        while self.state.step < self.config.max_steps and not self._out_of_patience():
            check_abort()
            started = time.monotonic()
            index = self.state.step + 1
            report = self._step_in_time(index, split.train)
            self._take_over(report, time.monotonic() - started)
            gated = self._gate_if_due(split)
            self._checkpoint(gate=gated)

    def _baseline(self) -> Baseline:
        """The gate before the first step, and where it is low what could not be read of it."""
        score, found = self.state.heldout_scores[0], None
        if score <= self.config.guard.headroom_floor and isinstance(self._gated, GateResult):
            found = unread(self._gated, [name for name, _ in self.config.reward_parts])
        return Baseline(score, self._truncated, self._failure, found)

    def _step_in_time(self, index: int, train: Sequence[Question]) -> StepReport:
        """Raises Collapsed where the step takes far longer than this run's steps do."""
        limit = self._guard.stuck_after()
        with stuck_after(limit, lambda: self._guard.stuck(index, limit or 0.0)):
            return self.step(index, train)

    def _give_up_again(self) -> None:
        """A collapse lies in the weights and stays; a step that was stuck may go through now."""
        known, self.state.diagnosis = self.state.diagnosis, None
        if known is not None:
            again = Collapsed(Diagnosis(**known))
            if again.final:
                raise again

    def _take_over(self, report: StepReport, seconds: float) -> None:
        """The step is complete: from here on its weights and its record stand together.

        Raises Collapsed when the guard gives the run up on it.
        """
        state = self.state
        state.step = report.step
        state.version = report.step if report.trained else state.version
        state.samplings += 1 if report.sampled else 0
        if report.pool_score is not None:
            state.pool_scores[report.step] = report.pool_score
            state.pool_groups[report.step] = report.groups
        state.seconds += seconds
        state.formed = state.formed or any(f"format/{form}" in report.metrics for form in FORMS)
        if self._source is not None:
            state.drawn = self._source.drawn
            state.buffer = self._source.waiting()
        kept = asdict(report).items()
        entry = {k: v for k, v in kept if k not in {"metrics", "fates", "groups"}}
        state.history.append({**entry, "seconds": round(seconds, 3)})
        self._saved = False
        diagnosis = self._guard.stepped(
            report.step, report.metrics, ranked=report.n_used > 0, seconds=seconds
        )
        state.guard = asdict(self._guard.memory)
        measured = self.observer.stepped(report, state)
        self._warn(self._watch.stepped(state, measured, ranked=report.n_used > 0))
        self._look_for_failures("training rollouts", state.soundness())
        self._progress(
            step=report.step,
            max_steps=self.config.max_steps,
            **({} if report.pool_score is None else {"pool_score": report.pool_score}),
            keep_rate=report.keep_rate,
            n_used=report.n_used,
            adv_spread=report.adv_spread,
            trained=report.trained,
            eta_s=self._eta(),
        )
        if diagnosis is not None:
            raise Collapsed(diagnosis)

    def _warn(self, found: Sequence[dict[str, Any]]) -> None:
        """Say what the watch found; what it has seen stands in the state from here on."""
        self.state.watch = self._watch.memory.as_dict()
        for one in found:
            self.alert(**one)

    def alert(self, code: str, text: str, step: int | None = None, **more: Any) -> None:
        """Say it in the events, on the page and in the result; of the state's step if not said.
        `more`: numbers and samples that show it.
        """
        alerts, step = self.state.alerts, self.state.step if step is None else step
        alerts.append({"code": code, "step": step, "text": text, **more})
        del alerts[:-_MOST_ALERTS]
        self.observer.alerted(code, step, text)
        self._progress(alerts=alerts)

    def _gate_if_due(self, split: Split) -> bool:
        """The held-out gate: before step 1, at most `heldout_every` steps apart, and at the end."""
        step = self.state.step
        due = step % self.config.heldout_every == 0 or step >= self.config.max_steps
        if not due or step in self.state.heldout_scores:
            return False
        assert self.heldout_eval is not None
        started = time.monotonic()
        self.observer.phase("heldout-gate", step)
        self._settle()
        result = self.heldout_eval(step, split.select)
        self.state.heldout_scores[step] = float(result)
        if kept := marks_of(result):
            self.state.heldout_solved[step] = kept
        self._truncated = float(getattr(result, "truncated", 0.0))
        self.observer.gated(step, result, self.state)
        self._progress(last_heldout=float(result))
        self._failure, self._gated = getattr(result, "failure", None), result
        found = getattr(result, "soundness", None)
        if found is not None:
            self._look_for_failures("held-out rows", found)
        self._look_for_inversion()
        self._warn(self._watch.gated(self.state, result))
        gates = len(self.state.heldout_scores) - 1
        for bench in self.benches:
            if gates % bench.every == 0 or step >= self.config.max_steps:
                self.score(bench, step)
        self.state.seconds += time.monotonic() - started
        return True

    def _settle(self) -> None:
        """A gate samples with weights of its own: nothing is drawn meanwhile."""
        if self._source is not None:
            self._source.settle()

    def benches_behind(self, step: int) -> list[HeldoutBench]:
        """Those that were not scored at a step."""
        known = self.state.benches
        return [b for b in self.benches if b.name not in known or step not in known[b.name].solved]

    def score(self, bench: HeldoutBench, step: int) -> None:
        """A bench by the policy as it is."""
        check_abort()
        result = bench.score(step, bench.questions)
        kept = self.state.benches.setdefault(bench.name, BenchState())
        kept.scores[step], kept.solved[step] = float(result), marks_of(result)
        kept.shares[step] = getattr(result, "shares", dict)()
        self.observer.benched(bench.name, result)

    def _look_for_failures(self, where: str, found: Soundness) -> None:
        """Say once of the training and once of the held-out rows that the verifier breaks: that
        looks like a policy that knows nothing.
        """
        for code, text in found.alerts(where):
            said = any(a["code"] == code and where in a["text"] for a in self.state.alerts)
            if not said:
                self.alert(code, text)

    def _look_for_inversion(self) -> None:
        """Say once for each best gate that the run fell from it while the pool rose."""
        state = self.state
        if not state.heldout_solved:
            return
        found = find_inversion(
            state.outcomes(), state.pool_scores, self.config.guard, state.pool_groups
        )
        if found is None:
            return
        known = state.inversion and state.inversion["best"] == found.best
        state.inversion = found.as_dict()
        if not known:
            self.alert("INVERSION", found.text())

    def _out_of_patience(self) -> bool:
        patience = self.config.heldout_patience
        return patience is not None and self.state.gates_without_best() >= patience

    def _success_rate(self, sampled: Sequence[JudgedGroup]) -> float | None:
        """By the measure of the held-out gate, whatever the step pays; None: nothing counts."""
        counted = [v for group in sampled for v in group.verdicts if v.counted]
        return statistics.fmean(map(self.reward.success, counted)) if counted else None

    def _tallies(self, sampled: Sequence[JudgedGroup]) -> list[Tally]:
        """The same by prompt: what a trend is tested on."""
        found = []
        for group in sampled:
            counted = [v for v in group.verdicts if v.counted]
            solved = sum(map(self.reward.success, counted))
            found.append(Tally(self._prompts[group.task.id], solved, len(counted)))
        return [tally for tally in found if tally.judged]

    def _save_whole_step(self) -> None:
        """Whatever phase the stop fell into, the weights are those after the last whole step."""
        if not self._saved:
            self._checkpoint(gate=False, stopping=True)

    def _checkpoint(self, *, gate: bool, stopping: bool = False) -> None:
        self._saved = self.observer.checkpoint(self.state, gate=gate, stopping=stopping)

    def _eta(self) -> float:
        """Seconds to the end at the pace of the last steps."""
        recent = [float(entry["seconds"]) for entry in self.state.history[-10:]]
        return round(statistics.median(recent) * (self.config.max_steps - self.state.step), 1)

    def _progress(self, **fields: Any) -> None:
        callback = self.progress_cb or current_rl_hooks().progress_cb
        if callback is not None:
            callback(fields)

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        """Explicit hooks win; a hook that was not given stays the ambient one."""
        ambient = current_rl_hooks()
        with rl_hooks(
            self.progress_cb or ambient.progress_cb, self.should_abort or ambient.should_abort
        ):
            yield

    def _open_source(self, split: Split) -> BatchSource:
        assert self.sampler is not None
        source = BatchSource(
            self.config,
            self.sampler,
            self.reward,
            state=self.state,
            observer=self.observer,
            journal=self.journal,
        )
        source.restore(self.state.buffer, split.train)
        return source

    def _refuse_unfit(self) -> None:
        problems = corpus_problems(len(self.bench.questions), self.config)
        if problems:
            raise RLLoopError(problems)
        for name in ("sampler", "trainer", "heldout_eval"):
            if getattr(self, name) is None:
                raise RLLoopError.of(
                    name, None, "is missing", "inject one, or take those of gpu_seams(config)"
                )
