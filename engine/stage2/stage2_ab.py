"""The composition root of `stage2_ab`: builds the real parts, runs the Trainer, tells the result.

Order matters: the step-0 model (after the warm-up) is a checkpoint before anything trains, the
validation records pick the best, and the report records are looked at after the last step only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PrinterCallback

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.intervals import compare
from engine.contract.sources.heldout import VAL_TRAINED, val_alert
from engine.contract.sources.records import Record, read_records
from engine.contract.stage2.config import EMBEDDED_MODELS, Stage2Config, WarmupConfig
from engine.contract.stage2.precision import UPDATES_ROUNDED, rounded_updates
from engine.contract.stage2.rollout_matching import DecodingConfig
from engine.models.qwen3_vl import VisionModel, add_coord_tokens_command, load
from engine.run import memory
from engine.run.checkpoint import Checkpoint, CheckpointStore, weights_of
from engine.run.report import report_once, to_score
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks, stop_asked
from engine.stage2 import warmed_base
from engine.stage2.adapters import with_adapter
from engine.stage2.arguments import require_arguments, training_arguments
from engine.stage2.bridge import Earlier, RunBridge
from engine.stage2.channel_a import SoftContext
from engine.stage2.channel_b import ChannelB
from engine.stage2.embedded import files as embedded
from engine.stage2.evaluation import Evaluation, RolloutEval, lift_interval
from engine.stage2.learn.layout import Shown, require_packing
from engine.stage2.learn.learner import Learner, PackPlan
from engine.stage2.learn.objective import LossWeights
from engine.stage2.parse.pieces import TokenizerError, TokenPieces
from engine.stage2.preflight import PIXEL_BOXES, Finding, alerts, in_pixels, look, unfit
from engine.stage2.ranks import Ranks
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.segments import CEWeights
from engine.stage2.trainer import NonFiniteError, Stage2Parts, Stage2Trainer
from engine.stage2.warmup import Warmup, WarmupReport, cached, load_kept, recipe_hash
from engine.verdict.verdicts import Verdict, published_step

Made = TypeVar("Made")


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt of a `stage2_ab`; the final result.

    Raises NightlaneError for what cannot run, and Aborted or Declined with the result so far.
    """
    assert isinstance(attempt.config, Stage2Config)
    torch.set_num_threads(attempt.config.threads or os.cpu_count() or 1)
    patience = attempt.config.training.passed_on.get("ddp_timeout", 1800)
    return _Run(attempt, attempt.config, Ranks.join(float(patience))).execute()


