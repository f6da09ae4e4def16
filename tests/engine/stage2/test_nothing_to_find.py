"""Pictures on which nothing is to be found, in training and in scores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2 import run as stage2
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.desc_gate import no_gate
from engine.stage2.target.judge import judge
from engine.stage2.target.payload import encode
from engine.stage2.target.rollout_target import build_target
from tests.engine.conftest import opened
from tests.engine.stage2.conftest import changed
from tests.engine.stage2.families import byte_level
from tools.run_outcome import add_attempt, events_of

CAT = GTObject("cat", (1, 2, 30, 40))


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize("said", ["{}", "", '{"object_1": {"desc": "cat", "bbox_2d": [1'])
def test_its_target_is_an_empty_answer_that_ends(said: str) -> None:
    """`{` + `}` + end, brace and end learnt; also of a rollout that was cut off."""
    pieces = byte_level()
    ids = tuple(pieces.encode(said))
    [rollout] = judge([(ids, ())], pieces, RolloutMatchingConfig(rollout_backend="hf"), no_gate())

    target = build_target((7, 8), rollout, 0.0, pieces)

    learnt = [id_ for id_, weight in zip(target.ids, target.ce_weights, strict=True) if weight]
    assert _text(pieces, target.ids[2:-1]) == "{}"
    assert target.ids[-1] == pieces.end_id
    assert _text(pieces, learnt[:-1]) == "}"
    assert learnt[-1] == pieces.end_id
    assert target.slots == ()


def test_what_was_said_of_it_stays_and_is_ended() -> None:
    """False objects are prefix, as everywhere: not learnt, and nothing is appended."""
    pieces = byte_level()
    ids = encode(pieces, [CAT])
    [rollout] = judge([(ids, ())], pieces, RolloutMatchingConfig(rollout_backend="hf"), no_gate())

    target = build_target((7, 8), rollout, 0.0, pieces)

    learnt = [id_ for id_, weight in zip(target.ids, target.ce_weights, strict=True) if weight]
    assert _text(pieces, target.ids[2:-1]) == _text(pieces, ids)
    assert (_text(pieces, learnt[:-1]), learnt[-1]) == ("}", pieces.end_id)
    assert target.slots == ()


def _text(pieces: TokenPieces, ids: Any) -> str:
    return b"".join(pieces.of_all(ids)).decode()


@pytest.mark.parametrize("kind", ["stage2_ab", "rollout_matching_sft"])
def test_both_kinds_train_on_them(
    kind: str, ab_recipe: dict[str, Any], matching_recipe: dict[str, Any], tmp_path: Path
) -> None:
    """A batch of nothing else has a loss of its own: the empty answer."""
    path = tmp_path / "train.jsonl"
    lines = []
    for number in range(6):
        Image.new("RGB", (64, 64), (40 * number, 9, 9)).save(tmp_path / f"{number}.png")
        boxes = [{"desc": CAT.desc, "bbox_2d": list(CAT.box)}] * (number == 0)
        lines.append({"images": [f"{number}.png"], "objects": boxes, "width": 64, "height": 64})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    raw = changed(
        ab_recipe if kind == "stage2_ab" else matching_recipe,
        data={"train_jsonl": str(path), "val_jsonl": str(path)},
        training__max_steps=3,
        training__eval_steps=3,
    )
    run = add_attempt(tmp_path, raw, kind=kind)

    with opened(run) as attempt:
        stage2.run(attempt)

    losses = [
        event["values"]["train/loss"]
        for event in events_of(run, "metric")
        if "train/loss" in event["values"]
    ]
    assert len(losses) == 3
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)
