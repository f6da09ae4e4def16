"""`rl_run`, from its first weight to its report: builds the real parts and runs the loop.

Order matters: the split stands first; the step-0 policy (after the warm-up) is checkpoint, KL
reference and baseline at once; `report` rows are looked at after the last gate only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from engine.contract.errors import NightlaneError
from engine.contract.kinds.rl_run import RLRunConfig, data_files
from engine.contract.rl.cautions import cautions
from engine.contract.trace import TraceWriter
from engine.data.heldout import load_rows
from engine.data.leaks import settled
from engine.data.seen import HELDOUT_SEEN, seen_before
from engine.rewards.of_run import build_reward
from engine.rl import parts, proof, ranked, serving
from engine.rl.guards.rollback import run_with_rollbacks
from engine.rl.journal import Journal
from engine.rl.loop import RLLoop
from engine.rl.recorder import LoopRecorder, read_state
from engine.rl.report import final_report, run_result
from engine.rl.state import LoopState
from engine.rl.trainer import Trainer
from engine.rl.warmup import step_zero
from engine.run.checkpoint import CheckpointStore
from engine.run.ranks import Ranks
from engine.run.recorder import Recorder
from engine.run.report import ended
from engine.run.session import Attempt


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt of an `rl_run`; the final result, which of several ranks the first one has.

    Raises RLLoopError for what cannot run, WarmupError, and Aborted or Declined with the result
    so far.
    """
    config = attempt.config
    assert isinstance(config, RLRunConfig)
    return ranked.run(attempt, config, lambda *given: _Run(attempt, config, *given).execute())


class _Run:
    """The parts of one attempt, wired."""

    def __init__(
        self, attempt: Attempt, config: RLRunConfig, ranks: Ranks, trace: TraceWriter
    ) -> None:
        self.attempt, self.config, self.ranks, self.trace = attempt, config, ranks, trace
        self.bench, benches, said = load_rows(config)
        self.journal = Journal(attempt.run.rollouts)
        split = settled(self.bench.questions, benches, attempt.run.split, config)
        self.store = CheckpointStore(attempt.run, attempt.warn)
        self.resumed = self.store.newest()
        self.state = None if self.resumed is None else read_state(self.resumed, attempt)
        attempt.begin(
            self.resumed,
            # Rows are proven by the frozen split, whatever stands beside them in their file.
            but={str(path) for path in data_files(config)},
            max_steps=config.max_steps,
            base=config.base,
            domain=self.bench.name,
            alerts=self.state.alerts if self.state else [],
        )
        parts.say(attempt, said, cautions(config))
        self.policy = parts.open_policy(attempt, config)
        self.reward = build_reward(config, split.rows)
        self.prompts = parts.build_run_prompts(attempt, config, self.policy, split, self.bench)
        self.lane = serving.build_lane(
            attempt, config, self.policy, self.prompts, resumed=self.resumed, trace=trace
        )
        self.make_room = serving.make_room_by(self.lane)
        self.gate = parts.build_gate(config, self.policy, self.reward, self.lane, config.decide)

    def execute(self) -> dict[str, Any]:
        """From the first weight to the report. A serving lane is down when this ends."""
        with self.lane or nullcontext():
            self.attempt.peaks.end("lane-bringup")
            self.served = serving.served(self.lane, self.config)
            serving.warn_of_change(self.resumed, self.served, self.attempt.warn)
            return self._from_step_zero()

    def _from_step_zero(self) -> dict[str, Any]:
        """Step-0 policy → loop → report."""
        first = self.store.verified(0) if proof.stands(self.attempt.run, self.resumed) else None
        given = (self.attempt, self.policy, self.prompts, self.gate)
        self.warmup = step_zero(*given, resumed=self.resumed, first=first, make_room=self.make_room)
        # Takes the KL reference.
        trainer = ranked.lead(self.config, self.policy, self.ranks, self.prompts.split.train)
        recorder = self._recorder(trainer)
        checks = proof.checks(self.config, trainer, self.prompts, self.store.folder(0), self.lane)
        if self.resumed is None:
            self.journal.forget_after(0)  # it was sampled by weights that are gone
        else:
            if first is None:
                self.store.make_anew(0, lambda: recorder.publish(LoopState()))
                recorder.prove(checks, anew=True)
            trainer.load(self.resumed.path)
        loop = self._loop(trainer, recorder, lambda: recorder.prove(checks))
        try:
            refusal = run_with_rollbacks(loop, self.store, trainer, recorder)
            report = {}
            if refusal is None or refusal.final:
                report = final_report(self.attempt, self.store, loop, self.policy, recorder)
        except NightlaneError as stop:
            if stop.resumable:
                stop.result = self._result(loop, recorder) | {"aborted": True}
            raise
        result = self._result(loop, recorder) | report
        return ended(self.attempt, loop.state.step, result, refusal)

    def _recorder(self, trainer: Trainer) -> LoopRecorder:
        facts = {"warmup": self.warmup, "serving": self.served}
        card = {"serving": self.served, **parts.of_policy(self.policy)}
        keep, resumed = self.config.keep_checkpoints, self.resumed
        common = Recorder(
            self.attempt, self.store, resumed=resumed, keep=keep, facts=facts, card=card
        )
        return LoopRecorder(common, self.trace, self.config, save=trainer.save)

    def _loop(self, trainer: Trainer, recorder: LoopRecorder, prove: Callable[[], None]) -> RLLoop:
        split = self.prompts.split
        loop = RLLoop(
            self.config,
            self.reward,
            self.bench,
            sampler=ranked.sampler(self.config, self.policy, split.train, self.lane, self.ranks),
            trainer=trainer,
            heldout_eval=self.gate,
            progress_cb=self.attempt.progress_with_memory,
            observer=recorder,
            split=split,
            state=self.state,
            journal=self.journal,
            prove=prove,
            benches=parts.build_benches(self.config, self.policy, self.reward, split, self.lane),
            make_room=self.make_room,
        )
        for text in () if self.resumed else seen_before(self.config, split):
            loop.alert(HELDOUT_SEEN, text)
        return loop

    def _result(self, loop: RLLoop, recorder: LoopRecorder) -> dict[str, Any]:
        upstream = {"sft_init": self.warmup, "bench": self.bench.name}
        return run_result(self.attempt, loop, recorder, upstream) | {"serving": self.served}