class _Run:
    """The parts of one attempt, wired."""

    def __init__(self, attempt: Attempt, config: Stage2Config, ranks: Ranks) -> None:
        assert config.stage2_ab is not None
        self.ranks = ranks
        self.attempt, self.config, self.ab = attempt, config, config.stage2_ab
        self.run_dir, self.events = attempt.run, attempt.events
        self.cache = Path(attempt.job.cache_dir)
        self.peaks = memory.PeakMeter()
        self.store = CheckpointStore(
            attempt.run, attempt.warn, "checkpoint-{}", needs="trainer_state.json"
        )
        self.resumed = self._find_checkpoint()
        self._settle_inputs()
        self._announce()
        self._read_data()
        self.alerts = self._judge_data()
        self.vlm = self._load_model()
        self.alerts += self._judge_precision()
        require_arguments(config, self.vlm.model, self.run_dir.checkpoints)
        self.pieces = self._pieces()
        self.reader = PromptReader(self.vlm, self.pieces, config.data.prompt)
        self._look_at_records()
        self.peaks.end("lane-bringup")

    def execute(self) -> dict[str, Any]:
        """Warm-up → Trainer → report."""
        warmup = self._warm_up()
        facts = {"warmup": warmup, **self._keep_base()}
        self.vlm = with_adapter(self.vlm, self.config.model, self.config.training.seed)
        self.reader = PromptReader(self.vlm, self.pieces, self.config.data.prompt)
        self._check_packing()
        bridge = self._bridge(facts)
        self._restore_step_zero(bridge)
        trainer = self._trainer(bridge)
        bridge.trainer = trainer
        try:
            collapse = self._train(trainer, bridge)
            report = self._report(trainer, bridge)
        except Aborted as stop:
            bridge.aborted_after = sorted({*bridge.aborted_after, trainer.state.global_step})
            stop.result = self._result(trainer, bridge, warmup) | {"aborted": True}
            raise
        bridge.phase("teardown", trainer.state.global_step)
        result = self._result(trainer, bridge, warmup) | report
        if collapse is not None:
            collapse.result = result | {"diagnosis": collapse.diagnosis}
            raise collapse
        return result

    # --- where it starts ---

    def _find_checkpoint(self) -> Checkpoint | None:
        found = self.store.newest()
        self.ranks.wait()
        if self.ranks.is_first:
            self.store.discard_incomplete()
            # of a run that begins anew, all: the Trainer would write into them again
            self.store.discard_after(-1 if found is None else found.step)
        self.ranks.wait()
        return found

    def _settle_inputs(self) -> None:
        """A run is one model's and one corpus's."""
        if self.resumed is not None:
            self.attempt.require_inputs()
        elif self.ranks.is_first:
            self.attempt.freeze_inputs()
            self.run_dir.report.unlink(missing_ok=True)  # of weights that are gone

    def _announce(self) -> None:
        step = None if self.resumed is None else self.resumed.step
        self.events.write("started", resumed_from=step)
        self.events.write(
            "progress",
            phase="lane-bringup",
            step=step or 0,
            base=self.config.model.path,
            domain=Path(str(self.config.data.train_jsonl)).name,
        )

    def _read_data(self) -> None:
        data = self.config.data
        self.files = self._first_alone(lambda: embedded.data_files(data, self.cache))
        self.train = read_records(self.files.train, data.train_limit)
        self._require_a_pass()
        self.val = _optional(self.files.val, data.val_limit)
        self.report_records = _optional(self.files.report, data.report_limit)

    def _require_a_pass(self) -> None:
        """Raises ConfigError for a last batch that is dropped and was the only one."""
        training = self.config.training
        wanted = training.per_device_train_batch_size * self.ranks.size
        if training.passed_on.get("dataloader_drop_last") and len(self.train) < wanted:
            problem = f"leaves nothing of {len(self.train)} records in passes of {wanted}"
            remedy = "lower training.per_device_train_batch_size, or set it to false"
            found = ConfigProblem("training.dataloader_drop_last", True, problem, remedy)
            raise ConfigError([found])

    def _judge_data(self) -> list[dict[str, Any]]:
        """Alerts: what is wrong with the records although they can be trained on."""
        text = val_alert(self.train, self.val)
        return [] if text is None else [self._alert(VAL_TRAINED, text)]

    def _judge_precision(self) -> list[dict[str, Any]]:
        """An alert where the weights are too coarse for their updates."""
        dtype = str(next(self.vlm.model.parameters()).dtype).removeprefix("torch.")
        found = rounded_updates(self.config, dtype)
        return [] if found is None else [self._alert(UPDATES_ROUNDED, found.line())]

    def _look_at_records(self) -> None:
        """Raises ConfigError for records that cannot be trained on; the log names each."""
        began = time.perf_counter()
        whole = self.config.global_max_length if self._learns_whole_answers else None
        problems: list[ConfigProblem] = []
        for name, records, longest, taught in (
            ("data.train_jsonl", self.train, whole, True),
            ("data.val_jsonl", self.val, None, False),
            ("data.report_jsonl", self.report_records, None, False),
        ):
            rollout = self._packed_rollout if taught else 0
            mine = look(self._own(records), self.reader, longest, taught=taught, rollout=rollout)
            found = self.ranks.gather(list(mine))
            self._log_unfit(name, found)
            problems += unfit(name, found, len(records))
            self.alerts += [
                *(self._alert(code, text) for code, text in alerts(name, found, len(records))),
                *(self._alert(PIXEL_BOXES, text) for text in in_pixels(name, records)),
            ]
        if problems:
            raise ConfigError(problems)
        if self.alerts:
            self.events.write("progress", alerts=self.alerts)
        if stop_asked():
            return
        count = len(self.train) + len(self.val) + len(self.report_records)
        text = f"looked at {count} records in {time.perf_counter() - began:.0f} s"
        self.events.write("note", level="info", code="RECORDS", text=text)

    def _own(self, records: Sequence[Record]) -> Sequence[Record]:
        """This rank's stretch, in the order of the ranks."""
        rank, size = self.ranks.rank, self.ranks.size
        return records[len(records) * rank // size : len(records) * (rank + 1) // size]

    def _log_unfit(self, name: str, found: Sequence[Finding]) -> None:
        if self.ranks.is_first:
            for finding in found:
                if finding.stops:
                    print(f"{name}: {finding.what}", file=sys.stderr)  # noqa: T201 - the log

    @property
    def _learns_whole_answers(self) -> bool:
        """Whether a record's own answer must fit: in Channel-A, and in packs."""
        return self.ab.schedule.b_ratio < 1 or bool(self.config.training.packing)

    @property
    def _packed_rollout(self) -> int:
        """Tokens of a rollout that a pack must take; 0 where none is packed."""
        if not self.config.training.packing or not self.ab.schedule.b_ratio:
            return 0
        return self.config.custom.extra.rollout_matching.max_new_tokens

    def _alert(self, code: str, text: str) -> dict[str, Any]:
        """Said in an event by the first attempt alone."""
        if self.resumed is None:
            self._warn(code, text)
        return {"code": code, "step": 0, "text": text}

    def _load_model(self) -> VisionModel:
        if self.resumed is not None and self._keeps_base:
            return self._load(self._base_of(self.resumed))
        return self._load(self._model_folder())

    def _load(self, path: str) -> VisionModel:
        found = load(
            path,
            dtype=self.config.model.dtype,
            attn_implementation=self.config.model.attn_implementation,
        )
        found.model.to("cuda" if torch.cuda.is_available() else "cpu")
        return found

    def _model_folder(self) -> str:
        """What the config names."""
        path = self.config.model.path
        assert path is not None, "the kind asks for a model"
        if path in EMBEDDED_MODELS:
            seed = self.config.training.seed
            path = str(self._first_alone(lambda: embedded.model_folder(self.cache, seed)))
        return path

    @property
    def _keeps_base(self) -> bool:
        """Whether checkpoints belong to a model that only the warm-up of this run made."""
        return self.config.warmup is not None and self.config.model.tuning != "full"

    def _base_of(self, resumed: Checkpoint) -> str:
        """The warmed-up model that a checkpoint's adapter was trained on. Raises ConfigError."""
        weights = resumed.state.get("base", {})

        def stands() -> bool:
            if warmed_base.is_whole(self.run_dir, weights, self._warn):
                return True
            return bool(weights) and self.ranks.is_first and self._rebuilt_base(weights)

        if self._first_alone(stands):
            return str(self.run_dir.base)
        problem = "does not hold the warmed-up model that this run's adapter was trained on"
        remedy = (
            "bring it back from a copy, or run it again from the beginning: "
            f"cockpit retry {self.attempt.job.job_id} --fresh"
        )
        raise ConfigError([ConfigProblem("base", str(self.run_dir.base), problem, remedy)])

    def _rebuilt_base(self, weights: Mapping[str, str]) -> bool:
        """Whether the cache of warm-ups still had these weights; then they are kept again."""
        vlm = self._load(self._model_folder())
        if load_kept(self._warmup_folder, vlm, self._warn) is None:
            return False
        if warmed_base.keep(self.run_dir, vlm) != weights:
            return False
        text = f"{self.run_dir.base} was gone or damaged and is taken from the cache of warm-ups"
        self._warn("BASE_RESTORED", text)
        return True

    def _pieces(self) -> TokenPieces:
        try:
            return TokenPieces(self.vlm.tokenizer)
        except TokenizerError as error:
            path = self.config.model.path or ""
            raise TokenizerError(f"model.path: {error}: {add_coord_tokens_command(path)}") from None

    def _check_packing(self) -> None:
        if self.config.training.packing:
            prompt = self.reader(self.train[0])
            require_packing(self.vlm, Shown(prompt.ids, prompt.pictures))

    def _warm_up(self) -> dict[str, Any] | None:
        """What it came to; None without one."""
        if self.config.warmup is None:
            return None
        if self.resumed is not None:
            kept: dict[str, Any] = self.resumed.state["warmup"]
            return kept
        return asdict(self._warmed_up(self.config.warmup))

    def _warmed_up(self, config: WarmupConfig) -> WarmupReport:
        """Teach the model that was loaded, or give it what an equal recipe came to."""
        self.events.write("progress", phase="warmup", step=0)
        self.peaks.begin()
        evaluation = self._evaluation(Ranks())
        warmup = Warmup(
            self.vlm,
            self.reader,
            config,
            torch.tensor(self.pieces.coord_ids, device=self.vlm.device),
            self._pad_id,
            evaluate=lambda: evaluation(self.val).f1,
            on_step=lambda step, loss: self._metric(step, "warmup/loss", loss),
            on_score=lambda step, score: self._metric(step, "warmup/heldout", score),
        )
        report = self._first_alone(
            lambda: cached(
                self._warmup_folder,
                self.vlm,
                lambda: warmup(self.train, self.config.training.seed),
                self._warn,
            )
        )
        self.peaks.end("warmup")
        self._say_warmed_up(report)
        return report

    @property
    def _warmup_folder(self) -> Path:
        """Where the cache keeps what this recipe's warm-up came to."""
        model = self.attempt.content(self.config.model.path)
        name = recipe_hash(self.config, model, self.train, self.val)
        return self.cache / f"stage2-warmup-{name}"

    def _keep_base(self) -> dict[str, Any]:
        """What a checkpoint says of the model it belongs to; it stands before the first of them."""
        if not self._keeps_base:
            return {}
        if self.resumed is None:
            if self.ranks.is_first:
                warmed_base.keep(self.run_dir, self.vlm)
            self.ranks.wait()
        model: Any = self.vlm.model
        model.name_or_path = str(self.run_dir.base)  # PEFT writes it into each adapter's config
        return {"base": weights_of(self.run_dir.base)}

    def _say_warmed_up(self, report: WarmupReport) -> None:
        source = "taken from the cache" if report.cached else f"done in {report.seconds:.0f} s"
        text = f"warm-up {source}: {report.steps} steps, held-out F1 {report.f1:.3f}"
        self.events.write("note", level="info", code="WARMUP", text=text)

    def _first_alone(self, make: Callable[[], Made]) -> Made:
        """What is kept in the cache is made by the first rank and found there by the others."""
        if not self.ranks.is_first:
            self.ranks.wait()
        made = make()
        if self.ranks.is_first:
            self.ranks.wait()
        return made

    def _restore_step_zero(self, bridge: RunBridge) -> None:
        """The report compares with step 0. A prune or a damage may have taken it meanwhile, and
        model and warm-up give it again; said if they prove no longer the same.
        """
        if self.resumed is None or not self.report_records or self.run_dir.report.exists():
            return
        if self.store.verified(0) is not None:
            return
        if self.config.warmup is not None and not self._keeps_base:
            self._warmed_up(self.config.warmup)
        if self.ranks.is_first:
            self.store.make_anew(0, lambda: bridge.seal_weights(0, self.vlm))
        self.ranks.wait()

    # --- the parts ---

    def _bridge(self, facts: dict[str, Any]) -> RunBridge:
        bridge = RunBridge(
            self.run_dir,
            self.events,
            self.store,
            ranks=self.ranks,
            should_abort=self.attempt.should_abort,
            keep=self.config.keep_checkpoints,
            earlier=Earlier.of(self.run_dir, None if self.resumed is None else self.resumed.step),
            peaks=self.peaks,
        )
        bridge.facts = facts
        bridge.is_new = self.resumed is None
        return bridge

    def _trainer(self, bridge: RunBridge) -> Stage2Trainer:
        arguments = training_arguments(
            self.config,
            output_dir=self.run_dir.checkpoints,
            evaluates=bool(self.val),
            eval_at_start=self._score_is_missing(bridge),
        )
        self.vlm.model.to(arguments.device)
        trainer = Stage2Trainer(
            parts=self._parts(self.ranks),
            on_learnt=bridge.learnt,
            model=self.vlm.model,
            args=arguments,
            train_dataset=self.train,
            eval_dataset=self.val or None,
            processing_class=self.vlm.tokenizer,
            callbacks=[bridge],
        )
        trainer.remove_callback(PrinterCallback)  # the bridge writes events instead
        return trainer

    def _score_is_missing(self, bridge: RunBridge) -> bool:
        """Whether the step we begin behind should have been scored, and a stop came first."""
        step = 0 if self.resumed is None else self.resumed.step
        if self.resumed is None or step == 0:
            return step not in bridge.scores
        # what the Trainer made of epochs and shares of a run
        state = json.loads((self.resumed.path / "trainer_state.json").read_bytes())
        due = step == state["max_steps"] or step % state["eval_steps"] == 0
        delay = self.config.training.passed_on.get("eval_delay", 0)
        return due and step >= delay and step not in bridge.scores

    def _parts(self, ranks: Ranks) -> Stage2Parts:
        rollouts = self.config.custom.extra.rollout_matching
        channel_b = self.ab.channel_b
        training = self.config.training
        return Stage2Parts(
            learner=Learner(
                self.vlm,
                torch.tensor(self.pieces.coord_ids, device=self.vlm.device),
                self._pad_id,
                SoftContext(
                    self.ab.n_softctx_iter,
                    self.ab.softctx_grad_mode,
                    self.ab.softctx_temperature,
                ),
                LossWeights(
                    self.ab.bbox_smoothl1_weight,
                    self.ab.bbox_ciou_weight,
                    self.ab.coord_mass_weight,
                ),
                PackPlan.of(
                    training, self.config.global_max_length, rollouts.post_rollout_pack_scope
                ),
                training.per_device_train_batch_size,
            ),
            channel_b=ChannelB(
                self._sampler(),
                self.reader,
                self.pieces,
                rollouts,
                CEWeights(
                    self.ab.desc_ce_weight,
                    self.ab.desc_ce_weight_matched,
                    channel_b.drop_invalid_struct_ce_multiplier,
                ),
                self._desc_gate(),
            ),
            evaluation=self._evaluation(ranks),
            ranks=ranks,
            b_ratio=self.ab.schedule.b_ratio,
            rollouts_per_step=self.config.rollouts_per_step(ranks.size),
            desc_weight=self.ab.desc_ce_weight,
            max_length=self.config.global_max_length,
        )

    def _sampler(self) -> HFSampler:
        """Said once: how training rollouts are decoded."""
        sampler = HFSampler(self.vlm, self.pieces, self.config.custom.extra.rollout_matching)
        text = f"rollouts are decoded with {json.dumps(sampler.decoding(), sort_keys=True)}"
        self.events.write("note", level="info", code="DECODING", text=text)
        return sampler

    def _desc_gate(self) -> DescGate:
        """Said once: what it was resolved to, or that it cannot be loaded."""
        settings = self.ab.channel_b.semantic_desc_gate
        gate = DescGate(**settings.model_dump())
        if gate.is_active:
            text = f"the semantic desc gate uses {json.dumps(gate.identity, sort_keys=True)}"
            self.events.write("note", level="info", code="DESC_GATE", text=text)
        elif settings.enabled:
            self._warn(
                "DESC_GATE_INACTIVE",
                f"the semantic desc gate is disabled: {settings.model_name_or_path} cannot be "
                "loaded here; every matched description is trained at its own weight",
            )
        return gate

    def _evaluation(self, ranks: Ranks) -> RolloutEval:
        """Greedy, whatever training rollouts do; the desc gate has no part in a score."""
        rollouts = self.config.custom.extra.rollout_matching
        greedy = rollouts.model_copy(
            update={
                "decoding": DecodingConfig(),
                "decode_batch_size": self.config.eval_decode_batch_size,
            }
        )
        silent = DescGate(enabled=False, threshold=0.0, model_name_or_path="", revision=None)
        sampler = HFSampler(self.vlm, self.pieces, greedy)
        return RolloutEval(sampler, self.reader, self.pieces, rollouts, silent, ranks)

    @property
    def _pad_id(self) -> int:
        found = self.vlm.tokenizer.pad_token_id
        return self.pieces.end_id if found is None else int(found)

    # --- what happens ---

    def _train(self, trainer: Stage2Trainer, bridge: RunBridge) -> NonFiniteError | None:
        """To the end, or to the step whose update was no number; the step before is a checkpoint.

        Raises Aborted once the checkpoint to resume from stands.
        """
        resume = None if self.resumed is None else str(self.resumed.path)
        # several ranks must stop at the same place: the bridge asks between two steps
        quiet = rl_hooks() if self.ranks.size > 1 else nullcontext()
        try:
            with quiet:
                trainer.train(resume_from_checkpoint=resume)
        except (Aborted, NonFiniteError) as stop:
            if not self.store.folder(trainer.state.global_step).exists():
                trainer.save_now()
            if isinstance(stop, NonFiniteError):
                return stop
            raise
        if bridge.aborted:
            raise Aborted
        return None

    def _report(self, trainer: Stage2Trainer, bridge: RunBridge) -> dict[str, Any]:
        """The report records, once: step 0 against the selected step. Then publish."""
        if not self.report_records:
            return {}
        report, alert = report_once(
            self.store,
            best=bridge.best_step or 0,
            scores=bridge.scores,
            make=lambda picked: self._scored(trainer, bridge, picked),
            writes=self.ranks.is_first,
        )
        if alert is not None:
            self._warn(alert["code"], alert["text"])
            self.alerts.append(alert)
        return report

    def _scored(self, trainer: Stage2Trainer, bridge: RunBridge, selected: int) -> dict[str, Any]:
        """Picture by picture."""
        bridge.phase("heldout-gate", trainer.state.global_step, trainer.state.max_steps)
        before = self._evaluate_step(trainer, bridge, 0, selected)
        after = (
            before if selected == 0 else self._evaluate_step(trainer, bridge, selected, selected)
        )
        return report_fields(before, after, self.config.report_min, selected)

    def _evaluate_step(
        self, trainer: Stage2Trainer, bridge: RunBridge, step: int, selected: int
    ) -> Evaluation:
        trainer.load_weights(to_score(self.attempt, self.store, step).path)
        found = trainer.parts.evaluation(self.report_records)
        bridge.gate("report", step, found, self.report_records, selected=step == selected)
        return found

    # --- what it says ---

    def _metric(self, step: int, series: str, value: float) -> None:
        self.events.write("metric", step=step, values={series: value})

    def _warn(self, code: str, text: str) -> None:
        self.events.write("note", level="warning", code=code, text=text)

    def _result(
        self,
        trainer: Stage2Trainer,
        bridge: RunBridge,
        warmup: dict[str, Any] | None,
    ) -> dict[str, Any]:
        best = bridge.best_step
        return {
            "kind": self.attempt.job.kind,
            "base": self.config.model.path,
            "n_steps": trainer.state.global_step,
            "steps": trainer.state.global_step,
            "selected_step": best,
            "selected_heldout_score": None if best is None else bridge.scores[best],
            "selected_on": None if best is None else "eval_rollout_f1",
            "heldout_scores": {str(s): score for s, score in sorted(bridge.scores.items())},
            "pool_scores": {str(s): f1 for s, f1 in sorted(bridge.f1_of_rollouts.items())},
            "lineage_card": bridge.card(),
            "upstream": {
                "corpus": {"source": self.config.data.train_jsonl, "records": len(self.train)},
                "sft_init": warmup,
                "bench": self.config.data.val_jsonl,
            },
            "seconds": round(bridge.seconds, 1),
            "peak_gb": round(self.peaks.peak_gb, 3),
            "mem_trace": self.peaks.trace(),
            "alerts": self.alerts,
            "aborted": False,
            "finished_at": round(time.time(), 3),
        }


def report_fields(
    before: Evaluation, after: Evaluation, report_min: int, picked: int
) -> dict[str, Any]:
    """F1 of step 0 and of the picked step, the interval of their difference, whether pictures
    agree with it, and what is published.
    """
    solved = compare(before.solved, after.solved)
    low, high = lift_interval(before.counts, after.counts)
    verdict: Verdict
    if solved.n < report_min:
        verdict = "no verdict"
    elif low > 0 and solved.p_value < 0.05 and solved.lift > 0:
        verdict = "gain"
    elif high < 0 and solved.p_value < 0.05 and solved.lift < 0:
        verdict = "loss"
    else:
        verdict = "no gain proven"
    return {
        "heldout_before": before.f1,
        "heldout_after": after.f1,
        "lift": after.f1 - before.f1,
        "lift_ci95": [low, high],
        "p_value": solved.p_value,
        "gained": solved.gained,
        "lost": solved.lost,
        "report_n": solved.n,
        "verdict": verdict,
        "published_step": published_step(verdict, picked),
    }


def _optional(path: Path | None, limit: int | None) -> Sequence[Record]:
    return [] if path is None else read_records(path, limit)
