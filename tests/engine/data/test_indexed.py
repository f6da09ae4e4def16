"""A large JSONL source stays in its file: the same rows, and memory that does not grow with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.sources import indexed
from engine.contract.sources.config import SourceConfig
from engine.data.rows import IndexedQuestion, Question, load
from engine.data.split import carve, freeze, thawed

ROWS = [
    {"problem": f"What is {n % 40} + {n}?", "answer": str(n % 40 + n), "level": f"Level {n % 5}"}
    for n in range(60)
]
ROWS[17]["note"] = "a column of its own"


def write(path: Path, rows: Sequence[Any], end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(json.dumps(row) + end for row in rows).encode())
    return path


def shards(folder: Path) -> Path:
    """With blank lines between and behind the rows, as editors leave them."""
    write(folder / "train-00000-of-00003.jsonl", ROWS[:20], "\n\n")
    write(folder / "train-00001-of-00003.jsonl", [])
    write(folder / "train-00002-of-00003.jsonl", ROWS[20:], "\r\n")
    return folder


def marked(path: Path) -> Path:
    write(path, ROWS)
    path.write_bytes(b"\xef\xbb\xbf\n" + path.read_bytes().rstrip())
    return path


SOURCES: dict[str, Callable[[Path], Path]] = {
    "file": lambda folder: write(folder / "rows.jsonl", ROWS),
    "ids": lambda folder: write(folder / "ids.jsonl", [{"id": f"q{n}", **r} for n, r in every()]),
    "some ids": lambda folder: write(folder / "some.jsonl", [{"id": "2", **ROWS[0]}, *ROWS[1:]]),
    "marked": lambda folder: marked(folder / "marked.jsonl"),
    "shards": lambda folder: shards(folder / "shards"),
}
USES: Sequence[dict[str, Any]] = (
    {},
    {"limit": 7},
    {"shuffle": 3},
    {"shuffle": 3, "limit": 7},
    {"where": "level in 2..3", "dedupe": "n-gram"},
    {"dedupe": "off"},
)


def every() -> enumerate[dict[str, Any]]:
    return enumerate(ROWS)


def both(config: SourceConfig, patch: pytest.MonkeyPatch) -> tuple[list[Question], list[Question]]:
    """The same source loaded, and left in its files."""
    loaded = list(load(config).questions)
    patch.setattr(indexed, "LARGE", 0)
    return loaded, list(load(config).questions)


@pytest.mark.parametrize("use", USES, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_rows_that_stay_in_their_files_are_the_same(
    source: str, use: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, order, questions and every column; limited, filtered, shuffled and deduplicated."""
    config = SourceConfig(source=str(SOURCES[source](tmp_path)), **use)

    loaded, left = both(config, monkeypatch)

    assert not any(isinstance(row, IndexedQuestion) for row in loaded)
    assert all(isinstance(row, IndexedQuestion) for row in left)
    names = ("id", "prompt", "answer", "solution", "messages", "source", "draw", "again")
    for a, b in zip(loaded, left, strict=True):
        assert [getattr(a, name) for name in names] == [getattr(b, name) for name in names]
        assert a.columns == dict(b.columns)
        changed = {"id": "m/1", "source": "m", "verifier": "math", "draw": 3, "again": 1}
        assert astuple(a.but(**changed))[:4] == ("m/1", b.prompt, b.answer, b.solution)
        assert {name: getattr(b.but(**changed), name) for name in changed} == changed


def test_a_frozen_split_is_the_same_and_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may begin with a small file and go on when it has grown."""
    config = SourceConfig(source=str(SOURCES["some ids"](tmp_path)))
    loaded, left = both(config, monkeypatch)
    cut = partial(carve, heldout_frac=0.2, select_frac=0.5, seed=1)

    split = cut(loaded)
    freeze(split, tmp_path / "split.json")

    found = thawed(left, tmp_path / "split.json")
    assert found is not None
    assert found.hash == split.hash == cut(left).hash
    assert found.solutions_hash == split.solutions_hash


def test_a_row_that_changes_under_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are added change nothing; another content is named, not trained on."""
    monkeypatch.setattr(indexed, "LARGE", 0)
    path = write(tmp_path / "rows.jsonl", ROWS)
    rows = load(SourceConfig(source=str(path))).questions

    with path.open("a") as stream:
        stream.write(json.dumps(ROWS[0]) + "\n")
    assert rows[0].answer == "0"
    path.write_bytes(path.read_bytes().replace(b"What", b"Then"))
    with pytest.raises(
        RLLoopError, match=r"has other rows at byte .* restore the file, and resume"
    ):
        assert rows[40].prompt


def test_a_source_that_is_gone_is_named(tmp_path: Path) -> None:
    """In words, whichever way it would have been read."""
    with pytest.raises(RLLoopError, match=r"gone\.jsonl.*name a readable file"):
        load(SourceConfig(source=str(tmp_path / "gone.jsonl")))


_READ = """
import json, random, resource, sys
from pathlib import Path
from engine.contract.sources.config import SourceConfig
from engine.data.curriculum import Curriculum
from engine.data.rows import load, numbered
from engine.data.split import carve, freeze

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

source, split = map(Path, sys.argv[1:])
before = peak()
config = SourceConfig(source=str(source), where="level in 1..5", dedupe="normalized")
rows = load(config).questions
found = carve(rows, heldout_frac=0.01, select_frac=0.5, seed=1)
freeze(found, split)
names = numbered(found.train)
drawn = Curriculum(found.train, seed=0).draw(0, 64, draw=0)
asked = [row.prompt for row in [*drawn, *found.select, *found.report]]
judged = [len(row.columns["trace"]) for row in [*drawn, *found.select]]
print(json.dumps({"rows": len(rows), "asked": len(asked), "longest": max(judged),
                  "mib": peak() - before}))
"""


def measured(source: Path) -> dict[str, Any]:
    """What reading, splitting and drawing a source took, in a process of its own."""
    argv = [sys.executable, "-c", _READ, str(source), str(source.with_name("split.json"))]
    found: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return found


def test_a_gigabyte_is_indexed_not_loaded(tmp_path: Path) -> None:
    """10,000 rows of 100 kB, of which a step needs a few: the memory of some, not of all."""
    path, trace = tmp_path / "large.jsonl", "x" * 100_000
    with path.open("w") as stream:
        for n in range(10_000):
            row = {"prompt": f"What is {n} + {n}?", "answer": 2 * n, "level": n % 7}
            stream.write(json.dumps(row)[:-1] + f', "trace": "{trace}"}}\n')
    try:
        assert path.stat().st_size > 10**9
        found = measured(path)
    finally:
        path.unlink()  # pytest keeps what a test leaves

    assert found["rows"] == sum(1 <= n % 7 <= 5 for n in range(10_000))
    assert found["longest"] == 100_000
    assert found["mib"] < 100, found
