"""`requant`, from a checkpoint to its table: merged, written in each format, read back and scored.

Step 0 is the merged 16-bit model, step 1 its score, each further step one format, whose folder is
published when it is whole and scored. So an attempt that goes on, after whatever kill, begins with
the format that was not finished.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.contract.documents import read_json_object
from engine.contract.envelope import gigabytes
from engine.contract.errors import RLLoopError
from engine.contract.jsonl import write_rows
from engine.contract.kinds.requant import RequantConfig, requant_checkpoints
from engine.contract.quantized import FORMATS
from engine.contract.run_dir import write_json
from engine.models.alike import release
from engine.models.policy import Policy
from engine.requant import formats, merge, proof, rows
from engine.requant.gguf_file import FILE
from engine.requant.measured import answer, beside, lines, score_of, split_of
from engine.run.checkpoint import Checkpoint, CheckpointStore
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
    return _Run(attempt, attempt.config).execute()


class _Run:
    """The parts of one attempt."""

    def __init__(self, attempt: Attempt, config: RequantConfig) -> None:
        self.attempt, self.config = attempt, config
        self.began = time.monotonic()
        self.store = CheckpointStore(attempt.run, attempt.warn)
        self.resumed = self.store.newest()
        self.asked = rows.asked(config)
        attempt.begin(self.resumed, base=config.base, domain=self.asked.name)
        self.done = -1 if self.resumed is None else self.resumed.step
        _require_room(attempt.run.root, config, self.done)
        self.recorder = Recorder(attempt, self.store, resumed=self.resumed, keep=self.last + 1)
        self.stops = [*attempt.stopped_before(self.resumed)]
        self.label = merge.short(merge.sixteen_bit(config.base))

    @property
    def last(self) -> int:
        """The step of the last format."""
        return 1 + len(self.config.formats)

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

    def _step(self, step: int, write: Callable[[Path], None]) -> Checkpoint:
        made = self.recorder.checkpoint(step, {}, write)
        self.done = step
        release()
        return made

    def _write_merged(self, folder: Path) -> None:
        gap = merge.write_merged(self.config, folder / "model", self._prompt_ids, self.attempt.now)
        write_json(folder / _MEASURED, {"merge_gap": gap})

    def _prompt_ids(self, policy: Policy) -> Sequence[Sequence[int]]:
        prompts = self.asked.prompts(policy)
        rows.require_fitting(self.asked, prompts, policy.window)
        return [prompts(row) for row in self.asked.questions[:8]]

    def _original(self, step: int, folder: Path) -> None:
        found = self._measure(self.merged, self.merged, self.label, step)
        write_json(folder / _MEASURED, found | {"left": [], "tokens_per_s": found["speed"]})

    def _format(self, name: str, step: int, folder: Path) -> None:
        target = folder / ("gguf" if FORMATS[name].library == "gguf" else "model")
        known = formats.write(name, self.merged, target, self.config.group_size)
        release()
        place = self.store.folder(step) / target.name
        found = self._measure(target, place, name, step)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        speed = found["speed"] if device in FORMATS[name].runs_on else None
        compared = beside(self._found(1), found, self.asked)
        write_json(folder / _MEASURED, found | compared | known | {"tokens_per_s": speed})

    def _measure(self, folder: Path, place: Path, label: str, step: int) -> dict[str, Any]:
        """Read a model from `folder`, ask it every row, and tell what came of it; `place`: where it
        will stand.
        """
        policy, seconds = formats.read(folder, self.merged, self.config, self.attempt.now)
        prompts = self.asked.prompts(policy)
        found = answer(policy, self.asked, prompts, self.config.rollout_batch, self.config.sampling)
        score = score_of(
            found.result,
            self.asked,
            self.config,
            label=label,
            path=str(place),
            bench_hash=self.asked.hash(prompts),
        )
        file = f"heldout-{split_of(self.asked, label)}-{score.step:06d}.jsonl"
        write_rows(self.attempt.run.rollouts / file, [*lines(found.result, self.asked.verifiers)])
        self.attempt.events.write("score", step=step, score=score.model_dump(mode="json"))
        self.attempt.metric(step, {"requant/score": score.score})
        return {
            "format": label,
            "checkpoint": score.checkpoint,
            "path": str(place / FILE if place.name == "gguf" else place),
            "bytes": formats.size_of(folder),
            "load_s": round(seconds, 3),
            "speed": round(found.tokens_per_s, 1),
            "outcomes": found.result.outcomes,
            **{name: getattr(score, name) for name in ("score", "low", "high", "n", "truncated")},
        }

    # --- what it came to ---

    def _found(self, step: int) -> dict[str, Any]:
        return read_json_object(self.store.folder(step) / _MEASURED)

    def _result(self) -> dict[str, Any]:
        measured = [self._found(step) for step in range(1, self.done + 1)]
        shown = [{k: v for k, v in one.items() if k not in _INSIDE} for one in measured]
        scores = {step: one["score"] for step, one in enumerate(measured, 1)}
        self.recorder.tell(requant=shown)
        card = self.recorder.card({0: scores.get(1, 0.0), **scores}, {}, self.stops)
        run_dir = self.config.run
        return {
            **result_fields(self.attempt, max(self.done, 0), time.monotonic() - self.began),
            "base": self.config.base,
            "adapter": self.config.adapter_init,
            "upstream": {"bench": self.asked.name},
            "requant": {
                "of": None if run_dir is None else str(run_dir.root),
                "bench": self.asked.name,
                "formats": shown,
            },
            "lineage_card": card,
            "aborted": False,
        }


_INSIDE = frozenset({"outcomes", "speed"})
"""What is compared, and not shown."""


def _require_room(place: Path, config: RequantConfig, done: int) -> None:
    """Raises RLLoopError where the disk cannot take the models that are not written yet."""
    forecast = requant_checkpoints(config)
    missing = len(config.formats) + 1 - max(done, 0)
    if forecast is None or missing <= 0:
        return
    needed, left = forecast.each * missing, gigabytes(shutil.disk_usage(place).free)
    if needed > left:
        problem = f"may need {needed:.1f} GB on the disk of {place}, which has {left:.1f} GB left"
        remedy = "make room, or name fewer formats"
        raise RLLoopError.of("formats", ", ".join(config.formats), problem, remedy)
