"""A record file: read as it is meant, or refused by line, field and value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.sources.ground_truth import GroundTruthError, GTObject
from engine.contract.sources.picture_size import picture_size
from engine.contract.sources.records import (
    MOST_BAD,
    Record,
    each_record,
    read_records,
    require_good,
)
from engine.contract.sources.survey import survey


def swift(boxes: list[Any], **more: Any) -> dict[str, Any]:
    """Objects as ms-swift writes them, of a picture of 64 × 48 pixels."""
    return {"objects": {"ref": ["cat"], "bbox": boxes} | more}


def payload(answer: Any) -> dict[str, Any]:
    """A record that says its objects as the answer to write."""
    return {"objects": None, "assistant_payload": answer}


def turns(*contents: Any) -> list[dict[str, Any]]:
    roles = ("user", "assistant", "user") if len(contents) > 1 else ("user",)
    return [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=True)
    ]


def read_one(folder: Path, **fields: Any) -> Record:
    """The second of two records, with some fields set and those that are `...` left out."""
    Image.new("RGB", (64, 48)).save(folder / "a.png")
    good = {
        "images": ["a.png"],
        "objects": [{"desc": "cat", "bbox_2d": [1, 2, 30, 40]}],
        "width": 64,
        "height": 48,
    }
    row = {name: value for name, value in (good | fields).items() if value is not ...}
    path = folder / "x.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (good, row)))
    return read_records(path)[1]


@pytest.mark.parametrize("fields", [{"width": 64.0}, {"height": 48.0, "width": 64.0}])
def test_a_size_that_a_table_wrote_with_a_point_is_read(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    """A column of whole numbers with a gap in it comes out of pandas as 64.0."""
    assert read_one(tmp_path, **fields).size == (64, 48)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 64.5}, "width 64.5 is no size"),
        ({"width": "64"}, "width '64' is no size"),
        ({"width": True}, "width True is no size"),
        ({"width": None}, "width None is no size"),
        ({"images": [{"bytes": "…", "path": None}]}, "images hold the picture itself"),
        (swift([[0, 0, 65, 48]]), r"objects.bbox\[0\]\[2\] 65 is outside 0..64"),
        (swift([[0.1, 0, 2, 1]], bbox_type="norm1"), r"objects.bbox\[0\]\[2\] 2 is outside 0..1"),
        (swift([[1, 2]]), r"objects.bbox\[0\] \[1, 2\] is not a list of 4"),
        (swift([[30, 2, 1, 4]]), r"objects\[0\].bbox_2d .* is out of order"),
        (swift([[1, 2, 3, 4]], ref=["a", "b"]), "objects have 2 names .* for 1 boxes"),
        (swift([[1, 2, 3, 4]], bbox_type="px"), "objects.bbox_type 'px' is no unit"),
        (swift([[1, 2, 3, 4]], image_id=[1]), "objects.image_id names a later picture"),
        ({"messages": turns("<image> <image>")}, "messages ask for 2 pictures, images has 1"),
        ({"messages": turns("Find <ref-object>")}, r"messages\[0\].content holds <ref-object>"),
        ({"height": 1e300}, "height is no size of a picture"),
        ({"objects": None}, "objects is not a list"),
        (payload([1]), r"assistant_payload '\[1\]' is no JSON object"),
        (payload("{object_1"), "assistant_payload is not JSON"),
        (payload({"object_1": {"desc": "cat"}}), r"objects\[0\] must hold bbox_2d"),
        ({"images": ["b.png"]}, r"images\[0\] .*b.png does not exist"),
        ({"images": ["."]}, r"images\[0\] .* is a folder"),
        ({"images": []}, "images .* is no list of paths"),
        ({"images": [None]}, "images .* is no list of paths"),
    ],
)
def test_a_bad_record_is_refused_by_line_and_field(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GroundTruthError, match=f"^x.jsonl line 2: {message}"):
        read_one(tmp_path, **fields)


PICTURE = {"type": "image"}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(
    ("images", "contents", "read"),
    [
        (1, ["<image>Find it."], [[PICTURE, text("Find it.")]]),
        (1, ["Find it <image> here."], [[text("Find it "), PICTURE, text(" here.")]]),
        (1, ["Find it."], [[PICTURE, text("Find it.")]]),
        (2, ["In <image> too."], [[PICTURE, text("In "), PICTURE, text(" too.")]]),
        (2, ["<image><image>"], [[PICTURE, PICTURE]]),
        (1, ["<image>a", "b", "c"], [[PICTURE, text("a")], "c"]),
        (1, [[text("a <image>")]], [[text("a "), PICTURE]]),
        (1, [[PICTURE, text("a")]], [[PICTURE, text("a")]]),
        (1, [[{"type": "image", "image": "a.png"}]], [[{"type": "image", "image": "a.png"}]]),
    ],
)
def test_pictures_stand_where_ms_swift_puts_them(
    images: int, contents: list[Any], read: list[Any], tmp_path: Path
) -> None:
    """`<image>` in a text is a picture; one that nobody names comes first."""
    record = read_one(tmp_path, images=["a.png"] * images, messages=turns(*contents))

    assert [turn["content"] for turn in record.messages] == read


@pytest.mark.parametrize(
    ("objects", "boxes"),
    [
        (swift([[0, 24, 64, 48]]), [("cat", (0, 500, 999, 999))]),
        (swift([[0, 0.5, 1, 1]], bbox_type="norm1"), [("cat", (0, 500, 999, 999))]),
        (
            swift([[0, 0, 32, 24], [32, 24, 64, 48]], bbox_type="real"),
            [("cat", (0, 0, 500, 500)), ("cat", (500, 500, 999, 999))],
        ),
        (
            swift([[0, 0, 32, 24], [32, 24, 64, 48]], ref=["cat", "dog"], image_id=[0, 0]),
            [("cat", (0, 0, 500, 500)), ("dog", (500, 500, 999, 999))],
        ),
    ],
)
def test_objects_of_ms_swift_become_thousandths(
    objects: dict[str, Any], boxes: Any, tmp_path: Path
) -> None:
    """Its boxes count pixels of the picture, or shares where it says so."""
    record = read_one(tmp_path, **objects, width=..., height=...)

    assert [(one.desc, one.box) for one in record.objects] == boxes


ANSWER = {
    "object_1": {"desc": "cat", "bbox_2d": [f"<|coord_{k}|>" for k in (1, 2, 30, 40)]},
    "object_2": {"desc": "dog", "bbox_2d": [5, 6, 7, 8]},
    "object_3": None,
}


@pytest.mark.parametrize("answer", [ANSWER, json.dumps(ANSWER)])
def test_objects_are_read_from_the_answer_where_that_is_all_there_is(
    answer: Any, tmp_path: Path
) -> None:
    """In its order; a table fills up with nulls."""
    found = read_one(tmp_path, **payload(answer)).objects

    assert found == (GTObject("cat", (1, 2, 30, 40)), GTObject("dog", (5, 6, 7, 8)))
    assert read_one(tmp_path, assistant_payload=answer).objects == (GTObject("cat", found[0].box),)


@pytest.mark.parametrize("images", ["a.png", ["a.png"], [{"path": "a.png", "bytes": None}]])
@pytest.mark.parametrize("key", ["images", "image"])
def test_a_picture_is_named_in_any_of_ms_swifts_ways(key: str, images: Any, tmp_path: Path) -> None:
    assert read_one(tmp_path, **({"images": ...} | {key: images})).images == (tmp_path / "a.png",)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *(("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True}), ("GIF", {}), ("BMP", {})),
        *(("JPEG", {"exif": b"Exif\0\0" + bytes(3000)}), ("JPEG", {"comment": b"x" * 70})),
        *(("WEBP", {"lossless": True}), ("WEBP", {}), ("WEBP", {"exif": b"Exif\0\0II"})),
    ],
)
def test_the_size_that_a_record_leaves_out_is_its_pictures(
    kind: str, how: dict[str, Any], tmp_path: Path
) -> None:
    """Without a library, from the head of the file."""
    path = tmp_path / "picture"
    Image.effect_noise((301, 97), 60).convert("RGB").save(path, kind, **how)

    assert picture_size(path) == (301, 97)
    assert read_one(tmp_path, images=[path.name], width=..., height=...).size == (301, 97)


@pytest.mark.parametrize(
    "head", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00", b"\x89PNG\r\n\x1a\n", b"?"]
)
def test_a_size_that_nobody_says_is_asked_for(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(head)

    with pytest.raises(GroundTruthError, match=r"line 2: width is missing.*give width and height"):
        read_one(tmp_path, images=["b.png"], width=..., height=...)


def written(folder: Path, *rows: Any) -> Path:
    """Lines of JSON; text stays as it is."""
    Image.new("RGB", (64, 48)).save(folder / "a.png")
    path = folder / "x.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def row(*boxes: list[int], **more: Any) -> dict[str, Any]:
    objects = [{"desc": "cat", "bbox_2d": box} for box in boxes]
    return {"images": ["a.png"], "objects": objects, "width": 64, "height": 48} | more


def test_all_bad_records_are_named_at_once(tmp_path: Path) -> None:
    """Also lines that are no JSON: nobody should have to send a job once a line."""
    good = row([1, 2, 30, 40])
    bad: list[GroundTruthError] = []

    read = list(
        each_record(
            written(tmp_path, good, row() | {"objects": 3}, "{", good, row([9, 2, 3, 4])), None, bad
        )
    )

    assert len(read) == 2
    with pytest.raises(GroundTruthError) as caught:
        require_good(bad)
    assert str(caught.value) == (
        "x.jsonl line 2: objects is not a list (lines 3, 5 cannot be trained on either); "
        "list the objects of the image"
    )


def test_a_file_of_bad_records_is_not_read_to_its_end(tmp_path: Path) -> None:
    bad: list[GroundTruthError] = []

    assert list(each_record(written(tmp_path, *["{"] * 50), None, bad)) == []
    assert len(bad) == MOST_BAD
    with pytest.raises(GroundTruthError, match=r"20 cannot be .*, nor perhaps later ones\)"):
        require_good(bad)


ASKED = {"messages": [{"role": "user", "content": "the dog?"}]}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row([1, 2, 30, 40]), row([5, 6, 70, 80])], ["PICTURES_SPLIT"]),
        ([row([1, 2, 30, 40]), row([1, 2, 30, 40], [5, 6, 70, 80])], ["PICTURES_SPLIT"]),
        ([row([1, 2, 30, 40]), row([1, 2, 30, 40])], []),  # twice the same
        ([row([1, 2, 30, 40]), row([5, 6, 70, 80], **ASKED)], []),  # another question
        ([row([1, 2, 30, 40], [5, 6, 70, 80])], []),
    ],
)
def test_a_line_for_each_box_is_said(rows: Any, said: list[str], tmp_path: Path) -> None:
    """It would teach of each picture that there is one object."""
    found = survey(each_record(written(tmp_path, *rows)))

    assert [caution.code for caution in found.cautions] == said
    assert all("as x.jsonl line 2 does" in caution.problem for caution in found.cautions)


def test_a_picture_with_nothing_to_find_is_a_record(tmp_path: Path) -> None:
    """What is not there is to be learnt too; a file in which nothing is anywhere is a mistake."""
    empty = read_one(tmp_path, objects=[])
    swifts = read_one(tmp_path, **swift([]))

    assert (empty.objects, swifts.objects) == ((), ())
    with pytest.raises(GroundTruthError, match="objects are none in all 2 records"):
        read_records(written(tmp_path, row(), row()))


def test_a_crowd_is_read_beside_the_objects(tmp_path: Path) -> None:
    """By the rules of objects."""
    people = [{"desc": "people", "bbox_2d": [0, 0, 500, 500]}]

    assert read_one(tmp_path, crowd=people).crowd == (GTObject("people", (0, 0, 500, 500)),)
    with pytest.raises(GroundTruthError, match=r"crowd\[0\].desc None is blank"):
        read_one(tmp_path, crowd=[{"bbox_2d": [0, 0, 5, 5]}])
