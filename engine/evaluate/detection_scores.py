"""A detection measure as scores of a bench, and what makes two of them comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.contract.scores import BenchScore, Part
from engine.contract.sources.records import Record
from engine.evaluate.detection import ClassScore, Detection

_MOST_CLASSES = 200
"""Those with most objects are told one by one."""


def detection_scores(found: Detection, facts: Mapping[str, Any]) -> Iterator[BenchScore]:
    """mAP, AP at IoU 0.50 and 0.75, F1 and mean IoU at IoU 0.5; none without an object.

    `facts`: the fields that they share. mAP and F1 are parted by class and by size of the object.
    """
    if found.ap is None:
        return
    told: list[tuple[str, float | None, tuple[float, float], list[Part]]] = [
        ("mAP", found.ap, found.ap_ci95, [*_parts(found, "ap")]),
        ("mAP50", found.ap50, found.ap_ci95_at(1), []),
        ("mAP75", found.ap75, found.ap_ci95_at(2), []),
        ("F1@0.5", found.f1, found.f1_ci95, [*_parts(found, "f1")]),
        ("mean IoU", found.mean_iou, found.mean_iou_ci95, []),
    ]
    for metric, score, (low, high), parts in told:
        yield BenchScore(
            **facts,
            filter="boxes",
            metric=metric,
            n=found.pictures,
            score=score or 0.0,
            low=low,
            high=high,
            parts=parts,
        )


def _parts(found: Detection, column: str) -> Iterator[Part]:
    for by, some in (("class", found.by_class[:_MOST_CLASSES]), ("size", found.by_size)):
        yield from (_part(by, one, getattr(one, column)) for one in some)
    if found.unknown:
        yield Part(by="description", name="that no object has", n=found.unknown)


def _part(by: str, one: ClassScore, score: float | None) -> Part:
    return Part(by=by, name=one.name, n=one.objects, score=score)


def records_hash(records: Sequence[Record], asked: Mapping[str, Any]) -> str:
    """Equal where two benches ask the same pictures alike, wherever they lie. `asked`: how."""
    told = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for one in records:
        names = [image.name for image in one.images]
        boxes = [[(o.desc, o.box) for o in some] for some in (one.objects, one.crowd)]
        told.update(json.dumps([names, one.size, boxes, one.messages]).encode())
    return told.hexdigest()[:16]
