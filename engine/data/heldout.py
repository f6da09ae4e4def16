"""All rows of a run: its sources as one corpus, and its benches.

Each row knows the source it is from and who judges it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.benches import BenchConfig
from engine.contract.sources.mixture import JudgedSource
from engine.contract.verifiers import verifier_names
from engine.data.rows import Bench, Question, load


class RunRows(NamedTuple):
    """What a run trains on and is judged by, before the split."""

    corpus: Bench
    benches: Mapping[str, Sequence[Question]]
    said: Sequence[str]
    """How each of them was read and what was left out."""


def load_rows(config: RLRunConfig) -> RunRows:
    """Raises RLLoopError for what cannot be read."""
    benches = [judged_rows(bench, f"heldout.{i}") for i, bench in enumerate(config.heldout)]
    mix = [judged_rows(part, f"data.mix.{i}") for i, part in enumerate(config.data.mix)]
    corpus = _joined(mix) if mix else load(config.data)
    said = [*corpus.said, *(told for bench in benches for told in bench.said)]
    return RunRows(corpus, {bench.name: bench.questions for bench in benches}, said)


def _joined(parts: Sequence[Bench]) -> Bench:
    return Bench(
        "+".join(part.name for part in parts),
        [row for part in parts for row in part.questions],
        [told for part in parts for told in part.said],
    )


def bench_rows(config: RLRunConfig, bench: BenchConfig) -> list[Question]:
    """All rows of a bench, in the order of their file, whatever part of them is scored."""
    return [*judged_rows(bench, f"heldout.{config.heldout.index(bench)}").questions]


def judged_rows(source: JudgedSource, where: str) -> Bench:
    """The rows of a named source, with ids that no other source has; `where`: its section of the
    config. Raises RLLoopError for what cannot be read.
    """
    known = {name.casefold(): name for name in verifier_names()}
    read = load(source)
    rows = [
        row.but(
            id=f"{source.name}/{row.id}",
            source=source.name,
            verifier=_verifier_of(row, source, known, where),
        )
        for row in read.questions
    ]
    return Bench(source.name, rows, [f"{source.name}: {told}" for told in read.said])


def _verifier_of(row: Question, source: JudgedSource, known: Mapping[str, str], where: str) -> str:
    if source.verifier_field is None:
        return source.verifier or ""
    named = row.columns.get(source.verifier_field)
    found = known.get(named.casefold()) if isinstance(named, str) else None
    if found is None:
        has = ", ".join(map(repr, row.columns)) or "none"
        missing = source.verifier_field not in row.columns
        what = f"no such key; its keys are {has}" if missing else f"{named!r}, which is no verifier"
        problem = f"row {row.id!r} has {what}"
        raise RLLoopError.of(
            f"{where}.verifier_field",
            source.verifier_field,
            problem,
            f"name the verifier for all rows with verifier; known: {', '.join(known.values())}",
        )
    return found
