"""vLLM beside the trainer's own sampler: start-up, weight sync, tokens a second, drawing ahead.

`python -m bench.serving --vllm PYTHON [--json FILE]`. For each model and way of sync one server is
started as a run starts it; then both samplers decode the same prompts in turns, every completion to
its full length. Not called `vllm.py`: libraries look for vLLM by that name. On a GPU: `bench.gpu`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.contract.served import RunVLLMConfig
from engine.contract.serving import Serving
from engine.data.rows import Question
from engine.models import lora, tiny
from engine.models.policy import Policy, build
from engine.sampling.hf import HFSampler
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.sampler import VLLMServerSampler
from engine.sampling.vllm.sync.needs import Mode
from engine.sampling.vllm.sync.proof import Synced
from tools import real_model
from tools.run_outcome import add_attempt, events_of

MODES: tuple[Mode, ...] = ("adapter", "full")
SEED = 11
RANK = 16
STEPS = 12
"""Of each run with and without drawing ahead."""
AHEAD = "what `max_staleness: 1` wins"


@dataclass(frozen=True)
class Size:
    """A random Qwen3 with the embedded tokenizer."""

    width: int
    layers: int

    def save(self, folder: Path) -> str:
        """As a folder that both samplers load."""
        plain = tiny.build_model(SEED).config.to_dict()
        heads = self.width // 64
        config = Qwen3Config.from_dict(
            plain
            | {
                "hidden_size": self.width,
                "intermediate_size": 3 * self.width,
                "num_hidden_layers": self.layers,
                "layer_types": ["full_attention"] * self.layers,
                "num_attention_heads": heads,
                "num_key_value_heads": heads // 2,
                "head_dim": 64,
                "initializer_range": 0.02,
                "max_position_embeddings": 256,
            }
        )
        torch.manual_seed(SEED)
        Qwen3ForCausalLM(config).save_pretrained(folder)
        tiny.build_tokenizer().save_pretrained(folder)
        return str(folder)


SIZES = (Size(256, 4), Size(768, 6))


@dataclass(frozen=True)
class Load:
    """How much is drawn: `at_once` completions of `new` tokens, in each of `rounds`."""

    at_once: tuple[int, ...] = (1, 8, 64)
    new: int = 24
    rounds: int = 3
    syncs: int = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; with --json FILE the same figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm", required=True, help="the Python of an environment with vLLM")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))  # vLLM leaves one core to others too
    figures = measure(options.vllm, Load(), more="--enforce-eager")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def measure(vllm: str, load: Load, *, dtype: str = "float32", more: str = "") -> dict[str, Any]:
    """All figures, printed as they come. `more`: options of the server's command."""
    command = f"{vllm} -m vllm.entrypoints.openai.api_server --model {{base}} {{options}} {more}"
    served: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="nightlane-bench-") as name:
        place = Path(name)
        bases = [size.save(place / f"width-{size.width}") for size in SIZES]
        bases.append(str(real_model.prepare(real_model.default_cache())))
        for base in bases:
            for mode in MODES:
                served.append(
                    _Bench(base, mode, command, load, dtype=dtype, place=place).measured()
                )
                _tell(served[-1])
        ahead = {stale: _steps(bases[0], stale, command, place) for stale in (0, 1)}
    print(
        f"{AHEAD}: {ahead[0]['step_s']:.2f} s a step without, {ahead[1]['step_s']:.2f} s with; "
        f"waited for draws {ahead[0]['sampling_s']:.2f} s, {ahead[1]['sampling_s']:.2f} s"
    )
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    return {"served": served, "ahead": ahead, "load": os.getloadavg()}


