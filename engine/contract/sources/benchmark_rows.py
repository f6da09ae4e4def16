"""Sources that say of themselves that they are what a benchmark tests on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.contract.sources.first_rows import FirstRow

BENCHMARKS = (
    *("gsm8k", "gsm_8k", "hendrycks_math", "minerva_math", "math500", "math_500", "math"),
    *("aime", "olympiadbench", "svamp", "asdiv", "multiarith", "humaneval", "mbpp", "apps"),
    *("livecodebench", "ifeval", "mmlu", "gpqa", "hellaswag", "winogrande", "bbh"),
    *("truthfulqa", "commonsenseqa", "strategyqa", "csqa", "piqa", "boolq", "openbookqa"),
)
"""By the names that folders, files and columns give them."""
WHOLE = frozenset({"math500", "math_500", "humaneval", "ifeval", "gpqa"})
"""Those that are nothing but a test."""
_TEST = frozenset({"test", "testset", "testing"})
_DATASETS = ("data_source", "dataset", "dataset_name", "source")


def says_test(source: str, rows: Sequence[FirstRow]) -> str | None:
    """What says that these are a known benchmark's test rows; None where nothing does.

    >>> says_test("/data/gsm8k/test.parquet", [])
    "its path says gsm8k and test"
    """
    path = Path(source)
    named = _words("/".join([*path.parts[-3:-1], path.name]))
    benchmark = _benchmark(named)
    column = _said(rows, "split")
    if column is not None and column.casefold() in _TEST:
        dataset = next((found for name in _DATASETS if (found := _said(rows, name))), None)
        known = _benchmark(_words(dataset or "")) or benchmark
        return f"its rows say split: {column}" + (f" of {dataset or known}" if known else "")
    if column is None and benchmark and (named & _TEST or benchmark in WHOLE):
        return f"its path says {benchmark}" + (" and test" if named & _TEST else "")
    return None


def _said(rows: Sequence[FirstRow], name: str) -> str | None:
    """What most rows hold under a name, in themselves or in verl's `extra_info`."""
    found = [_text(row.columns, name) or _text(row.columns.get("extra_info"), name) for row in rows]
    texts = [text for text in found if text]
    if 2 * len(texts) <= len(found):
        return None
    return max(sorted(set(texts)), key=texts.count)


def _text(columns: Any, name: str) -> str | None:
    found = columns.get(name) if isinstance(columns, Mapping) else None
    return found if isinstance(found, str) else None


def _words(text: str) -> frozenset[str]:
    """Parts of a path, and neighbours of them joined: `math_500`."""
    parts = [part for part in re.split(r"[^a-z0-9]+", text.casefold()) if part]
    pairs = [f"{one}_{two}" for one, two in pairwise(parts)]
    return frozenset([*parts, *pairs])


def _benchmark(named: frozenset[str]) -> str | None:
    return next((name for name in BENCHMARKS if name in named), None)
