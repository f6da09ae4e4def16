"""Whether a run learns as much with vLLM as its sampler as with the trainer's own model.

The demo's recipe over five named seeds with the trainer's sampler, and over three others with a
vLLM server, each twice: all weights trained and sent merged (`full`), and a LoRA adapter trained
and sent by itself (`adapter`). The warm-up, in which no sample is trained on, is each seed's own.
Fails unless the mean lift of the three lies inside the 95 % prediction interval for a mean of
three: mean of the five ± t₄ · s · √(1/5 + 1/3).

`python -m tools.seeds_vllm --vllm PYTHON --data-dir DIR`: what stands in DIR already is not run
again, so a proof that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scipy import stats

from engine.models import tiny
from tools import seeds

HF_SEEDS = seeds.SEEDS
VLLM_SEEDS = (106, 107, 108)
"""Others than those of the five: an interval for new runs is asked new runs. Both were named before
any of these runs was made; the recipe may be tuned on any other seed."""
HEAD_DIM = 32
"""The demo's model has heads of 16 numbers, which vLLM on a CPU does not serve."""

Mode = Literal["full", "adapter"]
MODES: tuple[Mode, ...] = ("full", "adapter")
_GATES = "heldout_frac=0.1"
"""Of all runs: gates and report of 500 questions, half of the demo's; on two cores its gates take a
server longer than its steps."""
_ADAPTER = ("tuning=lora", "lr=1e-3", "warmup=null")
"""On the warmed-up weights of the same seed: an adapter on random ones learns nothing. The learning
rate was chosen on seed 11, without a server: 3e-3 learnt less."""
_SERVED = (
    "rollout_backend=vllm",
    'vllm={"mode": "server", "server": {"launch": {"replicas": 1}}}',
)


class Verdict(NamedTuple):
    """The mean lift with vLLM against the interval from the runs without."""

    mean_hf: float
    s: float
    """Standard deviation of a run's lift."""
    half_width: float
    mean_vllm: float

    @property
    def inside(self) -> bool:
        """Whether vLLM's mean is one that runs of the other kind could have."""
        return abs(self.mean_vllm - self.mean_hf) <= self.half_width


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the means of both modes lie inside."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm", required=True, help="the Python of an environment with vLLM")
    parser.add_argument("--data-dir", type=Path, default=Path(".nightlane/seeds-vllm"))
    parser.add_argument("--port", type=int, default=8768)
    options = parser.parse_args(argv)
    _serve_by(options.vllm)
    runs = _Runs(options.data_dir.resolve(), options.port)
    seeds.print_head()
    proven = [_proven(mode, runs) for mode in MODES]
    return 0 if all(proven) else 1


def _proven(mode: Mode, runs: _Runs) -> bool:
    hf = [runs.lift(mode, seed, served=False) for seed in HF_SEEDS]
    found = judge(hf, [runs.lift(mode, seed, served=True) for seed in VLLM_SEEDS])
    low, high = found.mean_hf - found.half_width, found.mean_hf + found.half_width
    print(
        f"\n{mode}: hf {found.mean_hf:+.4f}, s {found.s:.4f}; prediction interval for a mean of "
        f"{len(VLLM_SEEDS)}: {low:+.4f} … {high:+.4f} (± {found.half_width:.4f}); vLLM "
        f"{found.mean_vllm:+.4f}: {'inside' if found.inside else 'OUTSIDE'}\n",
        flush=True,
    )
    return found.inside


def judge(hf: Sequence[float], vllm: Sequence[float]) -> Verdict:
    """Lifts of runs, all with seeds of their own.

    >>> found = judge([0.20, 0.16, 0.26, 0.20, 0.20], [0.19, 0.23, 0.21])
    >>> round(found.half_width, 4), found.inside
    (0.0727, True)
    """
    n, s = len(hf), statistics.stdev(hf)
    t = float(stats.t.ppf(0.975, n - 1))
    width = t * s * math.sqrt(1 / n + 1 / len(vllm))
    return Verdict(statistics.fmean(hf), s, width, statistics.fmean(vllm))


class _Runs:
    """Runs in one data directory; what each came to is kept in a file."""

    def __init__(self, place: Path, port: int) -> None:
        self._place = place
        self._port = port

    def lift(self, mode: Mode, seed: int, *, served: bool) -> float:
        """Of the run, which is made if it was not yet."""
        warmed = self._made(f"warm-{seed}", seed, self._base(seed), "max_steps=1")
        base, settings = self._base(seed), [_GATES]
        if mode == "adapter":
            base, settings = _step_zero(warmed), [_GATES, *_ADAPTER]
        name = f"{'vllm' if served else 'hf'}-{mode}-{seed}"
        found = self._made(name, seed, base, *settings, *(_SERVED if served else ()))
        seeds.print_row(name, found)
        return float(found["lift"])

    def _made(self, name: str, seed: int, base: Path, *settings: str) -> dict[str, Any]:
        result = self._place / f"{name}.json"
        if not result.exists():
            changes = [word for one in (f"base={base}", *settings) for word in ("--set", one)]
            where = ("--seed", str(seed), "--port", str(self._port))
            found = seeds.demo(self._place, *where, *changes)
            found["run"] = str(self._place / "runs" / str(found["job_id"]))
            result.write_text(json.dumps(found))
        known: dict[str, Any] = json.loads(result.read_text())
        return known

    def _base(self, seed: int) -> Path:
        """The demo's model with wider heads; random weights of the seed."""
        folder = self._place / f"base-{seed}"
        if not folder.exists():
            tiny.build_model(seed, head_dim=HEAD_DIM).save_pretrained(folder)
            tiny.build_tokenizer().save_pretrained(folder)
        return folder


def _step_zero(found: Mapping[str, Any]) -> Path:
    return Path(found["run"]) / "checkpoints" / "step-000000" / "model"


def _serve_by(python: str) -> None:
    module = "-m vllm.entrypoints.openai.api_server"
    command = f"{python} {module} --model {{base}} {{options}} --enforce-eager"
    os.environ["NIGHTLANE_SERVE_CMD"] = command
    os.environ["HF_HUB_OFFLINE"] = "1"


if __name__ == "__main__":
    sys.exit(main())
