"""Rollouts worked out by hand: each token with its role, and what must come of the whole.

A case lists the rollout's tokens as (text, role). Roles: `t` text before the object, `p` structure
of the prefix outside entries, `M`/`F`/`D` structure of a matched, false-positive or dropped entry,
with `d` its description, with `c` its coordinates; `-` is cut off; `>}` is a token that the cut
goes through, kept as the text behind `>`, with its role in `cut_role`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.contract.sources.ground_truth import Box, GTObject

Tokens = list[tuple[str, str]]

CAT, DOG, CAR = (
    GTObject("cat", (0, 0, 100, 100)),
    GTObject("dog", (200, 200, 300, 300)),
    GTObject("car", (500, 500, 900, 900)),
)


def entry(number: int | str, desc: str, box: Sequence[int], who: str) -> Tokens:
    """A canonical entry in big tokens: description and coordinates apart."""
    tokens = [
        (f'"object_{number}": {{"desc": "', who),
        (desc, who + "d"),
        ('", "bbox_2d": ["', who),
    ]
    for axis, k in enumerate(box):
        tokens += [('", "', who)] if axis else []
        tokens.append((f"<|coord_{k}|>", who + "c"))
    return [*tokens, ('"]}', who)]


def dropped(text: str, desc: str | None = None) -> Tokens:
    """A spoilt entry as one token, or in three with its description in the middle."""
    if desc is None:
        return [(text, "D")]
    before, after = text.split(desc)
    return [(before, "D"), (desc, "Dd"), (after, "D")]


@dataclass(frozen=True)
class Case:
    """One rollout and its outcome."""

    name: str
    tokens: Tokens
    gt: Sequence[GTObject] = (CAT,)
    pairs: Sequence[tuple[int, int]] = ()
    drops: Sequence[str] = ()
    boxes: Sequence[Box] = ()
    """Boxes of the predictions, in order."""
    fn_number: int = 1
    """Number of the first appended object."""
    invalid: bool = False
    truncated: bool = False
    cut_to: str = ""
    """Text that is kept of the token the cut goes through; it is the last of the prefix."""
    cut_role: str = ""
    descs: Sequence[str] = field(default=())


END = ("<|im_end|>", "-")
LEFT = '"object_1": '
CAT_TOKENS = entry(1, "cat", CAT.box, "M")
BAD_BOX = '"object_1": {"desc": "cat", "bbox_2d": '
C4 = '"<|coord_1|>", "<|coord_2|>", "<|coord_3|>", "<|coord_4|>"'

CASES = [
    Case(
        "one object, found",
        [("{", "p"), *CAT_TOKENS, ("}", "-"), END],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
    ),
    Case(
        "two objects, one missed",
        [("{", "p"), *entry(1, "dog", DOG.box, "M"), ("}", "-"), END],
        gt=[CAT, DOG],
        pairs=[(0, 1)],
        boxes=[DOG.box],
        fn_number=2,
    ),
    Case(
        "a false positive beside a match",
        [
            ("{", "p"),
            *entry(1, "bus", (700, 0, 800, 9), "F"),
            (", ", "p"),
            *entry(2, "cat", CAT.box, "M"),
            ("}", "-"),
            END,
        ],
        pairs=[(1, 0)],
        boxes=[(700, 0, 800, 9), CAT.box],
        fn_number=3,
    ),
    Case(
        "objects in another order than the ground truth",
        [
            ("{", "p"),
            *entry(1, "car", CAR.box, "M"),
            (", ", "p"),
            *entry(2, "cat", CAT.box, "M"),
            ("}", "-"),
        ],
        gt=[CAT, CAR],
        pairs=[(0, 1), (1, 0)],
        boxes=[CAR.box, CAT.box],
        fn_number=3,
    ),
    Case("no brace at all", [("I see a cat.", "-"), END], invalid=True),
    Case("nothing", [], invalid=True),
    Case("only the end", [END], invalid=True),
    Case("a closing brace alone", [("}", "-")], invalid=True),
    Case(
        "a quote in front opens no string",
        [('"', "t"), ("{", "p"), ('"', "-"), END],
        truncated=True,
    ),
    Case(
        "a list at top level",
        [("[", "-"), ("{", "-"), *[(t, "-") for t, _ in CAT_TOKENS], ("}", "-"), ("]", "-")],
        invalid=True,
    ),
    *(
        Case(
            name,
            [(lead, "t"), ("{", "p"), *entry(1, desc, CAT.box, "M"), ("}", "-"), END],
            pairs=[(0, 0)],
            boxes=[CAT.box],
            descs=[desc],
            fn_number=2,
        )
        for name, lead, desc in (
            ("an odd quote in front", 'As "JSON: ', "cat"),
            ("an odd quote in front, a brace in the description", 'As "JSON: ', "a { b"),
            ("inches in front", 'a 5" screen: ', "cat } ["),
            ("a backslash and a quote in front", 'it is \\" this ', "{"),
            ("apostrophes and a fence", "It's the cat's:\n```json\n", "cat"),
            ("brackets and a quote in a thought", '<think>[a "b] c</think>', "cat"),
        )
    ),
    Case(
        "a list with an odd quote first",
        [('["] ', "t"), ("{", "p"), *CAT_TOKENS, ("}", "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
    ),
    Case(
        "a bracket in a description does not end the list around it",
        [('[{"desc": "] {"} ', "-"), ("{", "-"), *[(t, "-") for t, _ in CAT_TOKENS]],
        invalid=True,
    ),
    Case(
        "an empty object in front is the first one",
        [("Not ", "t"), ("{", "p"), ("} but {", "-"), *[(t, "-") for t, _ in CAT_TOKENS]],
    ),
    Case(
        "a list first, then the object",
        [("[{}] ", "t"), ("{", "p"), *CAT_TOKENS, ("}", "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
    ),
    Case("an opening brace alone", [("{", "p")], truncated=True),
    Case("an empty object", [("{", "p"), ("}", "-"), END]),
    Case(
        "prose in front",
        [("Sure: ", "t"), ("{", "p"), *CAT_TOKENS, ("}", "-"), END],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
    ),
    Case(
        "cut off inside the second entry",
        [
            ("{", "p"),
            *CAT_TOKENS,
            (", ", "-"),
            *[(t, "-") for t, _ in entry(2, "dog", DOG.box, "M")],
        ][:-3],
        gt=[CAT, DOG],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        truncated=True,
    ),
    Case(
        "cut off inside a description that holds braces",
        [("{", "p"), *CAT_TOKENS, (", ", "-"), ('"object_2": {"desc": "a }} {', "-"), END],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        truncated=True,
    ),
    Case(
        "the end inside a description",
        [("{", "p"), *CAT_TOKENS, (', "object_2": {"desc": "a', "-"), END, ('"}}', "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        truncated=True,
    ),
    Case(
        "the end fused with both braces",
        [("{", "p"), *CAT_TOKENS[:-1], ('"]', "M"), ("}}<|im_end|>", ">")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        cut_to="}",
        cut_role="M",
    ),
    Case(
        "a comma glued to the closing brace",
        [("{", "p"), *CAT_TOKENS[:-1], ('"]}, "', ">"), ("object_2", "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        truncated=True,
        cut_to='"]}',
        cut_role="M",
    ),
    Case(
        "letters glued around the braces",
        [
            ("{", "p"),
            *CAT_TOKENS,
            (", ", "p"),
            (LEFT, "D"),
            ('{"desc": "', "D"),
            ("a", "Dd"),
            ('"', "D"),
            ("é}é", ">"),
        ],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        drops=["key_invalid"],
        fn_number=2,
        truncated=True,
        cut_to="é}",
        cut_role="D",
    ),
    Case(
        "a brace glued to a letter",
        [("{x", ">"), ("y", "-")],
        truncated=True,
        cut_to="{",
        cut_role="p",
    ),
    Case(
        "a key of another name",
        [("{", "p"), *dropped('"item_1": {"desc": "cat"}', "cat"), ("}", "-")],
        drops=["key_invalid"],
    ),
    Case(
        "number zero", [("{", "p"), *dropped('"object_0": {}'), ("}", "-")], drops=["key_invalid"]
    ),
    Case(
        "a leading zero",
        [("{", "p"), *dropped('"object_01": {}'), ("}", "-")],
        drops=["key_invalid"],
    ),
    Case(
        "a value without a key",
        [("{", "p"), *dropped('{"desc": "cat"}', "cat"), ("}", "-")],
        drops=["key_invalid"],
    ),
    Case(
        "a number as value, between two entries",
        [
            ("{", "p"),
            *CAT_TOKENS,
            (", ", "p"),
            *dropped('"object_2": 5'),
            (", ", "p"),
            *entry(3, "dog", DOG.box, "M"),
            ("}", "-"),
        ],
        gt=[CAT, DOG],
        pairs=[(0, 0), (1, 1)],
        drops=["key_invalid"],
        boxes=[CAT.box, DOG.box],
        fn_number=4,
    ),
    Case(
        "a number as last value: not finished",
        [("{", "p"), *CAT_TOKENS, (', "object_2": 5}', "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
    ),
    Case(
        "a list as value, between two entries",
        [
            ("{", "p"),
            *CAT_TOKENS,
            (", ", "p"),
            *dropped('"object_2": [{"desc": "x"}]'),
            (", ", "p"),
            *entry(3, "dog", DOG.box, "M"),
            ("}", "-"),
        ],
        gt=[CAT, DOG],
        pairs=[(0, 0), (1, 1)],
        drops=["key_invalid"],
        boxes=[CAT.box, DOG.box],
        fn_number=4,
    ),
    Case(
        "an empty description",
        [("{", "p"), *dropped(LEFT + '{"desc": "", "bbox_2d": []}'), ("}", "-")],
        drops=["missing_desc"],
        fn_number=2,
    ),
    Case(
        "a blank description",
        [("{", "p"), *dropped(LEFT + '{"desc": "  ", "poly": []}', "  "), ("}", "-")],
        drops=["missing_desc"],
        fn_number=2,
    ),
    Case(
        "a description that is no text",
        [("{", "p"), *dropped(LEFT + '{"desc": 5}'), ("}", "-")],
        drops=["missing_desc"],
        fn_number=2,
    ),
    Case(
        "no geometry",
        [("{", "p"), *dropped(LEFT + '{"desc": "cat"}', "cat"), ("}", "-")],
        drops=["missing_geom"],
        fn_number=2,
    ),
    Case(
        "a geometry nobody knows",
        [("{", "p"), *dropped(LEFT + '{"desc": "cat", "line": []}', "cat"), ("}", "-")],
        drops=["unknown_geom"],
        fn_number=2,
    ),
    Case(
        "two geometries",
        [
            ("{", "p"),
            *dropped(LEFT + '{"desc": "cat", "bbox_2d": [], "poly": []}', "cat"),
            ("}", "-"),
        ],
        drops=["key_invalid"],
        fn_number=2,
    ),
    Case(
        "an extra key",
        [("{", "p"), *dropped(BAD_BOX + '[], "score": 1}', "cat"), ("}", "-")],
        drops=["key_invalid"],
        fn_number=2,
    ),
    Case(
        "a polygon",
        [("{", "p"), *dropped(LEFT + '{"desc": "cat", "poly": [1]}', "cat"), ("}", "-")],
        drops=["poly_unsupported"],
        fn_number=2,
    ),
    Case(
        "a box of three",
        [("{", "p"), *dropped(BAD_BOX + '["<|coord_1|>", 2, 3]}', "cat"), ("}", "-")],
        drops=["wrong_arity"],
        fn_number=2,
    ),
    Case(
        "a nested box",
        [("{", "p"), *dropped(BAD_BOX + '[["a"], 2, 3, 4]}', "cat"), ("}", "-")],
        drops=["wrong_arity"],
        fn_number=2,
    ),
    Case(
        "a box as text",
        [("{", "p"), *dropped(BAD_BOX + '"1 2 3 4"}', "cat"), ("}", "-")],
        drops=["wrong_arity"],
        fn_number=2,
    ),
    Case(
        "bare numbers",
        [("{", "p"), *dropped(BAD_BOX + "[1, 2, 3, 4]}", "cat"), ("}", "-")],
        drops=["non_coord_token"],
        fn_number=2,
    ),
    Case(
        "a bin of 1000",
        [("{", "p"), *dropped(BAD_BOX + "[" + C4.replace("_4", "_1000") + "]}", "cat"), ("}", "-")],
        drops=["non_coord_token"],
        fn_number=2,
    ),
    Case(
        "coord tokens spelled letter by letter",
        [("{", "p"), *dropped(BAD_BOX + "[" + C4 + "]}", "cat"), ("}", "-")],
        drops=["wrong_arity"],
        fn_number=2,
    ),
    Case(
        "a box turned round",
        [
            ("{", "p"),
            *[(t, w.removesuffix("c")) for t, w in entry(1, "cat", (9, 0, 1, 5), "D")],
            ("}", "-"),
        ],
        drops=["bbox_invalid"],
        fn_number=2,
    ),
    Case(
        "a box without width is a box",
        [("{", "p"), *entry(1, "cat", (5, 0, 5, 9), "F"), ("}", "-")],
        boxes=[(5, 0, 5, 9)],
        fn_number=2,
    ),
    Case(
        "the same key twice: two entries",
        [
            ("{", "p"),
            *entry(1, "cat", CAT.box, "M"),
            (", ", "p"),
            *entry(1, "dog", DOG.box, "M"),
            ("}", "-"),
        ],
        gt=[CAT, DOG],
        pairs=[(0, 0), (1, 1)],
        boxes=[CAT.box, DOG.box],
        fn_number=2,
    ),
    Case(
        "a dropped entry's number is taken too",
        [("{", "p"), *dropped('"object_9": {"desc": ""}'), (", ", "p"), *CAT_TOKENS, ("}", "-")],
        gt=[CAT, DOG],
        pairs=[(0, 0)],
        drops=["missing_desc"],
        boxes=[CAT.box],
        fn_number=10,
    ),
    Case(
        "a key inside a description is text",
        [("{", "p"), *entry(1, "object_7", CAT.box, "M"), ("}", "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        descs=["object_7"],
    ),
    Case(
        "a nested key is not counted",
        [("{", "p"), *dropped('"object_1": {"object_8": {}}'), ("}", "-")],
        drops=["missing_desc"],
        fn_number=2,
    ),
    Case(
        "a second object behind the first is ignored",
        [("{", "p"), *CAT_TOKENS, ("}", "-"), (" {", "-"), *[(t, "-") for t, _ in CAT_TOKENS]],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
    ),
    Case(
        "a list left open spoils only its own entry",
        [
            ("{", "p"),
            *dropped(BAD_BOX + '["<|coord_1|>"}', "cat"),
            (", ", "p"),
            *entry(2, "cat", CAT.box, "M"),
            ("}", "-"),
        ],
        pairs=[(0, 0)],
        drops=["key_invalid"],
        boxes=[CAT.box],
        fn_number=3,
    ),
    Case(
        "no comma between entries",
        [("{", "p"), *CAT_TOKENS, (" ", "p"), *entry(2, "dog", DOG.box, "M"), ("}", "-")],
        gt=[CAT, DOG],
        pairs=[(0, 0), (1, 1)],
        boxes=[CAT.box, DOG.box],
        fn_number=3,
    ),
    Case(
        "coord tokens inside a description are text",
        [
            ("{", "p"),
            ('"object_1": {"desc": "', "M"),
            ("<|coord_7|>", "Md"),
            ('", "bbox_2d": ["', "M"),
            *CAT_TOKENS[3:],
            ("}", "-"),
        ],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        descs=["<|coord_7|>"],
    ),
    Case(
        "escaped quotes and braces in a description",
        [("{", "p"), *entry(1, 'a \\"}\\" {', CAT.box, "M"), ("}", "-")],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        descs=['a "}" {'],
    ),
    Case(
        "a description in two parts of one token each",
        [
            ("{", "p"),
            ('"object_1": {"desc": "', "M"),
            ("a ", "Md"),
            ('cat"', "Md"),
            (', "bbox_2d": ["', "M"),
            *CAT_TOKENS[3:],
            ("}", "-"),
        ],
        pairs=[(0, 0)],
        boxes=[CAT.box],
        fn_number=2,
        descs=["a cat"],
    ),
    Case(
        "the box given twice",
        [("{", "p"), *dropped(BAD_BOX + '[], "bbox_2d": []}', "cat"), ("}", "-")],
        drops=["key_invalid"],
        fn_number=2,
    ),
    Case(
        "an entry that is no JSON",
        [("{", "p"), *dropped(LEFT + '{"desc": "cat",}', "cat"), ("}", "-")],
        drops=["key_invalid"],
        fn_number=2,
    ),
    Case(
        "not a number",
        [("{", "p"), *dropped(BAD_BOX + "[NaN, 1, 2, 3]}", "cat"), ("}", "-")],
        drops=["key_invalid"],
        fn_number=2,
    ),
]
