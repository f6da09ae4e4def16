"""What is known of a record before the first step is what training will meet."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from engine.contract.sources.ground_truth import GroundTruthError, GTObject
from engine.contract.sources.records import Record
from engine.run.stop import rl_hooks
from engine.stage2.channel_a import build_segment
from engine.stage2.inspect.thumbnails import Thumbnails
from engine.stage2.preflight import (
    PICTURES_MOVE,
    PICTURES_TRANSPARENT,
    PICTURES_TURNED,
    alerts,
    look,
)
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


RED = (200, 0, 0)


def transparent(mode: str, path: Path) -> None:
    """A red square in the middle, nothing around it; under the nothing lies black."""
    whole = Image.new("RGBA", (48, 32), (0, 0, 0, 0))
    whole.paste((*RED, 255), (16, 8, 32, 24))
    if mode == "P":
        whole.quantize(4).save(path.with_suffix(".png"))
    elif mode == "RGB with a transparent colour":
        whole.convert("RGB").save(path.with_suffix(".png"), transparency=(0, 0, 0))
    elif mode == "L with a transparent grey":
        whole.convert("L").save(path.with_suffix(".png"), transparency=0)
    else:
        whole.convert(mode.split(maxsplit=1)[0]).save(
            path, "WEBP" if "WebP" in mode else "PNG", lossless=1
        )
    (path if path.exists() else path.with_suffix(".png")).rename(path)


@pytest.mark.parametrize(
    "mode",
    [
        *("RGBA", "LA", "P", "RGBA in WebP"),
        *("RGB with a transparent colour", "L with a transparent grey"),
    ],
)
def test_what_is_transparent_is_white_in_training_and_on_the_samples_page(
    mode: str, reader: PromptReader, tmp_path: Path
) -> None:
    """Without its transparency it would be black, as a black drawing on it: nothing to see."""
    path = tmp_path / "picture"
    transparent(mode, path)

    shown = picture(path)
    thumbnail = Thumbnails(tmp_path / "small").of(path)
    assert thumbnail is not None
    copied = Image.open(tmp_path / "small" / thumbnail["name"])
    findings = list(look([record_of(path, (48, 32))], reader, None))

    assert shown.mode == "RGB"
    assert shown.getpixel((2, 2)) == (255, 255, 255)
    assert shown.getpixel((24, 16)) in (RED, (60, 60, 60))
    for place in ((2, 2), (24, 16)):
        assert np.asarray(copied)[place[::-1]] == pytest.approx(
            np.asarray(shown)[place[::-1]], abs=8
        )
    assert [finding.code for finding in findings] == [PICTURES_TRANSPARENT]
    assert "laid on white" in alerts("data.train_jsonl", findings, 1)[0][1]


def test_a_half_transparent_edge_is_mixed_with_white(tmp_path: Path) -> None:
    path = tmp_path / "edge.png"
    Image.new("RGBA", (4, 4), (0, 0, 0, 128)).save(path)

    assert picture(path).getpixel((1, 1)) == (127, 127, 127)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "CMYK", "1", "L", "P", "YCbCr", "RGB"])
def test_an_opaque_picture_of_any_kind_is_read_as_it_is(
    mode: str, reader: PromptReader, tmp_path: Path
) -> None:
    """Nothing is said of a transparency that is opaque all over."""
    path = tmp_path / "picture"
    image = Image.new("RGB", (48, 32), "white").convert(mode)
    image.save(path, "TIFF" if mode in ("CMYK", "YCbCr") else "PNG")

    assert picture(path).getpixel((5, 5)) == (255, 255, 255)
    assert list(look([record_of(path, (48, 32))], reader, None)) == []


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_a_moving_picture_the_first_frame_is_read_and_that_is_said(
    kind: str, reader: PromptReader, tmp_path: Path
) -> None:
    path = tmp_path / "picture"
    frames = [Image.new("RGB", (48, 32), colour) for colour in ("white", "black")]
    frames[0].save(path, kind, save_all=True, append_images=frames[1:], lossless=True)

    [finding] = look([record_of(path, (48, 32))], reader, None)

    assert picture(path).getpixel((5, 5)) == (255, 255, 255)
    assert (finding.code, finding.stops) == (PICTURES_MOVE, False)


def test_a_picture_of_too_many_pixels_is_refused_with_what_helps(
    reader: PromptReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file can hold a picture that fills the memory."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    path = tmp_path / "huge.png"
    Image.new("1", (48, 32)).save(path)

    [finding] = look([record_of(path, (48, 32))], reader, None)

    assert finding.stops
    assert "huge.png cannot be read as a picture" in finding.what
    assert finding.remedy.startswith("make it smaller")


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
