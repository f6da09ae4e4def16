"""`datasets` on the same rows: read, filtered, deduplicated, tokenised, overlap with a bench.

Run by the interpreter of .venv-peers: `python bench/sources_peers.py FOLDER PROCESSES`. Prints one
JSON object of seconds. Steps are written as its documentation has them, in batches where a function
takes them; its cache is empty, as at a first run.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

WORDS = re.compile(r"\w+")
GRAM = 13


def grams(text: str) -> set[int]:
    """The 13-grams of a text, each as its hash."""
    words = WORDS.findall(text.lower())
    return {hash(tuple(words[at : at + GRAM])) for at in range(len(words) - GRAM + 1)}


def main() -> None:
    """Prints the seconds of each step."""
    from datasets import disable_progress_bars, load_dataset  # noqa: PLC0415 - not ours to have
    from tokenizers import Tokenizer  # noqa: PLC0415

    folder, processes = Path(sys.argv[1]), int(sys.argv[2])
    disable_progress_bars()
    more = {"num_proc": processes} if processes > 1 else {}
    took, last = {}, time.perf_counter()

    def done(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        took[step], last = now - last, now

    def load(name: str) -> Any:
        path = str(folder / name)
        cache = str(folder / "cache")
        return load_dataset("json", data_files=path, split="train", cache_dir=cache)

    rows, bench = load("rows.jsonl"), load("bench.jsonl")
    done("read")
    rows = rows.filter(lambda level: [int(one[-1]) >= 2 for one in level], batched=True,
                       input_columns="level", **more)  # fmt: skip
    done("filtered")
    seen: set[tuple[str, str]] = set()

    def is_new(problem: str, solution: str) -> bool:
        known = (problem, solution) in seen
        seen.add((problem, solution))
        return not known

    rows = rows.filter(is_new, input_columns=["problem", "solution"])
    done("deduplicated")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = rows.map(
        lambda problem: {"ids": [one.ids for one in tokenizer.encode_batch(problem)]},
        batched=True, input_columns="problem", **more,
    )  # fmt: skip
    done("tokenised")
    held = set().union(*map(grams, bench["problem"]))

    def share(problem: str) -> dict[str, float]:
        own = grams(problem)
        return {"share": len(own & held) / len(own) if own else 0.0}

    rows = rows.map(share, input_columns="problem")  # hashes of texts are one process's own
    leaks = sum(one >= 0.8 for one in rows["share"])
    done("overlap")
    print(json.dumps({"rows": len(rows), "leaks": leaks, **took}))


if __name__ == "__main__":
    main()
