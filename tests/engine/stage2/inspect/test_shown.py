"""What people see of a rollout: boxes with their fate, roles and weights of tokens, pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from engine.stage2.inspect import shown
from engine.stage2.inspect.thumbnails import SIDE, Thumbnails
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.payload import render
from tests.engine.stage2.families import byte_level
from tests.engine.stage2.mutations import inactive_gate
from tests.engine.stage2.target.test_segments import CAR, CAT, DOG, WEIGHTS, judged


@pytest.fixture(scope="module")
def pieces() -> TokenPieces:
    """A tokenizer alone: no model is asked."""
    return byte_level()


@pytest.mark.requirement("UI-08")
def test_entries_and_objects_say_their_fate(pieces: TokenPieces) -> None:
    """The cat is found, the dog missed, the car was seen where nothing is."""
    one = judged(render([CAT, CAR]).text, [CAT, DOG], pieces, inactive_gate())

    assert [(o["desc"], o["matched"]) for o in shown.objects(one)] == [
        ("black cat", True),
        ("dog }", False),
    ]
    first, second = shown.entries(one)
    assert (first["match"]["object"], first["match"]["iou"]) == (0, 1.0)
    assert (second["bbox_2d"], second["match"]) == ([500, 500, 900, 900], None)


@pytest.mark.requirement("UI-08")
def test_spans_cover_every_token_with_its_role_and_weight(pieces: TokenPieces) -> None:
    """The answer as it was written; b3's weights are the target's; b2 knows the bins to learn."""
    text = render([CAT, CAR]).text
    one = judged(text, [CAT, DOG], pieces, inactive_gate())

    spans = shown.taught_spans(pieces.encode(text), one, WEIGHTS, pieces)

    assert "".join(span["text"] for span in spans["answer"]) == text
    assert {span["source"] for span in spans["answer"]} >= {"prefix", "matched", "FP", "cut"}
    weights = {(s["source"], s["part"]): s["weight"] for s in spans["b3"]}
    assert weights["matched", "desc"] == WEIGHTS.desc_matched
    assert weights["FN", "desc"] == WEIGHTS.desc
    assert weights["FN", "coord"] == 0.0
    targets = [span["target"] for span in spans["b2"] if span["target"] is not None]
    assert targets == [0, 0, 100, 100]
    added = "".join(span["text"] for span in spans["b2"] if span["source"] == "FN")
    assert "dog }" in added


def test_a_rollout_without_a_match_teaches_no_geometry(pieces: TokenPieces) -> None:
    """b2 is null, and an invalid answer is cut whole."""
    one = judged("no", [CAT], pieces, inactive_gate())

    spans = shown.taught_spans(pieces.encode("no"), one, WEIGHTS, pieces)

    assert spans["b2"] is None
    assert [(span["text"], span["source"]) for span in spans["answer"]] == [("no", "cut")]


@pytest.mark.requirement("UI-08")
def test_a_picture_is_kept_once_and_small(tmp_path: Path) -> None:
    """The sizes are the original's; a photograph does not fill the run directory."""
    Image.new("RGBA", (2000, 1000), (200, 0, 0, 255)).save(tmp_path / "big.png")
    kept = Thumbnails(tmp_path / "pictures")

    first, again = kept.of(tmp_path / "big.png"), kept.of(tmp_path / "big.png")

    assert first == again
    assert first is not None
    assert (first["width"], first["height"]) == (2000, 1000)
    (file,) = (tmp_path / "pictures").iterdir()
    assert file.name == first["name"]
    with Image.open(file) as image:
        assert image.size == (SIDE, SIDE // 2)


def test_a_folder_that_fills_up_is_kept_for_what_is_shown_first(tmp_path: Path) -> None:
    """A short run shows every picture; a long one those of the first few of each step."""
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
    kept = Thumbnails(tmp_path / "kept", most=3, lavish=1)

    assert kept.of(paths[0], sparingly=True) is not None
    assert kept.of(paths[1], sparingly=True) is None
    assert kept.of(paths[1]) is not None
    assert kept.of(paths[1], sparingly=True) is not None
    assert kept.of(paths[2]) is not None


def test_a_full_folder_and_a_broken_picture_cost_only_the_background(tmp_path: Path) -> None:
    """Also after a resume: what lies there counts, and what is kept stays known."""
    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    (tmp_path / "torn.png").write_bytes(b"no picture")
    assert Thumbnails(tmp_path / "kept", most=1).of(tmp_path / "a.png") is not None

    resumed = Thumbnails(tmp_path / "kept", most=1)

    assert resumed.of(tmp_path / "b.png") is None
    assert resumed.of(tmp_path / "a.png") is not None
    assert resumed.of(tmp_path / "torn.png") is None
