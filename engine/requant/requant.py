"""`requant`, from a checkpoint to its table: merged, written in each format, read back and scored.

Step 0 is the merged 16-bit model, step 1 its score, each further step one format, whose folder is
published when it is whole and scored. So an attempt that goes on, after whatever kill, begins with
the format that was not finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from engine.contract.documents import read_json_object
from engine.contract.kinds.requant import RequantConfig
from engine.contract.quantized import FORMATS
from engine.contract.run_dir import write_json
from engine.models.alike import release
from engine.models.policy import Policy
from engine.requant import formats, merge, proof, rows
from engine.requant.measured import beside, measure, table_of
from engine.requant.standing import last_whole, require_room
from engine.run.checkpoint import CheckpointStore
from engine.run.proof import prove
from engine.run.recorder import Recorder
from engine.run.report import ended, result_fields
from engine.run.session import Attempt
from engine.run.stop import Aborted, check_abort

_MEASURED = "measured.json"
"""In a step's folder: what was found out about it."""


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt; the final result.

    Raises RLLoopError for what cannot run, and Aborted or Declined with the result so far.
    """
    assert isinstance(attempt.config, RequantConfig)
    torch.set_num_threads(attempt.config.threads or os.cpu_count() or 1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return _Run(attempt, attempt.config).execute()


class _Run:
    """The parts of one attempt."""

    def __init__(self, attempt: Attempt, config: RequantConfig) -> None:
        self.attempt, self.config = attempt, config
        self.began, self.last = time.monotonic(), 1 + len(config.formats)
        self.store = CheckpointStore(attempt.run, attempt.warn)
        self.resumed = last_whole(self.store)
        self.unit = rows.unit_of(config)
        attempt.begin(self.resumed, base=config.base, domain=self.unit.name)
        self.done = -1 if self.resumed is None else self.resumed.step
        require_room(attempt.run.root, config, self.done)
        self.recorder = Recorder(attempt, self.store, resumed=self.resumed, keep=self.last + 1)
        self.stops = [*attempt.stopped_before(self.resumed)]

    @property
    def merged(self) -> Path:
        """The 16-bit model that formats are made of."""
        return self.store.folder(0) / "model"

    def execute(self) -> dict[str, Any]:
        """Every format, then the table."""
        if self.done < 0:
            merge.require_whole(self.config, self.attempt.warn)
            self._step(0, self._write_merged)
        self.recorder.link(0)
        formats.require_forms(self.config.formats, self.merged)
        self.attempt.peaks.end("lane-bringup")
        try:
            prove(self.recorder, proof.checks(float(self._found(0)["merge_gap"])))
            of_formats = [partial(self._format, name) for name in self.config.formats]
            makers: list[Callable[[int, Path], None]] = [self._original, *of_formats]
            for step, make in enumerate(makers, 1):
                check_abort()
                self.attempt.progress(phase="sampling", step=step - 1, max_steps=self.last)
                if step > self.done:
                    self._step(step, partial(make, step))
        except Aborted as stop:
            self.stops.append(max(self.done, 0))
            stop.result = self._result() | {"aborted": True}
            raise
        return ended(self.attempt, self.last, self._result(), None)

    # --- the steps ---

    def _step(self, step: int, write: Callable[[Path], None]) -> None:
        self.recorder.checkpoint(step, {}, write)
        self.done = step
        release()

    def _write_merged(self, folder: Path) -> None:
        gap = merge.write_merged(self.config, folder / "model", self._prompt_ids, self.attempt.now)
        write_json(folder / _MEASURED, {"merge_gap": gap})

    def _prompt_ids(self, policy: Policy) -> Sequence[Sequence[int]]:
        prompts = self.unit.prompts(policy)
        rows.require_fitting(self.unit, prompts, policy.window)
        return [prompts(row) for row in self.unit.rows[:8]]

    def _original(self, step: int, folder: Path) -> None:
        found = self._measured(step, self.merged, self.merged, merge.short(self.merged))
        write_json(folder / _MEASURED, found | {"left": [], "tokens_per_s": found["speed"]})

    def _format(self, name: str, step: int, folder: Path) -> None:
        target = folder / ("gguf" if FORMATS[name].library == "gguf" else "model")
        known = formats.write(name, self.merged, target, self.config.group_size)
        release()
        found = self._measured(step, target, self.store.folder(step) / target.name, name)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        speed = found["speed"] if device in FORMATS[name].runs_on else None
        compared = beside(self._found(1), found, self.unit)
        write_json(folder / _MEASURED, found | compared | known | {"tokens_per_s": speed})

    def _measured(self, step: int, folder: Path, place: Path, label: str) -> dict[str, Any]:
        """Of the model in `folder`, which will stand at `place`."""
        back = formats.read(folder, self.merged, self.config, self.attempt.now)
        known = {"bytes": formats.size_of(folder), "load_s": round(back.seconds, 3)}
        way = self._found(1)["way"] if step > 1 else None
        asks = (self.attempt, back.policy, self.unit)
        return known | measure(*asks, label=label, place=place, step=step, way=way)

    # --- what it came to ---

    def _found(self, step: int) -> dict[str, Any]:
        return read_json_object(self.store.folder(step) / _MEASURED)

    def _result(self) -> dict[str, Any]:
        found = {step: self._found(step) for step in range(1, self.done + 1)}
        scores = {step: one["score"] for step, one in found.items()}
        table = table_of(self.config, self.unit, list(found.values()))
        self.recorder.tell(requant=table)
        return {
            **result_fields(self.attempt, max(self.done, 0), time.monotonic() - self.began),
            "base": self.config.base,
            "adapter": self.config.adapter_init,
            "upstream": {"bench": self.unit.name},
            "requant": table,
            "lineage_card": self.recorder.card(scores, {}, self.stops),
            "aborted": False,
        }
