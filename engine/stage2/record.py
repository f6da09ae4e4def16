"""A run's rollouts as rows of its files: text, what became of it, boxes over the picture.

Knows no trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.contract.jsonl import write_rows
from engine.contract.run_dir import RunDir
from engine.contract.sources.records import Record
from engine.stage2.evaluation import Evaluation
from engine.stage2.inspect import shown
from engine.stage2.inspect.thumbnails import Thumbnails
from engine.stage2.rollout_step import RolledOut, RolloutStep
from engine.stage2.target.judge import JudgedRollout

_SHOWN = 600
"""Characters of a text in a sample event."""
_SAMPLES = 4
"""Rollouts of a step that people get to see at once, and of which files keep picture and roles;
of the others they keep the picture as long as a run has few."""
_GATE_PICTURES = 200
"""Records of a gate whose pictures are kept, however many a run has."""
PICTURES = "pictures"
"""Folder beside the rollouts."""


class RolloutFiles:
    """The rows of one run directory, with their pictures."""

    def __init__(self, run: RunDir) -> None:
        self._folder = run.rollouts
        self._thumbnails = Thumbnails(run.rollouts / PICTURES)

    def gate_rows(self, found: Evaluation, records: Sequence[Record]) -> list[dict[str, Any]]:
        """A held-out gate's answers to `records`."""
        return [
            _row(one, text) | self._drawn(one, record, sparingly=index >= _GATE_PICTURES)
            for index, (one, text, record) in enumerate(
                zip(found.judged, found.texts, records, strict=True)
            )
        ]

    def write_step(
        self, step: int, rolled: RolledOut, records: Sequence[Record], rollouts: RolloutStep
    ) -> list[Mapping[str, Any]]:
        """A Channel-B step's rollouts to their file; the few that people get to see at once."""
        pieces = rollouts.pieces
        texts = [
            b"".join(pieces.of_all(response.ids)).decode(errors="replace")
            for response in rolled.responses
        ]
        rows = [
            _row(one, text)
            | self._drawn(one, record, sparingly=index >= _SAMPLES)
            | {"ids": list(response.ids)}
            for index, (one, text, record, response) in enumerate(
                zip(rolled.judged, texts, records, rolled.responses, strict=True)
            )
        ]
        monitored = zip(rows, rolled.judged, rolled.responses, strict=True)
        for row, one, response in list(monitored)[:_SAMPLES]:
            row["spans"] = rollouts.targets.spans(response.ids, one, pieces)
        write_rows(self._folder / f"train-{step:06d}.jsonl", rows)
        seen = zip(rolled.judged, texts, records, strict=True)
        return [_sample(*one) for one in list(seen)[:_SAMPLES]]

    def _drawn(self, one: JudgedRollout, record: Record, *, sparingly: bool) -> dict[str, Any]:
        """Which record it answers, its first picture, and the boxes over its first picture."""
        return {
            "record": record.where,
            "image": str(record.images[0]),
            "picture": self._thumbnails.of(record.images[0], sparingly=sparingly),
            "objects": shown.objects(one),
            "entries": shown.entries(one),
        }


def _row(one: JudgedRollout, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "invalid": one.parsed.invalid,
        "truncated": one.parsed.truncated,
        "matched": len(one.found.pairs),
        "false": len(one.found.false_positives),
        "missed": len(one.found.missing),
        "dropped": {str(reason): count for reason, count in one.parsed.drops.items()},
    }


def _sample(one: JudgedRollout, text: str, record: Record) -> dict[str, Any]:
    """As the run page shows a completion: its F1 stands for the reward."""
    row = _row(one, text)
    dropped = ", ".join(f"{count} {reason}" for reason, count in row["dropped"].items())
    hits, alone = row["matched"], row["false"] + row["missed"]
    return {
        "prompt": record.where,
        "completion": text[:_SHOWN],
        "reward": 2 * hits / max(2 * hits + alone, 1),
        "reason": f"{hits} matched, {row['false']} false, {row['missed']} missed"
        + (f"; dropped: {dropped}" if dropped else ""),
        "advantage": None,
    }