class _Bench:
    """One model behind one server."""

    def __init__(
        self, base: str, mode: Mode, command: str, load: Load, *, dtype: str, place: Path
    ) -> None:
        self._policy = _endless(build(base, SEED))
        self._policy.model = lora.attach_zero(
            self._policy.model, base=base, rank=RANK, alpha=RANK, seed=SEED
        )
        self._name = Path(base).name
        self._load = load
        self._mode = mode
        self._synced: list[Synced] = []
        self._lane = ServingLane(
            Serving(serve_cmd=command, timeout_s=900),
            Needs(base, dtype, 96, max(load.at_once), RANK, 1, None),
            self._policy,
            contexts=[self._policy.encode(one.prompt) for one in _questions(8)],
            folder=place / "serving",
            log=place / "serving.log",
            tolerance=0.01 if dtype == "float32" else 0.15,
            say=lambda *_: None,
            listen=self._synced.append,
            vllm=RunVLLMConfig.model_validate({"server": {"launch": {"replicas": 1}}}),
            mode=mode,
        )

    def measured(self) -> dict[str, Any]:
        """Start-up, syncs, and tokens a second of both samplers."""
        began = time.perf_counter()
        with self._lane:
            up = time.perf_counter() - began
            for number in range(self._load.syncs):
                _move(self._policy, number)
                self._lane.bring()
            drawn = {n: self._tokens_per_s(n) for n in self._load.at_once}
        return {
            "model": self._name,
            "parameters": sum(p.numel() for p in self._policy.model.get_base_model().parameters()),
            "mode": self._mode,
            "start_s": up,
            "sync_s": statistics.median(one.seconds for one in self._synced),
            "sync_bytes": self._synced[-1].bytes,
            "tokens_per_s": drawn,
        }

    def _tokens_per_s(self, n: int) -> dict[str, float]:
        """Medians, in turns after one round that warms up; `ratio` is that of paired rounds."""
        questions, new = _questions(n), self._load.new
        ours = HFSampler(self._policy, SEED, "bench", 1.0, new, n)
        theirs = VLLMServerSampler(
            self._lane,
            self._policy,
            SEED,
            "bench",
            1.0,
            new,
            encode=lambda one: self._policy.encode(one.prompt),
        )
        calls: dict[str, Callable[[], Any]] = {
            "hf": lambda: ours(questions, 1),
            "vllm": lambda: theirs(questions, 1),
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(self._load.rounds + 1):
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                if number:
                    seconds[name].append(time.perf_counter() - began)
        paired = [a / b for a, b in zip(*seconds.values(), strict=True)]
        rates = {name: n * new / statistics.median(all_) for name, all_ in seconds.items()}
        return rates | {"ratio": statistics.median(paired)}


def _endless(policy: Policy) -> Policy:
    """Nothing ends a completion: both samplers draw as many tokens."""
    return Policy(policy.model, policy.tokenizer, frozenset())


def _questions(n: int) -> Sequence[Question]:
    return [Question(str(i), f"{i:02d}+{i + 7:02d}=", "") for i in range(n)]


def _move(policy: Policy, seed: int) -> None:
    """As a step does: every weight that trains is another one."""
    policy.version += 1
    generator = torch.Generator(policy.device).manual_seed(seed)
    with torch.no_grad():
        for weight in policy.trainable().values():
            noise = torch.randn(weight.shape, generator=generator, device=weight.device)
            weight.add_(0.01 * noise)


def _steps(base: str, staleness: int, command: str, place: Path) -> dict[str, float]:
    """Medians of a run's steps; the first two are those of a cold start."""
    asked: Mapping[str, Any] = {
        "base": base,
        "tuning": "lora",
        "data": {"source": "embedded:addition", "limit": 600},
        "rollout_backend": "vllm",
        "vllm": {"server": {"launch": {"replicas": 1}}},
        "rewards": [{"function": "bench.serving:varied"}],
        "buffer": {"max_staleness": staleness},
        "objective": {"sampler_correction": "tis"},
        "tasks_per_step": 16,
        "group_k": 8,
        "max_new_tokens": 24,
        "max_steps": STEPS,
        "heldout_every": 10,
        "force_headroom": True,
        "guard": {"collapse": False},
        "threads": 1,
    }
    os.environ["NIGHTLANE_REWARD_MODULES"] = "bench.serving"
    serving = Serving(serve_cmd=command, timeout_s=900)
    run = add_attempt(place, dict(asked), name=f"ahead-{staleness}", serving=serving)
    subprocess.run([sys.executable, "-m", "engine", "run", str(run.root)], check=True)
    told = [event["values"] for event in events_of(run, "metric")]
    series = {
        name: [one[f"time/{name}"] for one in told if f"time/{name}" in one][2:]
        for name in ("step_s", "sampling_s", "training_s")
    }
    return {name: statistics.median(values) for name, values in series.items()}


def varied(completions: Sequence[str], **_: Any) -> list[float]:
    """Rewards that differ inside every group: a step without a difference would not train."""
    return [zlib.crc32(one.encode(errors="replace")) % 2 for one in completions]


def _tell(row: Mapping[str, Any]) -> None:
    print(
        f"{row['model']} ({row['parameters'] / 1e6:.1f} M), {row['mode']}: up after "
        f"{row['start_s']:.0f} s; sync {row['sync_s']:.3f} s, {row['sync_bytes'] / 1e6:.1f} MB"
    )
    for n, rates in row["tokens_per_s"].items():
        print(
            f"  {n:3} at once: hf {rates['hf']:8,.0f} tokens/s, vLLM {rates['vllm']:8,.0f}, "
            f"vLLM / hf {rates['ratio']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
