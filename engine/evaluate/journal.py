"""Completions of each bench and checkpoint as JSON lines, and back again: a row that is finished
stays so.

While a bench is under way its lines are added to `rollouts/parts/SPLIT-STEP.jsonl` as they come;
then they stand, whole and in order, in `rollouts/heldout-SPLIT-STEP.jsonl`. What a kill has torn is
sampled again, to the same completions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.documents import MAX_ROWS_BYTES, parse_json, read_text
from engine.contract.errors import ConfigError
from engine.contract.jsonl import write_rows

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Journal:
    """Of one run directory's `rollouts/`."""

    folder: Path

    def recall(self, split: str, step: int, samples: int) -> dict[str, Sequence[Line]]:
        """The completions of each row that has all of them, by its id."""
        found: dict[str, dict[int, Line]] = {}
        for path in (self.whole(split, step), self._part(split, step)):
            for line in _lines(path):
                found.setdefault(line["id"], {})[line["sample"]] = line
        wanted = range(samples)
        return {
            id_: [mine[sample] for sample in wanted]
            for id_, mine in found.items()
            if all(sample in mine for sample in wanted)
        }

    def add(self, split: str, step: int, lines: Sequence[Line]) -> None:
        """What was just sampled."""
        path = self._part(split, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        with path.open("ab") as stream:
            # A torn line before it stays a line of its own.
            begun = stream.tell() > 0
            stream.write(b"\n" * begun + written.encode(errors="replace"))

    def finish(
        self, split: str, step: int, ids: Iterable[str], lines: Mapping[str, Sequence[Line]]
    ) -> list[Line]:
        """All of them, whole, in the order of the rows' ids."""
        every = [line for id_ in ids for line in lines[id_]]
        write_rows(self.whole(split, step), every)
        self._part(split, step).unlink(missing_ok=True)
        return every

    def forget(self) -> None:
        """Another model may have written it."""
        for path in (*self.folder.glob("heldout-*.jsonl"), *self.folder.glob("parts/*.jsonl")):
            path.unlink()

    def whole(self, split: str, step: int) -> Path:
        """Where the completions of a bench stand when it is done."""
        return self.folder / f"heldout-{split}-{step:06d}.jsonl"

    def _part(self, split: str, step: int) -> Path:
        return self.folder / "parts" / f"{split}-{step:06d}.jsonl"


def _lines(path: Path) -> Iterator[Line]:
    """Those that are whole."""
    try:
        text = read_text(path, MAX_ROWS_BYTES)
    except OSError:
        return
    # Not by `splitlines`: a completion may hold a line separator of Unicode, unescaped.
    for line in filter(None, text.split("\n")):
        try:
            found = parse_json(line)
        except (ConfigError, OSError, ValueError):
            continue
        if isinstance(found, dict) and isinstance(found.get("judged"), dict):
            yield found
