"""Evaluation by rollout: greedy answers on validation records, matched against their boxes.

F1, precision and recall pool all objects; the interval of F1 resamples pictures (percentile
bootstrap, Efron 1979), for the objects of one picture are not independent. Knows no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.ranks import Ranks
from engine.stage2.rollout.base import Sampler
from engine.stage2.rollout.prompts import PromptReader, Unread
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import JudgedRollout, judge
from engine.stage2.target.match import Match, box_iou

_RESAMPLES = 1000
Counts = tuple[int, int, int]
_SEED = 0
"""Rollouts are greedy; the interval's resampling is the same each time."""


@dataclass(frozen=True)
class Evaluation:
    """What the records of one evaluation came to."""

    metrics: dict[str, float]
    """f1, precision, recall, matched_iou, invalid, truncated, objects, pictures."""
    ci95: tuple[float, float]
    """Of F1."""
    judged: tuple[JudgedRollout, ...]
    """In the order of the records."""
    texts: tuple[str, ...]
    """What was answered, for people."""
    pictures: tuple[str, ...] = ()
    """The first picture of each record: records of one picture are not independent."""

    @property
    def counts(self) -> list[Counts]:
        """(hits, predictions, objects) of each picture."""
        return [_counts(one.found) for one in self.judged]

    @property
    def solved(self) -> list[bool]:
        """Of each picture: every object found, and nothing else said."""
        return [hits == said == there for hits, said, there in self.counts]

    @property
    def f1(self) -> float:
        return self.metrics["f1"]

    @property
    def asks(self) -> list[str] | None:
        """The picture of each record; None where nobody said, so that all differ."""
        return list(self.pictures) or None


@dataclass(frozen=True)
class RolloutEval:
    """`sampler` answers greedily; `config.iou_gate` is what a prediction must reach to count."""

    sampler: Sampler
    reader: PromptReader
    pieces: TokenPieces
    config: RolloutMatchingConfig
    gate: DescGate
    ranks: Ranks

    def __call__(self, records: Sequence[Record]) -> Evaluation:
        """Every rank answers its part; all get the whole result."""
        size = -(-len(records) // self.ranks.size)
        mine = list(records[self.ranks.rank * size : (self.ranks.rank + 1) * size])
        responses = self.sampler(Unread(self.reader, mine), _SEED)
        answered = [
            (response.ids, record.objects) for response, record in zip(responses, mine, strict=True)
        ]
        judged = self.ranks.gather(judge(answered, self.pieces, self.config, self.gate))
        texts = self.ranks.gather([self._text(response.ids) for response in responses])
        return summarise(judged, texts, [str(record.images[0]) for record in records])

    def _text(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces.of_all(ids)).decode(errors="replace")


def summarise(
    judged: Sequence[JudgedRollout], texts: Sequence[str], pictures: Sequence[str] = ()
) -> Evaluation:
    """Pool the rollouts of an evaluation; `pictures`: of each record, its first one."""
    counts = [_counts(one.found) for one in judged]
    hits, said, there = (sum(one[column] for one in counts) for column in range(3))
    ious = [iou for one in judged for iou in _ious(one)]
    metrics = {
        "f1": _f1(hits, said, there),
        "precision": hits / max(said, 1),
        "recall": hits / max(there, 1),
        "matched_iou": sum(ious) / max(len(ious), 1),
        "invalid": float(sum(one.parsed.invalid for one in judged)),
        "truncated": float(sum(one.parsed.truncated for one in judged)),
        "objects": float(there),
        "pictures": float(len(judged)),
    }
    interval = f1_interval(by_picture(counts, pictures))
    return Evaluation(metrics, interval, tuple(judged), tuple(texts), tuple(pictures))


def by_picture(counts: Sequence[Counts], pictures: Sequence[str] | None) -> list[Counts]:
    """Sums of the records that show the same picture, for they are drawn together.

    >>> by_picture([(1, 1, 2), (0, 1, 0), (1, 1, 1)], ["a", "b", "a"])
    [(2, 2, 3), (0, 1, 0)]
    """
    if not pictures:
        return list(counts)
    sums: dict[str, Counts] = {}
    for picture, (hits, said, there) in zip(pictures, counts, strict=True):
        a, b, c = sums.get(picture, (0, 0, 0))
        sums[picture] = (a + hits, b + said, c + there)
    return list(sums.values())


def f1_interval(counts: Sequence[Counts]) -> tuple[float, float]:
    """95 % interval of the pooled F1 from (hits, predictions, objects) of each picture.

    Without a picture nothing is known: (0, 1).
    """
    if not counts:
        return 0.0, 1.0
    return _percentiles([_pooled_f1(counts, draw) for draw in _draws(len(counts))])


def lift_interval(before: Sequence[Counts], after: Sequence[Counts]) -> tuple[float, float]:
    """95 % interval of F1(after) - F1(before), both on the same resampled pictures."""
    if not before:
        return -1.0, 1.0
    return _percentiles(
        [_pooled_f1(after, draw) - _pooled_f1(before, draw) for draw in _draws(len(before))]
    )


def _draws(n: int) -> list[NDArray[np.int64]]:
    """Pictures drawn with replacement, the same each time."""
    rng = np.random.default_rng(_SEED)
    return [rng.integers(0, n, n) for _ in range(_RESAMPLES)]


def _pooled_f1(counts: Sequence[Counts], draw: NDArray[np.int64]) -> float:
    hits, said, there = np.asarray(counts)[draw].sum(axis=0).tolist()
    return _f1(hits, said, there)


def _percentiles(scores: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def _counts(found: Match) -> Counts:
    """(hits, predictions, objects) of one picture."""
    hits = len(found.pairs)
    return hits, hits + len(found.false_positives), hits + len(found.missing)


def _f1(hits: int, said: int, there: int) -> float:
    return 2 * hits / max(said + there, 1)


def _ious(one: JudgedRollout) -> list[float]:
    """IoU of each matched pair."""
    predictions = one.parsed.predictions
    return [float(box_iou([predictions[i].box], [one.gt[j].box])[0, 0]) for i, j in one.found.pairs]
