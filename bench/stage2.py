"""Stage-2 data path: fill of packs on recorded segment lengths, and its speed on one core.

`python bench/stage2.py [--json FILE]`. The lengths in `stage2_lengths.json` are those of the B2
and B3 segments that this pipeline makes of drawn scenes; `--record` draws and writes them again.
Speed is that of a rollout never seen before: each timed call gets its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2.learn.packing import Packer, fullest, pack_window
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import judge
from engine.stage2.target.payload import render
from engine.stage2.target.segments import CEWeights, build_targets

LENGTHS = Path(__file__).with_name("stage2_lengths.json")
CAPACITY = 12_000
BUFFER = 256
WEIGHTS = CEWeights(desc=1.0, desc_matched=0.2, dropped_structure=1.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    parser.add_argument("--record", action="store_true", help="draw the lengths again")
    options = parser.parse_args(argv)
    if options.record:
        LENGTHS.write_text(json.dumps(record()) + "\n")
    lengths = json.loads(LENGTHS.read_text())["lengths"]
    figures = measure(lengths)
    print(f"{len(lengths)} segments, {min(lengths)}..{max(lengths)} tokens, packs of {CAPACITY}")
    for name, (value, unit) in figures.items():
        print(f"{name:67} {value:8.3f} {unit}".rstrip())
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps({name: v for name, (v, _) in figures.items()}, indent=1))
    return 0


def measure(lengths: Sequence[int]) -> dict[str, tuple[float, str]]:
    """Name → (figure, unit)."""
    window = list(lengths[:BUFFER])
    return {
        "mean fill, carried over (micro)": (carried_fill(lengths, CAPACITY, BUFFER), ""),
        **{
            f"mean fill, windows of {size} (window){what}": (fill, "")
            for size in (64, 128, BUFFER)
            for what, fill in (
                ("", window_fill(lengths, CAPACITY, size)),
                (", the most that is possible", bound_fill(lengths, CAPACITY, size)),
            )
        },
        "mean fill, first in first out": (fifo_fill(lengths, CAPACITY), ""),
        "mean fill, first in first out, windows of 64": (fifo_window_fill(lengths, 64), ""),
        **medians_ms("one pack from 256 segments", lambda: fullest(window, CAPACITY)),
        **medians_ms(
            "a window of 256 segments", lambda: pack_window(range(len(window)), window, CAPACITY)
        ),
        **rollout_medians("parse + match + target"),
    }


def carried_fill(lengths: Sequence[int], capacity: int, buffer: int) -> float:
    """Mean fill when the buffer is kept full and the last, half-empty packs are dropped."""
    packer: Packer[int] = Packer(capacity=capacity, buffer=buffer, min_fill=0.0001)
    fills = []
    for index, length in enumerate(lengths):
        while len(packer) == buffer:
            pack = packer.take()
            assert pack is not None
            fills.append(pack.fill)
        packer.insert(index, length)
    return statistics.fmean(fills)


def window_fill(lengths: Sequence[int], capacity: int, window: int) -> float:
    """Mean fill over windows that must leave nothing behind."""
    packs = [
        pack
        for start in range(0, len(lengths), window)
        for pack in pack_window(
            range(start, min(start + window, len(lengths))),
            lengths[start : start + window],
            capacity,
        )
    ]
    return statistics.fmean(pack.fill for pack in packs)


def bound_fill(lengths: Sequence[int], capacity: int, window: int) -> float:
    """No packing does better: each window needs as many packs as its tokens fill."""
    windows = [sum(lengths[start : start + window]) for start in range(0, len(lengths), window)]
    return sum(windows) / (sum(-(-tokens // capacity) for tokens in windows) * capacity)


def fifo_fill(lengths: Sequence[int], capacity: int) -> float:
    """Mean fill when each pack closes at the first segment that does not fit."""
    fills = []
    used = 0
    for length in lengths:
        if used + length > capacity:
            fills.append(used / capacity)
            used = 0
        used += length
    return statistics.fmean(fills)


def fifo_window_fill(lengths: Sequence[int], window: int) -> float:
    """The same with windows that leave nothing behind."""
    packs = total = 0
    for start in range(0, len(lengths), window):
        used = CAPACITY
        for length in lengths[start : start + window]:
            if used + length > CAPACITY:
                packs, used = packs + 1, 0
            used += length
            total += length
    return total / (packs * CAPACITY)


def medians_ms(
    name: str, call: Callable[..., Any], inputs: Iterable[Sequence[Any]] = ((),) * 101
) -> dict[str, tuple[float, str]]:
    """Medians of a call's wall and CPU time over `inputs`, its arguments each time.

    The two differ where others use the machine.
    """
    wall, cpu = [], []
    for arguments in inputs:
        began, used = time.perf_counter(), time.process_time()
        call(*arguments)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return {
        f"{name}, median": (statistics.median(wall) * 1000, "ms"),
        f"{name}, median CPU": (statistics.median(cpu) * 1000, "ms"),
    }


Rollout = tuple[tuple[int, ...], list[GTObject]]
"""Token ids of an answer, and its ground truth."""


def rollout_medians(name: str) -> dict[str, tuple[float, str]]:
    """Parse, match and both segments of 101 rollouts, and the tokenizer's encode of as many B3."""
    pieces, gate = _tools()
    rollouts = _rollouts(pieces)
    config = RolloutMatchingConfig()
    fresh = TokenPieces(pieces._backend)  # noqa: SLF001 - one that has encoded nothing yet

    def whole(ids: Sequence[int], gt: Sequence[GTObject]) -> None:
        (judged,) = judge([(ids, gt)], fresh, config, gate)
        build_targets(range(5), judged, WEIGHTS, fresh)

    def encode(text: str) -> None:
        fresh._backend.encode_batch_fast([text], add_special_tokens=False)  # noqa: SLF001 - a yardstick

    tokens = round(statistics.median(len(ids) for ids, _ in rollouts))
    rendered = [(render(gt).text,) for _, gt in rollouts]
    return {
        **medians_ms(f"{name}, {tokens} tokens, 60 objects", whole, rollouts),
        **medians_ms(f"the tokenizer's encode of {tokens} such tokens", encode, rendered),
    }


