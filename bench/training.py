"""A trainer's step: padded against packed, whole logits against pieces, plain against recomputed.

CPU time. Variants of one shape take turns within one process, so that a noisy machine treats them
alike; what a step adds to the process's memory at its peak is measured in a child of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.contract.rl.objective import ObjectiveConfig
from engine.contract.rl.optim import OptimConfig
from engine.models import tiny
from engine.models.policy import Policy, Snapshot
from engine.rl.trainer import Trainer
from engine.run.memory import PeakMeter, rss_gb
from engine.sampling.base import Groups, Rollout


@dataclass(frozen=True)
class Shape:
    """P prompts of `prompt` tokens, `k` completions of `shortest` to `longest` tokens each."""

    name: str
    prompts: int
    k: int
    prompt: int
    shortest: int
    longest: int
    vocabulary: int
    micro_batch: int


@dataclass(frozen=True)
class Variant:
    """How the step is computed; the first of a shape is what the others are held against."""

    name: str
    settings: dict[str, Any]
    objective: dict[str, Any]


WHOLE = 65_536
"""MiB that no batch here fills: the logits are one piece."""
PADDED = Variant("padded", {}, {})
PACKED = Variant("packed, 2048 tokens", {"batching": "packed", "pack_tokens": 2048}, {})
SHAPES: tuple[tuple[Shape, tuple[Variant, ...]], ...] = (
    (
        Shape("demo step: 32 x 8, 6 -> 1..5", 32, 8, 6, 1, 5, 13, 256),
        (
            PADDED,
            Variant("packed, 512 tokens", {"batching": "packed", "pack_tokens": 512}, {}),
            Variant("grpo, two updates", {}, {"loss": "grpo", "epochs": 2}),
            Variant("bf16", {"precision": "bf16"}, {}),
        ),
    ),
    (
        Shape("unlike lengths: 8 x 4, 24 -> 8..128", 8, 4, 24, 8, 128, 13, 32),
        (
            PADDED,
            PACKED,
            Variant("layers computed again", {"gradient_checkpointing": True}, {}),
        ),
    ),
    (
        Shape("vocabulary 32,000: 8 x 4, 24 -> 64", 8, 4, 24, 64, 64, 32_000, 32),
        (
            Variant("whole logits", {"logit_chunk_mib": WHOLE}, {}),
            Variant("pieces of 64 MiB", {"logit_chunk_mib": 64}, {}),
            Variant("pieces of 8 MiB", {"logit_chunk_mib": 8}, {}),
        ),
    ),
)


def main() -> None:
    """Print a table; with --json FILE the same figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--peak", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        shape, variants = SHAPES[arguments.peak[0]]
        print(added_mib(shape, variants[arguments.peak[1]]))
        return
    rows = []
    print(f"{'shape':38} {'variant':24} {'ms':>8} {'x first':>8} {'peak MiB':>9}")
    for place, (shape, variants) in enumerate(SHAPES):
        seconds = measure(shape, variants, arguments.rounds)
        for number, variant in enumerate(variants):
            own = seconds[number]
            ratio = statistics.median(a / b for a, b in zip(own, seconds[0], strict=True))
            row = {
                "shape": shape.name,
                "variant": variant.name,
                "ms": statistics.median(own) * 1000,
                "ratio": ratio,
                "peak_mib": _in_child(place, number, arguments.threads),
            }
            rows.append(row)
            print(
                f"{row['shape']:38} {row['variant']:24} {row['ms']:8.0f} {ratio:8.2f} "
                f"{row['peak_mib']:9.0f}",
                flush=True,
            )
    if arguments.json:
        document = {
            "rows": rows,
            "rounds": arguments.rounds,
            "threads": arguments.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def measure(shape: Shape, variants: tuple[Variant, ...], rounds: int) -> list[list[float]]:
    """CPU seconds of each variant's steps, taken in turns after one warm round."""
    trainers = [_trainer(shape, variant) for variant in variants]
    groups, advantages = _rollouts(shape)
    seconds: list[list[float]] = [[] for _ in variants]
    for step in range(1, rounds + 2):
        for trainer, into in zip(trainers, seconds, strict=True):
            started = time.process_time()
            trainer(groups, advantages, step)
            if step > 1:
                into.append(time.process_time() - started)
    return seconds


def added_mib(shape: Shape, variant: Variant) -> float:
    """What one step adds to the peak of this process."""
    trainer = _trainer(shape, variant)
    groups, advantages = _rollouts(shape)
    meter = PeakMeter()
    meter.begin()
    before = rss_gb()
    trainer(groups, advantages, 1)
    meter.end("step")
    return (meter.by_phase["step"] - before) * 1e9 / 2**20


def _in_child(place: int, number: int, threads: int) -> float:
    command = [sys.executable, __file__, "--threads", str(threads)]
    said = subprocess.run(
        [*command, "--peak", str(place), str(number)], check=True, capture_output=True, text=True
    )
    return float(said.stdout)


def _trainer(shape: Shape, variant: Variant) -> Trainer:
    optim = OptimConfig(**variant.settings)
    policy = _policy(shape)
    policy.precision = optim.precision
    return Trainer(
        policy,
        Snapshot(policy),
        lr=1e-5,
        kl_coef=0.02,
        grad_clip=1.0,
        temp=1.0,
        micro_batch=shape.micro_batch,
        max_new_tokens=shape.longest,
        objective=ObjectiveConfig(**variant.objective),
        optim=optim,
    )


def _policy(shape: Shape) -> Policy:
    """The embedded size with room for long rollouts, and the vocabulary asked for."""
    changes = {"max_position_embeddings": 512, "vocab_size": shape.vocabulary}
    config = Qwen3Config(**tiny.build_model(0).config.to_dict() | changes)
    torch.manual_seed(0)
    return Policy(Qwen3ForCausalLM(config), tiny.build_tokenizer(), frozenset({12}))


def _rollouts(shape: Shape) -> tuple[Groups, list[list[float]]]:
    """No two completions alike, every second one better than its group."""
    draw = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(shape.vocabulary) for _ in range(count))

    groups = []
    for number in range(shape.prompts):
        prompt = ids(shape.prompt)
        groups.append(
            [
                Rollout(
                    str(number),
                    sample,
                    prompt,
                    ids(draw.randint(shape.shortest, shape.longest)),
                    (),
                    "",
                    False,
                    0,
                )
                for sample in range(shape.k)
            ]
        )
    advantages = [[1.0 - 2.0 * (sample % 2) for sample in range(shape.k)] for _ in groups]
    return groups, advantages


if __name__ == "__main__":
    main()
