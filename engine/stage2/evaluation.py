"""Evaluation by rollout: greedy answers on validation records, matched against their boxes.

F1, precision and recall of the matching that training does pool all objects; beside them stands
what the bench `detection` measures. Knows no gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.contract.sources.records import Record
from engine.contract.stage2.detection import BestBy, BoxScore
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.evaluate.detection import Answered, Detection, Said, ap_lift_ci95, measure
from engine.evaluate.pooled_f1 import Counts, by_picture, f1, f1_interval, lift_interval
from engine.run.pace import counted
from engine.run.ranks import Ranks
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response, Sampler
from engine.stage2.rollout.coord_probs import coord_probs
from engine.stage2.rollout.prompts import PromptReader, Unread
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import JudgedRollout, judge
from engine.stage2.target.match import Match, box_iou

_SEED = 0
"""Answers are greedy: no seed has a part in them."""


@dataclass(frozen=True)
class Evaluation:
    """What the records of one evaluation came to."""

    metrics: dict[str, float]
    """Of the rollouts: f1, precision, recall, matched_iou, invalid, truncated, objects,
    pictures."""
    f1_ci95: tuple[float, float]
    judged: tuple[JudgedRollout, ...]
    """In the order of the records."""
    texts: tuple[str, ...]
    """What was answered, for people."""
    pictures: tuple[str, ...] = ()
    """The first picture of each record: records of one picture are not independent."""
    said: tuple[Sequence[Said], ...] = ()
    """The boxes of each answer."""
    detection: Detection | None = None
    """None where nobody said on which pictures."""
    by: BestBy = "rollout_f1"
    """What counts."""

    @property
    def score(self) -> float:
        """What picks the checkpoint, 0 to 1."""
        if self.by == "rollout_f1" or self.detection is None:
            return self.f1
        return self.detection.ap or 0.0

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % interval of the score."""
        if self.by == "rollout_f1" or self.detection is None:
            return self.f1_ci95
        return self.detection.ap_ci95

    def lift_ci95(self, before: Evaluation) -> tuple[float, float]:
        """95 % interval of the score's rise since an evaluation of the same records."""
        if self.by == "detection_map" and self.detection and before.detection:
            return ap_lift_ci95(before.detection, self.detection)
        asks = self.asks
        return lift_interval(by_picture(before.counts, asks), by_picture(self.counts, asks))

    @property
    def series(self) -> dict[str, float]:
        """Everything that was measured, by the end of its series' name."""
        found = {f"rollout_{name}": value for name, value in self.metrics.items()}
        return found if self.detection is None else found | _series(self.detection)

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
    score: BoxScore = "one"
    by: BestBy = "rollout_f1"

    def __call__(self, records: Sequence[Record]) -> Evaluation:
        """Every rank answers its part; all get the whole result."""
        size = -(-len(records) // self.ranks.size)
        mine = list(records[self.ranks.rank * size : (self.ranks.rank + 1) * size])
        prompts = Unread(self.reader, mine)
        with counted("evaluate", len(mine)):
            responses = self.sampler(prompts, _SEED)
            answered = [
                (response.ids, record.objects)
                for response, record in zip(responses, mine, strict=True)
            ]
            own = judge(answered, self.pieces, self.config, self.gate)
            sure = self._scores(prompts, responses, own)
        scores = self.ranks.gather(sure)
        judged = self.ranks.gather(own)
        texts = self.ranks.gather([self._text(response.ids) for response in responses])
        return summarise(judged, texts, records, scores, by=self.by)

    def _scores(
        self, prompts: Unread, responses: Sequence[Response], judged: Sequence[JudgedRollout]
    ) -> list[Sequence[float]]:
        """Of each answer the scores of its predictions."""
        if self.score == "one":
            return [[1.0] * len(one.parsed.predictions) for one in judged]
        return [
            coord_probs(self.reader, prompts[place], response.ids, one.parsed.predictions)
            for place, (response, one) in enumerate(zip(responses, judged, strict=True))
        ]

    def _text(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces.of_all(ids)).decode(errors="replace")


def summarise(
    judged: Sequence[JudgedRollout],
    texts: Sequence[str],
    records: Sequence[Record] = (),
    scores: Sequence[Sequence[float]] = (),
    *,
    by: BestBy = "rollout_f1",
) -> Evaluation:
    """Pool the rollouts of an evaluation. `records`: those that were answered, in order, without
    which there is no detection; `scores`: of each one's predictions.
    """
    counts = [_counts(one.found) for one in judged]
    hits, said, there = (sum(one[column] for one in counts) for column in range(3))
    ious = [iou for one in judged for iou in _ious(one)]
    metrics = {
        "f1": f1(hits, said, there),
        "precision": hits / max(said, 1),
        "recall": hits / max(there, 1),
        "matched_iou": sum(ious) / max(len(ious), 1),
        "invalid": float(sum(one.parsed.invalid for one in judged)),
        "truncated": float(sum(one.parsed.truncated for one in judged)),
        "objects": float(there),
        "pictures": float(len(judged)),
    }
    pictures = tuple(str(record.images[0]) for record in records)
    interval = f1_interval(by_picture(counts, pictures))
    boxes = tuple(_said(judged, scores))
    detection = measure([*answered(boxes, records)]) if records else None
    return Evaluation(
        metrics, interval, tuple(judged), tuple(texts), pictures, boxes, detection, by
    )


def answered(said: Sequence[Sequence[Said]], records: Sequence[Record]) -> Iterator[Answered]:
    """The boxes of each answer on its picture."""
    for boxes, record in zip(said, records, strict=True):
        yield Answered(record.size, record.objects, boxes, record.crowd, str(record.images[0]))


def _said(
    judged: Sequence[JudgedRollout], scores: Sequence[Sequence[float]]
) -> Iterator[Sequence[Said]]:
    sure = scores or [[1.0] * len(one.parsed.predictions) for one in judged]
    for one, mine in zip(judged, sure, strict=True):
        pairs = zip(one.parsed.predictions, mine, strict=True)
        yield [Said(prediction.desc, prediction.box, score) for prediction, score in pairs]


def _series(found: Detection) -> dict[str, float]:
    """A share of nothing is no number."""
    shares = {
        "map": found.ap,
        "map50": found.ap50,
        "map75": found.ap75,
        "ar100": found.ar100,
        "f1": found.f1,
        "precision": found.precision,
        "recall": found.recall,
        "mean_iou": found.mean_iou,
        "unknown_desc": float(found.unknown),
    }
    return {f"detection_{name}": value for name, value in shares.items() if value is not None}


def _counts(found: Match) -> Counts:
    """(hits, predictions, objects) of one picture."""
    hits = len(found.pairs)
    return hits, hits + len(found.false_positives), hits + len(found.missing)


def _ious(one: JudgedRollout) -> list[float]:
    """IoU of each matched pair."""
    predictions = one.parsed.predictions
    return [float(box_iou([predictions[i].box], [one.gt[j].box])[0, 0]) for i, j in one.found.pairs]