def _rollouts(pieces: TokenPieces) -> list[Rollout]:
    rng = random.Random(0)
    drawn: list[Rollout] = []
    for _ in range(101):
        gt = [GTObject(_description(rng, words=18), _box(rng)) for _ in range(60)]
        near = [GTObject(o.desc, _shaken(rng, o.box)) for o in gt]
        drawn.append(((*pieces.encode(render(near).text), pieces.end_id), gt))
    return drawn


def record(count: int = 2000) -> dict[str, Any]:
    """Segment lengths of `count` drawn scenes through the real pipeline.

    A scene has 1 to 60 objects (log-normal, median 7), a prompt of 400 to 1,600 tokens (the
    image), and a rollout that finds most objects, adds some, and is at times cut off.
    """
    pieces, gate = _tools()
    rng = random.Random(0)
    lengths = []
    for _ in range(count):
        gt = [_object(rng, rng.randint(1, 4)) for _ in range(_objects_in_a_scene(rng))]
        said = [GTObject(o.desc, _shaken(rng, o.box)) for o in gt if rng.random() < 0.7]
        said += [_object(rng, 2) for _ in range(rng.randint(0, 3))]
        ids = pieces.encode(render(said).text)
        ids = ids[: rng.randint(1, len(ids))] if rng.random() < 0.1 else ids
        prompt = [0] * rng.randint(400, 1600)
        (rollout,) = judge([(ids, gt)], pieces, RolloutMatchingConfig(), gate)
        made = build_targets(prompt, rollout, WEIGHTS, pieces)
        lengths += [len(segment) for segment in (made.b2, made.b3) if segment is not None]
    return {"source": "bench/stage2.py --record: drawn scenes, seed 0", "lengths": lengths}


def _tools() -> tuple[Any, Any]:
    """A byte-level BPE with coord tokens, and no desc gate."""
    from tests.engine.stage2.families import byte_level  # noqa: PLC0415 - main sets the path
    from tests.engine.stage2.mutations import inactive_gate  # noqa: PLC0415 - as above

    return byte_level(), inactive_gate()


def _objects_in_a_scene(rng: random.Random) -> int:
    return min(60, max(1, round(rng.lognormvariate(1.95, 0.9))))


def _object(rng: random.Random, words: int) -> GTObject:
    return GTObject(_description(rng, words), _box(rng))


def _description(rng: random.Random, words: int) -> str:
    return " ".join(
        rng.choice(["black", "cat", "person", "on", "the", "left"]) for _ in range(words)
    )


def _box(rng: random.Random) -> tuple[int, int, int, int]:
    x, y = rng.randint(0, 800), rng.randint(0, 800)
    return x, y, x + rng.randint(20, 199), y + rng.randint(20, 199)


def _shaken(rng: random.Random, box: Sequence[int]) -> tuple[int, int, int, int]:
    x1, y1, x2, y2 = (min(999, max(0, k + rng.randint(-9, 9))) for k in box)
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


if __name__ == "__main__":
    sys.exit(main())
