"""A stage-2 run, from its model to its report: builds the real parts and runs the Trainer.

Order matters: the step-0 model (after the warm-up) is a checkpoint before anything trains, the
validation records pick the best, and the report records are looked at after the last step only.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.contract.errors import NightlaneError
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.envelope import with_decode_batch
from engine.contract.trace import TraceWriter
from engine.run.checkpoint import CheckpointStore
from engine.run.ranks import Ranks
from engine.run.recorder import Recorder
from engine.run.report import ended
from engine.run.session import Attempt
from engine.run.stop import Declined
from engine.stage2 import corpus, opening
from engine.stage2.arguments import TRAINER_STATE, require_arguments
from engine.stage2.callback import RunCallback, train
from engine.stage2.kept_batch import batch_facts, with_batch_of
from engine.stage2.learn.layout import ModelInputs, require_packing
from engine.stage2.parts import build_trainer
from engine.stage2.proof import prove_together
from engine.stage2.report import final_report, so_far
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.serving import build_served, require_ranks
from engine.stage2.warmup import warm_up


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt of a stage-2 kind; the final result.

    Raises NightlaneError for what cannot run, and Aborted or Declined with the result so far.
    """
    assert isinstance(attempt.config, Stage2Config)
    patience = attempt.config.training.passed_on.get("ddp_timeout", 1800)
    ranks = Ranks.join(float(patience), attempt.config.threads)
    with ranks.together():
        if not ranks.is_first:  # one process writes the trace
            return _Run(attempt, attempt.config, ranks, None).execute()
        with closing(TraceWriter(attempt.run.trace, attempt.job.attempt)) as trace:
            return _Run(attempt, attempt.config, ranks, trace).execute()


class _Run:
    """The parts of one attempt, wired."""

    def __init__(
        self, attempt: Attempt, config: Stage2Config, ranks: Ranks, trace: TraceWriter | None
    ) -> None:
        self.attempt, self.config, self.ranks, self.trace = attempt, config, ranks, trace
        require_ranks(config, ranks.size)
        self.store = CheckpointStore(
            attempt.run, attempt.warn, "checkpoint-{}", needs=TRAINER_STATE
        )
        self.resumed = opening.find_checkpoint(self.store, ranks)
        config = with_batch_of(self.resumed, config, ranks.size)
        self.config = config = with_decode_batch(config)
        domain = Path(str(config.data.train_jsonl)).name
        attempt.begin(self.resumed, writes=ranks.is_first, base=config.model.path, domain=domain)
        self.alerts: list[dict[str, Any]] = []
        self.corpus = corpus.read_corpus(attempt, config, ranks, self._alert)
        vlm = opening.open_model(attempt, config, self.corpus, ranks, self.resumed)
        opening.say_rounded(config, vlm, self._alert)
        require_arguments(config, vlm.model, attempt.run.checkpoints)
        pieces = opening.token_pieces(vlm, config)
        self.reader = PromptReader(vlm, pieces, config.data.prompt, attempt.now)
        corpus.check(attempt, config, self.corpus, self.reader, ranks=ranks, alert=self._alert)
        if self.alerts:
            attempt.progress(alerts=self.alerts)
        attempt.peaks.end("lane-bringup")

    def execute(self) -> dict[str, Any]:
        """Warm-up → Trainer → report. A serving lane is down when this ends."""
        recorder = self._begin()
        with self.served.lane if self.served is not None else nullcontext():
            return self._train(recorder)

    def _train(self, recorder: Recorder) -> dict[str, Any]:
        parts = (self.config, recorder, self.reader, self.corpus, self.ranks)
        trainer = build_trainer(*parts, served=self.served)
        callback = RunCallback(recorder, trainer, self.trace, lambda: prove_together(*parts))
        trainer.add_callback(callback)
        try:
            refusal = train(trainer, callback)
            report, alert = final_report(callback, trainer, self.corpus, self.config.report_min)
        except Declined as found:
            found.result = self._result(callback)
            raise
        except NightlaneError as stop:
            if stop.resumable:
                callback.stopped_at(trainer.state.global_step)
                stop.result = self._result(callback) | {"aborted": True}
            raise
        if recorder.writes:
            recorder.let_go(report.get("selected_step", callback.best_step))
        if alert is not None:
            self.attempt.warn(alert["code"], alert["text"])
            self.alerts.append(alert)
        result = self._result(callback) | report
        if refusal is not None:
            result["diagnosis"] = refusal.diagnosis.as_dict()
        return ended(self.attempt, trainer.state.global_step, result, refusal)

    def _alert(self, code: str, text: str) -> None:
        """In the result of every attempt; said in an event by the first one alone."""
        if self.resumed is None:
            self.attempt.warn(code, text)
        self.alerts.append({"code": code, "step": 0, "text": text})

    def _begin(self) -> Recorder:
        """Bring the model to step 0 and give it its adapter; who writes down what follows."""
        config, ranks, resumed = self.config, self.ranks, self.resumed
        self.warmup = None if resumed is None else resumed.state["warmup"]
        if config.warmup is not None and resumed is None:
            self.warmup = warm_up(self.attempt, config, self.reader, self.corpus, ranks)
        base = opening.keep_base(self.attempt, config, self.reader.vlm, ranks, is_new=not resumed)
        vlm = opening.adapted(self.attempt, self.reader.vlm, config)
        self.reader = replace(self.reader, vlm=vlm)
        if config.training.packing:
            prompt = self.reader(self.corpus.train[0])
            require_packing(vlm, ModelInputs(prompt.ids, prompt.pictures))
        self.served = build_served(
            self.attempt, config, self.reader, self.corpus, ranks, resumed=resumed, trace=self.trace
        )
        serving = {} if self.served is None else {"serving": self.served.lane.facts}
        recorder = Recorder(
            self.attempt,
            self.store,
            resumed=resumed,
            keep=config.keep_checkpoints,
            facts={"warmup": self.warmup, **base, **serving, **batch_facts(config, ranks.size)},
            card=self.reader.dated() | opening.of_model(vlm) | serving,
            writes=ranks.is_first,
        )
        if opening.restore_step_zero(recorder, config, self.reader, self.corpus, ranks):
            prove_together(config, recorder, self.reader, self.corpus, ranks, anew=True)
        return recorder

    def _result(self, callback: RunCallback) -> dict[str, Any]:
        facts = None if self.served is None else self.served.lane.facts
        found = so_far(callback, self.config, self.corpus, self.warmup)
        return found | {"serving": facts, "alerts": self.alerts, "aborted": False}
