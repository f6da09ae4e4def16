"""Stage-2 training steps of the embedded Qwen3-VL: Channel-A's forwards, Channel-B's own share.

`python bench/stage2_train.py [--json FILE]`: one thread, medians of wall and CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from engine.contract.sources.records import Record, read_records
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import load
from engine.stage2.channel_a import SoftContext, build_segment
from engine.stage2.embedded import shapes, tiny_vl
from engine.stage2.learn.layout import ModelInputs
from engine.stage2.learn.learner import Layouts, Learner, PackPlan
from engine.stage2.learn.objective import LossWeights
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response
from engine.stage2.rollout.prompts import Prompt, PromptReader
from engine.stage2.rollout_step import RolloutStep, TrainingSequence
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.payload import encode
from engine.stage2.target.segments import CEWeights
from engine.stage2.taught import ABTargets

SAMPLES = 16
REPEATS = 7


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder))
    for name, value in figures.items():
        print(f"{name:60} {value:9.3f}")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def measure(folder: Path) -> dict[str, float]:
    """Name → figure."""
    bench = _Bench(folder)
    once, twice = (bench.channel_a(n) for n in (1, 2))
    padded, packed = (bench.channel_a(2, packing=p) for p in (False, True))
    own = bench.own_share()
    return {
        "Channel-A, 16 samples, n = 1, CPU s": once,
        "Channel-A, 16 samples, n = 2, CPU s": twice,
        "Channel-A, n = 2 over n = 1": twice / once,
        "Channel-A, n = 2, padded rows of 4, CPU s": padded,
        "Channel-A, n = 2, packs of 400, CPU s": packed,
        **own,
    }


class _Bench:
    """The real parts on drawn scenes of one to three objects."""

    def __init__(self, folder: Path) -> None:
        self.vlm = load(
            str(tiny_vl.save(folder / "model", 0)),
            dtype="float32",
            attn_implementation="sdpa",
        )
        style = shapes.Style(most_objects=3)
        path = shapes.write(folder, "bench", shapes.distinct(SAMPLES, 0, style), style)
        self.records = read_records(path)
        self.pieces = TokenPieces(self.vlm.tokenizer)
        self.reader = PromptReader(self.vlm, self.pieces, "Locate every object.")

    def learner(self, n: int, *, packing: bool) -> Learner:
        plan = PackPlan(400, 256, 0.01, "window") if packing else None
        return Learner(
            Layouts(self.vlm, 0, plan, 4),
            torch.tensor(self.pieces.coord_ids),
            SoftContext(n, "unroll", 1.0),
            LossWeights(1.0, 1.0),
        )

    def channel_a(self, n: int, *, packing: bool = False) -> float:
        """CPU seconds of a window's forwards and backwards."""
        sequences = [self._taught(record) for record in self.records]
        learner = self.learner(n, packing=packing)
        return median_cpu(lambda: learner(sequences, "a"))

    def own_share(self) -> dict[str, float]:
        """A Channel-B step without the model's share, against the whole of it without decoding."""
        gate = DescGate(enabled=False, threshold=0.0, model_name_or_path="", revision=None)
        channel_b = RolloutStep(
            _Said(self.pieces, self.records),
            self.reader,
            self.pieces,
            RolloutMatchingConfig(rollout_backend="hf"),
            ABTargets(CEWeights(1.0, 0.2, 1.0)),
            gate,
        )
        rolled = channel_b(self.records, 0)
        own = ("time/rollout_parse_match_s", "time/rollout_teacher_encode_s")
        overhead = statistics.median(
            sum(channel_b(self.records, 0).seconds[name] for name in own) for _ in range(REPEATS)
        )
        learning = median_cpu(lambda: self.learner(1, packing=True)(rolled.sequences, "b"))
        return {
            "Channel-B, parse + match + target of 16 rollouts, s": overhead,
            "Channel-B, forwards and backwards, CPU s": learning,
            "Channel-B, own share of a step without its decoding": overhead / (overhead + learning),
        }

    def _taught(self, record: Record) -> TrainingSequence:
        prompt = self.reader(record)
        segment = build_segment(prompt.ids, record.objects, 1.0, self.pieces)
        return TrainingSequence(segment, ModelInputs(segment.ids, prompt.pictures))


class _Said:
    """Rollouts that find every object: parse, match and both segments have all they can have."""

    def __init__(self, pieces: TokenPieces, records: Sequence[Record]) -> None:
        self._ids = [encode(pieces, record.objects) for record in records]

    def __call__(self, prompts: Sequence[Prompt], seed_base: int) -> list[Response]:  # noqa: ARG002
        return [Response(ids, ended=True) for ids in self._ids[: len(prompts)]]

    def decoding(self) -> dict[str, Any]:
        return {}


def median_cpu(call: Callable[[], object]) -> float:
    """Median CPU seconds of a call, the first one left out."""
    call()
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
