"""The run's rows, once they are held against its benches: what of a bench would also train.

Taken out of the training rows for the bench that decides (its own held-out rows, where they do),
and said of the others. Looked at once, as the split is carved, and frozen with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.benches import OWN
from engine.contract.sources.overlap import Overlap, overlaps
from engine.data.rows import Question
from engine.data.split import Split, carved, thawed, without_twins

OVERLAP = "OVERLAP"


def settled(
    questions: Sequence[Question],
    benches: Mapping[str, Sequence[Question]],
    path: Path,
    config: RLRunConfig,
) -> Split:
    """The run's frozen split, or a new one where there is none. `benches`: rows by name.

    Raises RLLoopError where no row is left to train on.
    """
    every = [*questions, *(row for rows in benches.values() for row in rows)]
    return thawed(every, path) or without_leaks(carved(questions, benches, config), config)


def without_leaks(split: Split, config: RLRunConfig) -> Split:
    """The split without training rows that its deciding bench asks, and with what was found.

    Rows that a generator made are not held against others of it: they differ in numbers alone.
    Raises RLLoopError where that leaves a source without a row.
    """
    deciding = [*split.select, *split.report]
    heldout = {config.decide: deciding, **split.others}
    generated = _generated(config)
    if OWN in heldout:
        heldout[OWN] = [row for row in heldout[OWN] if row.source not in generated]
    found = overlaps(split.train, {name: rows for name, rows in heldout.items() if rows})
    train = list(split.train)
    if config.decide in found:
        train = without_twins(found[config.decide].kept(split.train), deciding)
    _require_rows(split.train, train, config)
    removed = len(split.train) - len(train)
    facts = {
        name: _facts(one, removed if name == config.decide else 0) for name, one in found.items()
    }
    return replace(split, train=train, overlap=facts)


def _generated(config: RLRunConfig) -> frozenset[str]:
    sources = {part.name: part.source for part in config.data.mix} or {"": config.data.source}
    return frozenset(name for name, at in sources.items() if at.startswith("embedded:"))


def _require_rows(
    before: Sequence[Question], left: Sequence[Question], config: RLRunConfig
) -> None:
    gone = sorted({row.source for row in before} - {row.source for row in left})
    if gone:
        whose = f" of {gone[0]}" if gone[0] else ""
        problem = f"asks all that the run would train on: no row{whose} is left"
        raise RLLoopError.of("decide", config.decide, problem, "use another bench, or other rows")


def _facts(found: Overlap, removed: int) -> dict[str, Any]:
    """As JSON has them."""
    return {
        "leaks": len(found.leaks),
        "reported": len(found.near),
        "of": found.rows,
        "training": found.training,
        "removed": removed,
        "shown": [
            {
                "id": pair.heldout.id,
                "training_id": pair.training.id,
                "share": round(pair.share, 3),
                "prompt": _cut(pair.heldout.prompt),
                "training_prompt": _cut(pair.training.prompt),
            }
            for pair in found.pairs
        ],
    }


def what_overlaps(split: Split, config: RLRunConfig) -> Iterator[tuple[bool, str]]:
    """One sentence for each bench of which training rows have something, and whether any leaks."""
    labels = {bench.name: bench.label for bench in config.heldout}
    for name, found in split.overlap.items():
        if said := _sentence(name, labels.get(name, "the run's own held-out rows"), found):
            yield found["leaks"] > 0, said + _pairs(found)


def _sentence(name: str, label: str, found: Mapping[str, Any]) -> str:
    of = f"{found['of']} rows of {label}" if name != OWN else f"{found['of']} of {label}"
    leaks, near, removed = found["leaks"], found["reported"], found["removed"]
    said = []
    if removed:
        said.append(
            f"{removed} of {found['training']} training rows are taken out, for they hold "
            f"{leaks} of the {of}, which decide"
        )
    elif leaks and name != OWN:
        said.append(
            f"you are training on a benchmark's test rows: {leaks} of the {of} stand in the "
            f"{found['training']} training rows, and none is taken out, as this bench does not "
            "decide"
        )
    elif leaks:
        said.append(f"{leaks} of the {of} stand in the training rows")
    if near:
        said.append(f"{near} of the {of} share half of their words or more with training rows")
    return "; ".join(said)


def _pairs(found: Mapping[str, Any]) -> str:
    pairs = [
        f"{pair['id']!r} and training row {pair['training_id']!r} ({pair['share']:.0%}): "
        f"{pair['prompt']!r} / {pair['training_prompt']!r}"
        for pair in found["shown"]
    ]
    return f". {'; '.join(pairs)}"


def _cut(text: str, longest: int = 90) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
