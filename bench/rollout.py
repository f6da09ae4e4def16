"""Rollout throughput: the embedded sampler against Hugging Face `generate`, side by side.

Both decode the same prompts with the same tiny model, in turns within one process, so that a
noisy machine treats them alike. Every completion runs to its full length: end tokens are taken
away from both.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from engine.data.rows import Question
from engine.models import tiny
from engine.models.policy import Policy
from engine.sampling.hf import HFSampler


@dataclass(frozen=True)
class Shape:
    """P prompts of `prompt` tokens, `k` completions of `new` tokens each."""

    name: str
    prompts: int
    k: int
    prompt: int
    new: int


SHAPES = (
    Shape("demo step: 32 x 8, 6 -> 4", 32, 8, 6, 4),
    Shape("short: 16 x 4, 24 -> 32", 16, 4, 24, 32),
    Shape("long prompt: 16 x 4, 192 -> 32", 16, 4, 192, 32),
)


def main() -> None:
    """Print a table; with --json FILE the same figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [measure(shape, arguments.rounds) for shape in SHAPES]
    print(f"{'shape':32} {'generate tok/s':>15} {'ours tok/s':>12} {'ours / generate':>16}")
    for row in rows:
        print(
            f"{row['shape']:32} {row['generate_tok_s']:15,.0f} {row['ours_tok_s']:12,.0f} "
            f"{row['ratio']:15.2f}x"
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


def measure(shape: Shape, rounds: int) -> dict[str, Any]:
    """Median seconds of both, taken in turns after one warm round."""
    policy = _policy()
    questions = _questions(shape)
    sampler = HFSampler(policy, 0, "bench", 1.0, shape.new, shape.prompts * shape.k)
    ids = torch.tensor([policy.encode(q.prompt) for q in questions])
    pair: tuple[Callable[[], Any], Callable[[], Any]] = (
        lambda: _generate(policy, ids, shape),
        lambda: sampler(questions, shape.k),
    )
    for call in pair:
        call()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, into in zip(pair, seconds, strict=True):
            started = time.perf_counter()
            call()
            into.append(time.perf_counter() - started)
    tokens = shape.prompts * shape.k * shape.new
    theirs, ours = (tokens / statistics.median(s) for s in seconds)
    paired = [a / b for a, b in zip(*seconds, strict=True)]
    return {
        "shape": shape.name,
        "generate_tok_s": theirs,
        "ours_tok_s": ours,
        "ratio": statistics.median(paired),
    }


def _policy() -> Policy:
    """A model of the embedded size with room for long prompts and without an end token."""
    tokenizer = tiny.build_tokenizer()
    config = Qwen3Config(**tiny.build_model(0).config.to_dict() | {"max_position_embeddings": 512})
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = None
    return Policy(model, tokenizer, frozenset())


def _questions(shape: Shape) -> Sequence[Question]:
    return [Question(str(i), f"{i:02d}".ljust(shape.prompt, "+"), "") for i in range(shape.prompts)]


def _generate(policy: Policy, ids: torch.Tensor, shape: Shape) -> Any:
    with torch.inference_mode():
        return policy.model.generate(
            ids.repeat_interleave(shape.k, 0),
            attention_mask=torch.ones(shape.prompts * shape.k, shape.prompt, dtype=torch.long),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=shape.new,
            past_key_values=DynamicCache(),
            output_logits=True,
            return_dict_in_generate=True,
        )


if __name__ == "__main__":
    main()
