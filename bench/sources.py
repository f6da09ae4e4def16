"""`make bench-sources`: 12,500 rows ready to train on, beside `datasets` doing the same.

Read, filtered, deduplicated, tokenised, and held against the rows of a bench. Exit code 1 where
that takes more than 10 s. `--large 1` (or 5) measures a file of so many GB instead: seconds and
memory of reading, splitting and drawing, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engine.contract.rl.prompting import PromptingConfig
from engine.contract.sources.config import SourceConfig
from engine.contract.sources.overlap import overlaps
from engine.data.rows import load
from engine.sampling.prompts import PromptBuilder

BOUND_S = 10.0
ROWS, BENCH = 12_500, 1_000
PEERS = Path(".venv-peers/bin/python")


def problems(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows as MATH has them: some 35 words of a problem and 90 of a solution, levels 1 to 5."""
    chance = random.Random(seed)
    words = [
        "".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9))) for _ in range(4000)
    ]
    for number in range(count):
        problem = " ".join(chance.choices(words, k=chance.randint(12, 60)))
        solution = " ".join(chance.choices(words, k=chance.randint(30, 150)))
        yield {
            "problem": f"{problem} $x^2 + {number}$?",
            "solution": f"{solution} $\\boxed{{{number}}}$",
            "level": f"Level {chance.randint(1, 5)}",
            "type": chance.choice(["Algebra", "Geometry", "Number Theory"]),
        }


def written(folder: Path) -> None:
    """Rows with repeats and with rows of the bench among them, and a tokenizer of such words."""
    rows = list(problems(ROWS - 500, seed=1))
    bench = list(problems(BENCH, seed=2))
    rows = [*rows, *rows[:400], *bench[:100]]
    random.Random(3).shuffle(rows)
    for name, these in (("rows.jsonl", rows), ("bench.jsonl", bench)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in these))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8_000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator((row["problem"] for row in rows[:3_000]), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


def ours(folder: Path) -> dict[str, float]:
    """Seconds of each step; the first three are one pass."""
    tokenizer: Any = PreTrainedTokenizerFast
    tokenizer = tokenizer(tokenizer_file=str(folder / "tokenizer.json"))
    builder = PromptBuilder(tokenizer, PromptingConfig(skip_chat_template=True))
    start = time.perf_counter()
    rows = load(SourceConfig(source=str(folder / "rows.jsonl"), where="level >= 2")).questions
    bench = load(SourceConfig(source=str(folder / "bench.jsonl"))).questions
    read = time.perf_counter()
    for row in rows:
        builder(row)
    tokenised = time.perf_counter()
    found = overlaps(rows, {"bench": bench})["bench"]
    end = time.perf_counter()
    return {
        "rows": len(rows),
        "leaks": len(found.leaks),
        "read, filtered, deduplicated": read - start,
        "tokenised": tokenised - read,
        "overlap": end - tokenised,
    }


def peers(folder: Path, processes: int, python: Path) -> dict[str, float]:
    """The same of `datasets`, its cache empty."""
    with tempfile.TemporaryDirectory() as home:
        for name in ("rows.jsonl", "bench.jsonl", "tokenizer.json"):
            (Path(home) / name).symlink_to(folder / name)
        argv = [str(python), "bench/sources_peers.py", home, str(processes)]
        environment = os.environ | {"HF_HOME": home, "HF_HUB_OFFLINE": "1"}
        said = subprocess.run(argv, check=True, capture_output=True, env=environment).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def whole(steps: dict[str, float]) -> float:
    """Seconds of all steps."""
    return sum(took for step, took in steps.items() if step not in {"rows", "leaks"})


def beside(rounds: int, python: Path) -> dict[str, Any]:
    """Ours and theirs in turns: medians of whole rounds, and the steps of the last."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "datasets": [], "datasets, 2": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder)
        for _ in range(rounds):
            found["ours"].append(ours(folder))
            found["datasets"].append(peers(folder, 1, python))
            found["datasets, 2"].append(peers(folder, 2, python))
    middle = {who: statistics.median(map(whole, each)) for who, each in found.items()}
    for who, each in found.items():
        steps = {step: round(took, 2) for step, took in each[-1].items()}
        print(f"{who}: {middle[who]:.2f} s, median of {rounds}; {steps}")
    ratio = min(middle["datasets"], middle["datasets, 2"]) / middle["ours"]
    print(f"datasets / ours: {ratio:.2f}")
    return {"seconds": middle, "ratio": ratio}


LARGE = """
import json, resource, sys, time
from engine.contract.sources.config import SourceConfig
from engine.data.curriculum import Curriculum
from engine.data.rows import load, numbered
from engine.data.split import carve

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before, start, took = peak(), time.perf_counter(), {}
def done(step):
    took[step + "_s"], took[step + "_mib"] = time.perf_counter() - start, peak() - before

rows = load(SourceConfig(source=sys.argv[1])).questions
done("read")
split = carve(rows, heldout_frac=0.01, select_frac=0.5, seed=1)
done("split")
split.hash
done("hashed")
numbered(split.train)
for draw in range(10):
    for row in Curriculum(split.train, seed=0).draw(64 * draw, 64, draw=draw):
        row.prompt, row.answer, dict(row.columns)
done("drawn")
print(json.dumps({"rows": len(rows), **took}))
"""


def large(gigabytes: float, row_bytes: int) -> dict[str, Any]:
    """A file of so many GB, read by a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.jsonl"
        words = "x" * (row_bytes - 60)
        with path.open("w") as stream:
            for n in range(int(gigabytes * 1e9 / row_bytes)):
                stream.write(
                    f'{{"id": "q{n:08d}", "prompt": "{n:08d} {words}", "answer": "{n}"}}\n'
                )
        argv = [sys.executable, "-c", LARGE, str(path)]
        found: dict[str, Any] = json.loads(
            subprocess.run(argv, check=True, capture_output=True).stdout
        )
        found["bytes"] = path.stat().st_size
    for step in ("read", "split", "hashed", "drawn"):
        print(f"{step}: {found[f'{step}_s']:.0f} s, {found[f'{step}_mib']:.0f} MiB above import")
    print(f"{found['rows']} rows, {found['bytes'] / 1e9:.2f} GB")
    return found


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=float, metavar="GB")
    parser.add_argument("--row-bytes", type=int, default=1_000)
    parser.add_argument("--peers", type=Path, default=PEERS, help="a Python that has datasets")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores")
    if options.large:
        figures = large(options.large, options.row_bytes)
    else:
        figures = beside(options.rounds, options.peers)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return int(not options.large and figures["seconds"]["ours"] > BOUND_S)


if __name__ == "__main__":
    sys.exit(main())
