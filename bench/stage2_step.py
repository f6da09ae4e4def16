"""One Channel-B step split into decode, parse, match, encode, learn: on one process, on two, over
a vLLM server, and pipelined.

`python -m bench.stage2_step [--vllm PYTHON] [--json FILE]`: whole runs of the embedded model after
one warm-up that all share, in turns; medians over their steps, the first of each left out. Without
`--vllm` the two ways on the trainer's own model.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.contract.run_dir import RunDir
from engine.contract.serving import Serving
from engine.stage2.embedded import tiny_vl
from engine.stage2.parse.parser import parse
from engine.stage2.parse.pieces import TokenPieces
from tools.run_outcome import add_attempt, events_of

ROLLOUTS = 16
STEPS = 6
ROUNDS = 2
PARTS = ("decode", "of it waited for", "parse", "match", "encode", "learn", "step")
_SERVER = {"mode": "server", "server": {"launch": {"replicas": 1}}}
_SERVE = "-m vllm.entrypoints.openai.api_server --model {base} {options} --enforce-eager"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm", type=Path, help="the Python of an environment with vLLM")
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each way")
    options = parser.parse_args(argv)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.vllm, options.rounds)
    print(f"{'seconds of a step':20}" + "".join(f"{name:>22}" for name in figures))
    for part in PARTS:
        print(f"{part:20}" + "".join(f"{one[part]:22.4f}" for one in figures.values()))
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} after")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def measure(folder: Path, vllm: Path | None, rounds: int) -> dict[str, dict[str, float]]:
    """Way → part of a step → seconds."""
    ways: dict[str, Mapping[str, Any]] = {"1 process": {}, "2 processes": {"ranks": 2}}
    if vllm is not None:
        ways |= {"vLLM": {"vllm": _SERVER}, "vLLM, pipelined": {"vllm": _SERVER, "pipelined": True}}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            began = time.monotonic()
            found[name] += _steps(_run(folder, f"{name}-{number}", _recipe(**way), vllm))
            print(f"{name}: a run of {time.monotonic() - began:.0f} s", flush=True)
    return {
        name: {part: statistics.median(one[part] for one in steps) for part in PARTS}
        for name, steps in found.items()
    }


def _recipe(
    ranks: int = 1, vllm: Mapping[str, Any] | None = None, *, pipelined: bool = False
) -> dict[str, Any]:
    """Every step rolls out, in calls of four; packed, as the pipeline needs it."""
    rollouts: dict[str, Any] = {
        "rollout_backend": "hf" if vllm is None else "vllm",
        "decode_batch_size": 4,
        "max_new_tokens": 56,
        "iou_gate": 0.1,
    }
    if vllm is not None:
        rollouts["vllm"] = dict(vllm)
    return {
        "custom": {
            "trainer_variant": "stage2_ab_training",
            "extra": {"rollout_matching": rollouts},
        },
        "model": {"path": "embedded:qwen3-vl-tiny", "tuning": "full"},
        "data": {
            "train_jsonl": "embedded:shapes",
            "val_jsonl": "embedded:shapes",
            "val_limit": 32,
        },
        "warmup": {"target_f1": 0.3, "eval_every": 25},
        "stage2_ab": {
            "schedule": {"b_ratio": 1.0},
            "coord_mass_weight": 1.0,
            "channel_b": {
                "enable_pipeline": pipelined,
                "semantic_desc_gate": {"enabled": False},
            },
        },
        "training": {
            "per_device_train_batch_size": 1,
            "effective_batch_size": ROLLOUTS,
            "packing": True,
            "learning_rate": 1e-5,
            "max_steps": STEPS,
            "eval_steps": STEPS,
            "save_steps": STEPS,
            "seed": 200,
        },
        "global_max_length": 400,
        "ranks": ranks,
        "threads": 1,
    }


def _run(folder: Path, name: str, recipe: dict[str, Any], vllm: Path | None) -> RunDir:
    serving = Serving(serve_cmd=f"{vllm} {_SERVE}", timeout_s=900) if vllm else None
    run = add_attempt(folder, recipe, name=name, kind="stage2_ab", serving=serving)
    alone = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command = [sys.executable, "-m", "engine", "run", str(run.root)]
    done = subprocess.run(
        command, env=os.environ | alone, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return run


def _steps(run: RunDir) -> list[dict[str, float]]:
    """Seconds of each step's parts, without the first step."""
    told = [e for e in events_of(run, "metric") if "time/step_s" in e["values"]]
    parsing = _parse_seconds(run)
    return [_parts(e["values"], parsing[e["step"]]) for e in told if e["step"] > 1]


def _parts(values: Mapping[str, float], parse_s: float) -> dict[str, float]:
    decode, judged = values["time/rollout_generate_s"], values["time/rollout_parse_match_s"]
    waited, encode = (
        values.get("time/rollout_waited_s", decode),
        values["time/rollout_teacher_encode_s"],
    )
    learn = values["time/step_s"] - waited - judged - encode
    found = (decode, waited, parse_s, judged - parse_s, encode, learn, values["time/step_s"])
    return dict(zip(PARTS, found, strict=True))


def _parse_seconds(run: RunDir) -> dict[int, float]:
    """Of the first rank's rollouts, parsed once more: the run times parse and match together."""
    pieces, found = TokenPieces(tiny_vl.build_tokenizer()), {}
    for path in sorted(run.rollouts.glob("train-*.jsonl")):
        ids = [json.loads(line)["ids"] for line in path.read_text().splitlines()]
        began = time.perf_counter()
        for one in ids:
            parse(one, pieces)
        found[int(path.stem.removeprefix("train-"))] = time.perf_counter() - began
    return found


if __name__ == "__main__":
    sys.exit(main())
