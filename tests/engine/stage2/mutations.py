"""Mutated rollouts, and what must hold of every one of them.

The test suite draws a bounded number; `tools/fuzz_stage2.py` draws on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2 import coords
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2.inspect.roles import b3_roles, y_train_roles
from engine.stage2.parse.parser import ParsedRollout, parse
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import judge
from engine.stage2.target.payload import render
from engine.stage2.target.segments import (
    CEWeights,
    build_targets,
    fragment,
    y_gt_reordered,
    y_train,
)
from tests.engine.stage2.reference_parser import read

DESCS = (
    *("cat", "a red car", 'the "big" one', "{brace}", "a } b", "[1, 2]", "back\\slash", "😀 猫"),
    *("object_7", '"object_3": {', "naïve café", "tab\there", "<|coord_5|>", "x,y:z", "e\u0301"),
)
NOISE = (
    *('"', "{", "}", "[", "]", ",", ":", "\\", " ", "\n", "é", "😀", "1", "null", "NaN", "\\u0022"),
    *(
        "<|im_end|>",
        "<|endoftext|>",
        "<|image_pad|>",
        "<|coord_3|>",
        "object_2",
        '"object_5"',
        '"desc": ',
        '""',
    ),
)


LEADS = (
    *("", "Here: ", "[1] ", "a } b ", "\n", 'As "JSON: ', "it's ", '5" ', '\\" ', "```json\n"),
    *('"quoted" ', "<think>a ] b</think>", '<think>\n[1, 2]"</think>\n', '["] ', '[{"a": "]"}] '),
)
"""Prose in front of an object: none of it opens one at top level."""
OPENINGS = ("{} ", "a {b", "[", '["', "[{", '{"a": "}', '[{"a]": ', '"{"', "{'")
"""Such as open an object or a list."""


def _entry_of(*box: int) -> str:
    return json.dumps({"desc": "a", "bbox_2d": [coords.token(k) for k in box]})


MALFORMED = (  # balanced values that spoil only themselves, with their bucket
    ("5", None),
    ("[]", None),
    ('"text"', None),
    ("{}", "missing_desc"),
    ('{"desc": " ", "bbox_2d": []}', "missing_desc"),
    ('{"desc": 5}', "missing_desc"),
    ('{"desc": "a"}', "missing_geom"),
    ('{"desc": "a", "line": [1]}', "unknown_geom"),
    ('{"desc": "a", "bbox_2d": [1], "poly": [2]}', "key_invalid"),
    ('{"desc": "a" "bbox_2d": 3}', "key_invalid"),
    ('{"desc": "a", "poly": [1]}', "poly_unsupported"),
    ('{"desc": "a", "bbox_2d": ["<|coord_1|>"]}', "wrong_arity"),
    ('{"desc": "a", "bbox_2d": [["<|coord_1|>"]}', "key_invalid"),
    ('{"desc": "a", "bbox_2d": [1, 2, 3, 4]}', "non_coord_token"),
    (
        '{"desc": "a", "bbox_2d": ["<|coord_9|>", "<|coord_1|>", "<|coord_2|>", "<|coord_3|>"]}',
        "bbox_invalid",
    ),
)
"""None: dropped as `key_invalid` once an entry in braces follows, else not finished."""

WEIGHTS = CEWeights(desc=1.0, desc_matched=0.2, dropped_structure=1.5)


def inactive_gate() -> DescGate:
    """A gate that accepts nothing."""
    return DescGate(enabled=False, threshold=0.5, model_name_or_path="none", revision=None)


@dataclass(frozen=True)
class Drawn:
    """A rollout drawn at random, and the objects that must be found in it."""

    ids: tuple[int, ...]
    survivors: tuple[GTObject, ...]
    """In order; other predictions may stand between them."""
    gt: tuple[GTObject, ...]


def draw_objects(rng: random.Random, most: int = 4) -> tuple[GTObject, ...]:
    """Objects with awkward descriptions."""

    def box() -> tuple[int, int, int, int]:
        x1, x2 = sorted(rng.choices(range(1000), k=2))
        y1, y2 = sorted(rng.choices(range(1000), k=2))
        return x1, y1, x2, y2

    return tuple(GTObject(rng.choice(DESCS), box()) for _ in range(rng.randint(0, most)))


def draw(rng: random.Random, pieces: TokenPieces) -> Drawn:
    """A rollout by one of the mutations."""
    gt = draw_objects(rng)
    ids, survivors = rng.choice(MUTATIONS)(rng, pieces, draw_objects(rng))
    return Drawn(tuple(ids), survivors, gt)


Mutated = tuple[Sequence[int], tuple[GTObject, ...]]


def _tokens(rng: random.Random, pieces: TokenPieces, objects: Sequence[GTObject]) -> Mutated:
    """Delete, double, replace or swap tokens; what closed before the first change survives."""
    ids = [*pieces.encode(render(objects).text), pieces.end_id]
    first = len(ids)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(ids))
        first = min(first, at)
        match rng.randrange(4):
            case 0 if len(ids) > 1:
                del ids[at]
            case 1:
                ids.insert(at, ids[at])
            case 2:
                ids[at] = rng.randrange(-1, max(pieces.coord_ids) + 20)
            case _:
                ids.insert(at, rng.choice(ids))
    return ids, _closed_before(pieces, objects, ids[:first])


def _characters(rng: random.Random, pieces: TokenPieces, objects: Sequence[GTObject]) -> Mutated:
    """Put noise into the text, or take characters out of it."""
    text = render(objects).text
    first = len(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        first = min(first, at)
        cut = rng.choice([0, 0, 1, 3])
        text = text[:at] + rng.choice(NOISE) * rng.randint(0, 2) + text[at + cut :]
    ids = pieces.encode(text)
    whole = text[:first].encode()
    return ids, tuple(_closed_in(whole, objects))


def _truncated(rng: random.Random, pieces: TokenPieces, objects: Sequence[GTObject]) -> Mutated:
    """Stop anywhere, also behind any text in front."""
    lead = rng.choice(LEADS)
    ids = pieces.encode(lead + render(objects).text)
    ids = ids[: rng.randint(0, len(ids))]
    text = b"".join(pieces.of_all(ids)).removeprefix(lead.encode())
    return ids, tuple(_closed_in(text, objects))


def _led_in(rng: random.Random, pieces: TokenPieces, objects: Sequence[GTObject]) -> Mutated:
    """Put pieces of prose, lists and objects in front, in any order."""
    lead = "".join(rng.choices([*LEADS, *OPENINGS, *NOISE[:12]], k=rng.randint(1, 4)))
    return pieces.encode(lead + render(objects).text), ()


def _entries(rng: random.Random, pieces: TokenPieces, objects: Sequence[GTObject]) -> Mutated:
    """Put malformed entries between the good ones, which all survive."""
    good = [(o, json.dumps(render([o]).text)) for o in objects]
    items: list[str] = []
    for index, (one, _) in enumerate(good, 1):
        for _ in range(rng.randint(0, 2)):
            value, _bucket = rng.choice(MALFORMED)
            items.append(f'"object_{rng.randint(1, 99)}": {value}')
        items.append(render([one]).text[1:-1].replace("object_1", f"object_{index}", 1))
    text = "{" + rng.choice([", ", ",", " , ", "\n"]).join(items) + "}"
    return pieces.encode(text), tuple(objects)


def _garbage(rng: random.Random, pieces: TokenPieces, objects: Sequence[GTObject]) -> Mutated:
    """Any tokens at all."""
    top = max(pieces.coord_ids) + 1
    ids = [rng.randrange(top) for _ in range(rng.randint(0, 60))]
    braces = [i for text in '{}[]":,' for i in pieces.encode(text)]
    return [rng.choice(braces) if rng.random() < 0.4 else i for i in ids], ()


MUTATIONS: tuple[Callable[[random.Random, TokenPieces, Sequence[GTObject]], Mutated], ...] = (
    *(_tokens, _characters, _truncated, _led_in, _entries, _garbage),
)


def _closed_before(
    pieces: TokenPieces, objects: Sequence[GTObject], kept: Sequence[int]
) -> tuple[GTObject, ...]:
    return tuple(_closed_in(b"".join(pieces.of_all(kept)), objects))


def _closed_in(text: bytes, objects: Sequence[GTObject]) -> list[GTObject]:
    """Objects whose entry stands whole in `text`, the beginning of their payload."""
    whole = []
    for count in range(1, len(objects) + 1):
        if not text.startswith(render(objects[:count]).text[:-1].encode()):
            break
        whole.append(objects[count - 1])
    return whole


def check(drawn: Drawn, pieces: TokenPieces) -> None:
    """Everything that must hold of a rollout; raises AssertionError."""
    parsed = parse(drawn.ids, pieces)
    _agrees_with_the_reference(drawn, parsed, pieces)
    _keeps_the_untouched(drawn, parsed)
    _is_append_ready(drawn, parsed, pieces)
    _makes_a_valid_target(drawn, parsed, pieces)


def _agrees_with_the_reference(drawn: Drawn, parsed: ParsedRollout, pieces: TokenPieces) -> None:
    slow = read(drawn.ids, pieces)
    fast = [
        (
            e.key,
            e.drop,
            e.prediction.desc if e.prediction else None,
            e.prediction.box if e.prediction else None,
        )
        for e in parsed.entries
    ]
    assert (parsed.invalid, parsed.truncated) == (slow.invalid, slow.truncated)
    assert fast == slow.entries
    assert parsed.max_index == slow.max_index
    assert parsed.prefix.decode(errors="replace") == slow.prefix


def _keeps_the_untouched(drawn: Drawn, parsed: ParsedRollout) -> None:
    found = iter((p.desc, p.box) for p in parsed.predictions)
    for survivor in drawn.survivors:
        assert any(one == (survivor.desc, survivor.box) for one in found), survivor


def _is_append_ready(drawn: Drawn, parsed: ParsedRollout, pieces: TokenPieces) -> None:
    assert parsed.prefix[-1:] in (b"{", b"}")
    assert b"".join(pieces.of_all(parsed.prefix_ids)) == parsed.prefix
    if not parsed.invalid:
        same = 0
        for ours, theirs in zip(parsed.prefix_ids, drawn.ids, strict=False):
            if ours != theirs:
                break
            same += 1
        rewritten = b"".join(pieces.of_all(parsed.prefix_ids[same:]))
        assert not rewritten or pieces.of(drawn.ids[same]).startswith(rewritten)
    for prediction in parsed.predictions:
        said = [pieces.coord_bins[parsed.prefix_ids[p]] for p in prediction.coord_positions]
        assert tuple(said) == prediction.box


def _makes_a_valid_target(drawn: Drawn, parsed: ParsedRollout, pieces: TokenPieces) -> None:
    (rollout,) = judge([(drawn.ids, drawn.gt)], pieces, RolloutMatchingConfig(), inactive_gate())
    missing = [drawn.gt[j] for j in rollout.found.missing]
    whole = parsed.prefix + fragment(parsed.prefix, missing, parsed.max_index + 1).text.encode()
    y = y_train(rollout, pieces)
    assert b"".join(pieces.of_all(y[:-1])) == whole
    assert len(y) == len(y_train_roles(rollout, pieces))
    if _is_json(parsed, b"}"):  # nothing malformed was kept: appending must not spoil it
        assert _is_json(parsed, whole[len(parsed.prefix) :])
    appended = [f"object_{parsed.max_index + 1 + n}" for n in range(len(missing))]
    assert not {entry.key for entry in parsed.entries}.intersection(appended)
    targets = build_targets((), rollout, WEIGHTS, pieces)
    text = b"".join(pieces.of_all(targets.b3.ids[:-1])).decode()
    assert text == y_gt_reordered(drawn.gt, rollout.found)
    boxes = [value["bbox_2d"] for value in json.loads(text).values()]
    order = [*(j for _, j in rollout.found.pairs), *rollout.found.missing]
    assert boxes == [[coords.token(k) for k in drawn.gt[j].box] for j in order]
    assert len(targets.b3.ids) == len(b3_roles(rollout, pieces))
    assert (targets.b2 is None) == (not rollout.found.pairs)


def _is_json(parsed: ParsedRollout, tail: bytes) -> bool:
    opening = 0 if not parsed.entries else parsed.prefix.rfind(b"{", 0, _first_key(parsed))
    try:
        json.loads(parsed.prefix[max(opening, 0) :] + tail)
    except ValueError:
        return False
    return True


def _first_key(parsed: ParsedRollout) -> int:
    return parsed.entries[0].span.key_start
