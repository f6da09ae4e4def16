"""What is known of a record before the first step is what training will meet."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import ExifTags, Image

from engine.contract.sources.ground_truth import GroundTruthError, GTObject
from engine.contract.sources.records import Record
from engine.run.stop import rl_hooks
from engine.stage2.channel_a import build_segment
from engine.stage2.preflight import PICTURES_TURNED, alerts, look
from engine.stage2.rollout.pictures import UNREADABLE, look_at, picture
from engine.stage2.rollout.prompts import PromptReader

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000")


def written(kind: str, size: tuple[int, int] = (48, 32)) -> bytes:
    """A picture with something to see in it."""
    image = Image.effect_noise(size, 60).convert("RGB")
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def record_of(path: Path, size: tuple[int, int]) -> Record:
    return Record("x.jsonl line 1", (path,), (GTObject("a box", (1, 2, 3, 4)),), size)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's own, before its error
@pytest.mark.parametrize("kind", FORMATS)
def test_a_broken_picture_has_one_of_the_known_errors_and_the_look_agrees(
    kind: str, tmp_path: Path
) -> None:
    """Whatever bytes are cut off or turned over: nothing else is raised, here or in training."""
    rng = random.Random(kind)
    whole = written(kind)
    path = tmp_path / "picture"
    for _ in range(150):
        spoilt = bytearray(whole[: rng.randrange(1, len(whole) + 1)])
        for _ in range(rng.choice((0, 1, 8))):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        path.write_bytes(spoilt)
        try:
            seen = look_at(path)
        except UNREADABLE:
            continue
        assert picture(path).size == seen.size


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_a_picture_too_deep_to_be_seen_is_refused(
    mode: str, reader: PromptReader, tmp_path: Path
) -> None:
    """Pillow cuts its values off at 255 and says nothing: an X-ray would be a white page."""
    path = tmp_path / "deep.tiff"
    Image.new(mode, (48, 32), 40_000).save(path)

    [finding] = look([record_of(path, (48, 32))], reader, None)

    assert finding.stops
    assert f"more than 8 bits a value (Pillow's mode {mode})" in finding.what
    assert "8 bits" in finding.remedy


def test_a_length_is_known_without_making_a_patch(
    records: list[Record], reader: PromptReader
) -> None:
    """A limit that a record just keeps is kept; one token less names it."""
    for record in records[:4]:
        segment = build_segment(reader(record).ids, record.objects, 1.0, reader.pieces)

        assert list(look([record], reader, len(segment))) == []
        [finding] = look([record], reader, len(segment) - 1)
        assert f"make a sequence of {len(segment)} tokens" in finding.what
        assert finding.stops


def test_a_pack_has_room_for_the_longest_rollout_too(
    records: list[Record], reader: PromptReader
) -> None:
    """A rollout that runs on to its limit must not end the night."""
    record = records[0]
    length = len(build_segment(reader(record).ids, record.objects, 1.0, reader.pieces))

    [finding] = look([record], reader, length + 99, rollout=100)

    assert finding.stops
    assert f"make a segment of up to {length + 100} tokens" in finding.what
    assert "lower max_new_tokens" in finding.remedy
    assert list(look([record], reader, length + 100, rollout=100)) == []
    assert list(look([record], reader, None, rollout=100)) == []


def test_a_strip_is_named_before_and_in_training(reader: PromptReader, tmp_path: Path) -> None:
    """The model's processor refuses what is 200 times as wide as high, and names no file."""
    path = tmp_path / "strip.png"
    path.write_bytes(written("PNG", (402, 2)))
    record = record_of(path, (402, 2))

    [finding] = look([record], reader, None)
    with pytest.raises(GroundTruthError, match=r"does not suit the model: .*aspect ratio"):
        reader(record)

    assert finding.stops
    assert finding.what.startswith("x.jsonl line 1: images[0] ")
    assert "strip.png does not suit the model" in finding.what


@pytest.mark.parametrize(
    ("said", "heard"),
    [((48, 32), 0), ((480, 320), 0), ((44, 32), 0), ((32, 48), 1), ((4800, 32), 1)],
)
def test_only_another_shape_is_worth_a_word(
    said: tuple[int, int], heard: int, reader: PromptReader, tmp_path: Path
) -> None:
    """Boxes are shares of the picture: its size does not matter, and sides are rounded."""
    path = tmp_path / "picture.png"
    path.write_bytes(written("PNG"))

    found = list(look([record_of(path, said)], reader, None))

    assert [finding.stops for finding in found] == [False] * heard


@pytest.mark.parametrize("orientation", [None, 0, 1, 2, 3, 6, 9])
def test_a_picture_that_asks_to_be_turned_is_said(
    orientation: int | None, reader: PromptReader, tmp_path: Path
) -> None:
    """Half a turn leaves its shape, and every box is in another place; 1 is upright."""
    path = tmp_path / "picture.jpg"
    tags = Image.Exif()
    if orientation is not None:
        tags[ExifTags.Base.Orientation] = orientation
    Image.new("RGB", (48, 32)).save(path, exif=tags)

    found = list(look([record_of(path, (48, 32))], reader, None))

    told = alerts("data.train_jsonl", found, 1)
    assert [code for code, _ in told] == [PICTURES_TURNED] * (orientation in range(2, 9))
    assert not any(finding.stops for finding in found)
    assert all("picture.jpg; where boxes were drawn on it upright" in text for _, text in told)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's own
def test_a_broken_orientation_does_no_harm(reader: PromptReader, tmp_path: Path) -> None:
    """Nothing reads it."""
    path = tmp_path / "picture.jpg"
    Image.new("RGB", (48, 32)).save(path, exif=b"Exif\0\0II*\0\xff\0\0\0")

    assert list(look([record_of(path, (48, 32))], reader, None)) == []


def test_a_special_token_in_a_description_is_found_with_its_record(
    reader: PromptReader, tmp_path: Path
) -> None:
    """The answer is taught; what only scores is never written by the tokenizer."""
    path = tmp_path / "picture.png"
    path.write_bytes(written("PNG"))
    record = replace(record_of(path, (48, 32)), objects=(GTObject("<|im_start|>", (1, 2, 3, 4)),))

    [finding] = look([record], reader, None)

    assert finding.stops
    assert finding.what.startswith("x.jsonl line 1: objects hold <|im_start|> in a description")
    assert finding.remedy == "remove it from the ground truth"
    assert list(look([record], reader, None, taught=False)) == []


def test_a_look_at_a_long_corpus_can_be_stopped(
    records: list[Record], reader: PromptReader
) -> None:
    """It may take minutes; the run then stops where it always does, with its checkpoint."""
    with rl_hooks(should_abort=lambda: True):
        assert list(look(records, reader, 1)) == []
    assert len(list(look(records, reader, 1))) == len(records)
