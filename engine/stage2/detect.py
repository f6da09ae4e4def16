"""`eval_rerun` of the bench `detection`: checkpoints that look at pictures, and what they find.

A step is a record. What was answered is in the journal, so an attempt that goes on, after whatever
kill, ends with the same files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.evaluate.detection import DetectionBench
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.sources.records import Record, read_records
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.evaluate.detection import Said, measure
from engine.evaluate.detection_scores import detection_scores, records_hash
from engine.evaluate.journal import Journal, Line
from engine.evaluate.recorder import EvalRecorder
from engine.models import lora
from engine.models.qwen3_vl import ModelError, VisionModel, load
from engine.run.checkpoint import CheckpointStore
from engine.run.pace import busy
from engine.run.ranks import Ranks
from engine.run.recorder import Recorder
from engine.run.report import ended, result_fields
from engine.run.session import Attempt
from engine.run.stop import Aborted, check_abort
from engine.stage2.evaluation import Evaluation, RolloutEval, answered
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.record import RolloutFiles
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.target.desc_gate import no_gate


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt; the final result.

    Raises NightlaneError for what cannot run, and Aborted or Declined with the result so far.
    """
    assert isinstance(attempt.config, EvalRerunConfig)
    torch.set_num_threads(attempt.config.threads or os.cpu_count() or 1)
    return _Run(attempt, attempt.config).execute()


@dataclass(frozen=True)
class _Unit:
    """One bench with its records."""

    bench: DetectionBench
    records: Sequence[Record]

    @property
    def split(self) -> str:
        """Under which its answers are found."""
        return Path(self.bench.source).stem

    @property
    def hash(self) -> str:
        """Equal for benches whose answers compare picture by picture."""
        asked = self.bench.model_dump(
            include={
                "prompt",
                "max_pixels",
                "min_pixels",
                "max_new_tokens",
                "repetition_penalty",
                "score",
            }
        )
        return records_hash(self.records, asked)


class _Run:
    """The parts of one attempt, wired."""

    def __init__(self, attempt: Attempt, config: EvalRerunConfig) -> None:
        self.attempt, self.config = attempt, config
        self.units = [
            _Unit(one, read_records(Path(one.source), one.limit, one.record_form))
            for one in config.detection
        ]
        self.journal = Journal(attempt.run.rollouts)
        self.files = RolloutFiles(attempt.run)
        store = CheckpointStore(attempt.run, attempt.warn)
        resumed = store.newest()
        attempt.begin(resumed, base=config.base, domain=", ".join(one.split for one in self.units))
        if resumed is None:
            self.journal.forget()
        rows = len(config.scored) * sum(len(one.records) for one in self.units)
        marks = Recorder(attempt, store, resumed=resumed, keep=config.keep_checkpoints)
        self.recorder = EvalRecorder(attempt, marks, resumed, rows)
        self.stops = [*attempt.stopped_before(resumed)]

    def execute(self) -> dict[str, Any]:
        """Every checkpoint on every bench."""
        self.recorder.mark()
        try:
            for one in self.config.scored:
                vlm = _model(one, self.units[0].bench)
                self.attempt.peaks.end("lane-bringup")
                for unit in self.units:
                    self._score(unit, one, vlm)
        except Aborted as stop:
            self.stops.append(self.recorder.done)
            stop.result = self._result() | {"aborted": True}
            raise
        return ended(self.attempt, self.recorder.done, self._result(), None)

    def _score(self, unit: _Unit, one: EvalCheckpoint, vlm: VisionModel) -> None:
        lines = self._answered(unit, one, vlm)
        found = measure([*answered([_said(line) for line in lines], unit.records)])
        self.recorder.scored([*detection_scores(found, _facts(unit, one))])

    def _answered(self, unit: _Unit, one: EvalCheckpoint, vlm: VisionModel) -> list[Line]:
        """Every record, as the journal has it or answered now."""
        known = self.journal.recall(unit.split, one.step, 1)
        evaluation = _evaluation(vlm, unit.bench, self.attempt)
        size, before = unit.bench.batch_size, self.recorder.done
        self.recorder.asking(f"{one.label} on {unit.split}")
        for start in range(0, len(unit.records), size):
            check_abort()
            some, began = unit.records[start : start + size], time.monotonic()
            missing = [record for record in some if record.where not in known]
            if missing:
                lines = self._lines(evaluation(missing), missing)
                known |= {line["id"]: [line] for line in lines}
                self.journal.add(unit.split, one.step, lines)
            is_last = start + size >= len(unit.records)
            self.recorder.answered(len(some), {}, time.monotonic() - began, is_last=is_last)
        self.recorder.done = before + len(unit.records)
        return self.journal.finish(
            unit.split, one.step, [record.where for record in unit.records], known
        )

    def _lines(self, found: Evaluation, records: Sequence[Record]) -> list[dict[str, Any]]:
        rows = self.files.gate_rows(found, records)
        return [
            row
            | {"id": record.where, "sample": 0, "judged": {}, "said": [list(one) for one in said]}
            for row, record, said in zip(rows, records, found.said, strict=True)
        ]

    def _result(self) -> dict[str, Any]:
        return {
            **result_fields(self.attempt, self.recorder.done, self.recorder.seconds),
            "base": self.config.base,
            "adapter": self.config.adapter_init,
            "upstream": {"bench": ", ".join(one.bench.source for one in self.units)},
            "scores": self.recorder.short(),
            "lineage_card": self.recorder.card(self.stops),
            "aborted": False,
        }


def _model(one: EvalCheckpoint, bench: DetectionBench) -> VisionModel:
    """The weights to score, an adapter merged into its base. Raises ModelError."""
    with busy("load the model"):
        vlm = load(
            one.base,
            dtype="auto",
            attn_implementation="sdpa",
            pixels=(bench.min_pixels, bench.max_pixels),
        )
    if one.adapter_init is not None:
        try:
            vlm = replace(vlm, model=lora.merged(vlm.model, Path(one.adapter_init)))
        except lora.AdapterError as error:
            raise ModelError(f"{one.adapter_init} {error}: {one.base}; name its own base") from None
    vlm.model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return vlm


def _evaluation(vlm: VisionModel, bench: DetectionBench, attempt: Attempt) -> RolloutEval:
    """Greedy answers."""
    how = RolloutMatchingConfig(
        rollout_backend="hf",
        decode_batch_size=bench.batch_size,
        max_new_tokens=bench.max_new_tokens,
        repetition_penalty=bench.repetition_penalty,
    )
    pieces = TokenPieces(vlm.tokenizer)
    reader = PromptReader(vlm, pieces, bench.prompt, attempt.now)
    sampler = HFSampler(vlm, pieces, how)
    return RolloutEval(sampler, reader, pieces, how, no_gate(), Ranks(), score=bench.score)


def _said(line: Line) -> list[Said]:
    return [Said(desc, tuple(box), score) for desc, box, score in line["said"]]


def _facts(unit: _Unit, one: EvalCheckpoint) -> Mapping[str, Any]:
    """What the scores of a checkpoint on a bench share."""
    return {
        "checkpoint": one.label,
        "path": one.path,
        "base": one.trained_from or one.base,
        "run": one.run,
        "step": one.step,
        "bench": unit.bench.name,
        "split": unit.split,
        "max_new_tokens": unit.bench.max_new_tokens,
        "bench_hash": unit.hash,
    }
