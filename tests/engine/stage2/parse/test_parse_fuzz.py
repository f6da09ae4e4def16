"""The fast parser against the slow reference, on mutated rollouts in three tokenizer families."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.contract.sources.ground_truth import GTObject
from engine.stage2.parse import scan
from engine.stage2.parse.parser import (
    Drop,
    ParsedRollout,
    parse,
    rollout_metrics,
    strict_drop_metrics,
)
from engine.stage2.target.payload import render
from tests.engine.stage2.families import (
    ASCII,
    FAMILIES,
    FUSED,
    byte_level,
    characters,
    spell,
    words,
)
from tests.engine.stage2.mutations import MALFORMED, Drawn, check, draw

ROLLOUTS = 5_000
ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.requirement("AB-08", "AB-11", "AB-12", "AB-16")
@pytest.mark.parametrize("family", range(len(FAMILIES)), ids=list(FAMILIES))
def test_both_parsers_agree_on_mutated_rollouts(family: int) -> None:
    """They agree; untouched objects survive; the prefix can be appended to; B3 is valid JSON."""
    pieces = list(FAMILIES.values())[family]()

    for seed in range(family, ROLLOUTS, len(FAMILIES)):
        check(draw(random.Random(seed), pieces), pieces)


@pytest.mark.requirement("AB-11")
def test_glued_tokens_agree_with_the_reference_too() -> None:
    """Rollouts of tokens that glue braces, quotes and the end to their neighbours."""
    pieces = characters()
    tokens = [*FUSED, "{", "}", '"', "[", "]", ",", ":", " ", "a", "<|coord_1|>", "<|coord_9|>"]
    entry = ['"object_', "1", '": {"', "desc", '": "', "a", '", "', "bbox_2d", '": ', '["']
    entry += ["<|coord_1|>", '", "', "<|coord_1|>", '", "', "<|coord_9|>", '", "', "<|coord_9|>"]
    rng = random.Random(7)

    for _ in range(500):
        body = [*entry, rng.choice(['"]}', '"]}, "', '"]}}', "}}<|im_end|>"])]
        for _ in range(rng.randint(0, 3)):
            body[rng.randrange(len(body))] = rng.choice(tokens)
        ids = spell(pieces, "{", *body, *rng.choices(tokens, k=rng.randint(0, 12)))
        check(Drawn(tuple(ids), (), (GTObject("a", (1, 1, 9, 9)),)), pieces)


@pytest.mark.requirement("AB-08")
@pytest.mark.parametrize("before", ["", ' "x"', " : ", '"object_9": {}, ', '"a": 1, ', "[", "}"])
@pytest.mark.parametrize("desc", ["a", " ", "\x7f", "é\u2028", "b } {", "c:", "\udcff"])
def test_an_entry_in_our_own_spelling_is_read_as_any_other(
    before: str, desc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short way through the scan and the general one give the same rollout."""
    pieces = byte_level()
    entry = render([GTObject("a", (1, 2, 3, 4))]).text[1:-1]
    raw = entry.replace('"a"', f'"{desc}"').encode("utf-8", "surrogateescape")
    text = b"{" + before.encode() + raw + b", " + raw + b"}"
    runs = re.split(rb"(<\|coord_[0-9]+\|>)", text)
    ids = [i for run in runs for i in pieces.encode_bytes(run) or ()]

    short = parse(ids, pieces)
    monkeypatch.setattr(scan, "_OUR_ENTRY", re.compile(rb"(?!)"))
    general = parse(ids, pieces)

    assert pieces.encode_bytes(runs[1]) is not None
    assert (short.prefix_ids, short.prefix) == (general.prefix_ids, general.prefix)
    assert [(e.key, e.prediction, e.drop, e.span.start, e.span.end) for e in short.entries] == [
        (e.key, e.prediction, e.drop, e.span.start, e.span.end) for e in general.entries
    ]
    assert not any(e.span.is_ours for e in general.entries)


@pytest.mark.requirement("AB-08")
@pytest.mark.parametrize(("value", "bucket"), MALFORMED)
def test_a_malformed_entry_is_dropped_alone(value: str, bucket: str | None) -> None:
    """It lands in its bucket; the entries around it survive as they are."""
    pieces = byte_level()
    good = GTObject("a } b", (1, 2, 3, 4))
    entry = render([good]).text[1:-1]

    parsed = parse(pieces.encode(f'{{{entry}, "object_5": {value}, {entry}}}'), pieces)

    assert [(p.desc, p.box) for p in parsed.predictions] == [(good.desc, good.box)] * 2
    assert parsed.drops == {Drop(bucket or "key_invalid"): 1}
    assert parsed.max_index == 5


@pytest.mark.requirement("AB-12")
def test_a_rollout_without_an_object_falls_back_to_a_brace() -> None:
    """Same ids, same answer: the prefix is exactly `{` and nothing was predicted."""
    pieces = byte_level()
    ids = pieces.encode("no objects here")

    first, second = parse(ids, pieces), parse(ids, pieces)

    assert first == second
    assert first == ParsedRollout(
        pieces.encode("{"), b"{", (), invalid=True, truncated=False, opening=0, max_index=0
    )


@pytest.mark.requirement("AB-11")
@pytest.mark.parametrize("behind", [0, 5, 32, 37])
def test_an_answer_ends_where_it_holds_a_pictures_placeholder(behind: int) -> None:
    """Whatever it stands in: entries that were whole before it stay, nothing behind it counts."""
    pieces = byte_level()
    whole = pieces.encode('{"object_1": {"desc": "a"}, "object_2": {"desc": "b"}}')
    (placeholder,) = pieces.placeholders

    cut = parse([*whole[:behind], placeholder, *whole[behind:]], pieces)

    assert cut == parse(whole[:behind], pieces)
    assert placeholder not in cut.prefix_ids


@pytest.mark.requirement("AB-08", "AB-12")
def test_the_counters_of_a_step_are_stable() -> None:
    """Every reason is logged, 0 included, and adds up over the rollouts."""
    pieces = byte_level()
    texts = ['{"object_1": {"desc": "a"}, "object_2": {}, "x": {}}', "nothing", '{"object_1": {"de']
    texts.append(render([GTObject("a", (1, 2, 3, 4))]).text)
    rollouts = [parse(pieces.encode(text), pieces) for text in texts]

    metrics = strict_drop_metrics(rollouts, "stage2_ab/channel_b")
    root = "stage2_ab/channel_b/strict_drop"
    reasons = {
        name.removeprefix(f"{root}/reason/"): n for name, n in metrics.items() if "reason" in name
    }

    assert (metrics[f"{root}/N_valid_pred"], metrics[f"{root}/N_drop_invalid"]) == (1, 3)
    assert reasons == dict.fromkeys(Drop, 0.0) | {
        "missing_geom": 1,
        "missing_desc": 1,
        "key_invalid": 1,
    }
    assert rollout_metrics(rollouts) == {
        "stage2/raw_rollouts": 4,
        "stage2/invalid_rollout": 1,
        "rollout/parse_truncated_rate": 0.25,
    }


def test_a_cut_that_the_vocabulary_cannot_write_moves_back() -> None:
    """The parser never fails: it falls back to an earlier brace, at last to the invalid form."""
    pieces = words(["é}é", "é{é"], ASCII)  # no token for é alone: nothing before its brace
    entry = spell(pieces, '{"object_1": {}, "object_2": {', "é}é")

    parsed = parse(entry, pieces)
    invalid = parse(spell(pieces, "é{é"), pieces)

    assert parsed.prefix == b'{"object_1": {}'
    assert parsed.prefix_ids == tuple(entry[: len(parsed.prefix)])
    assert [one.key for one in parsed.entries] == ["object_1"]
    assert (invalid.invalid, invalid.prefix) == (True, b"{")


@pytest.mark.parametrize(
    "text", ["[" * 5000, "{" * 5000, '{"a":' * 3000, '{"object_1": ' + "[" * 9000]
)
def test_deep_nesting_is_read_without_a_crash(text: str) -> None:
    """A degenerate rollout may repeat one brace until its length runs out."""
    pieces = byte_level()

    parsed = parse(pieces.encode(text + "}" * 9000), pieces)

    assert parsed.predictions == ()


def test_a_number_of_thousands_of_digits_is_read_without_a_crash() -> None:
    """It is a valid key, and no appended number comes near it."""
    pieces = byte_level()
    text = '{"object_' + "9" * 5000 + '": {"desc": ' + "9" * 5000 + "}}"

    parsed = parse(pieces.encode(text), pieces)

    assert parsed.drops == {Drop.KEY_INVALID: 1}
    assert parsed.max_index == 0


def test_the_fuzzer_runs_by_itself() -> None:
    """The long form shares its checks with this file and reports what it ran."""
    done = subprocess.run(
        [sys.executable, "tools/fuzz_stage2.py", "--rollouts", "30", "--seed", "900"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("30 rollouts held")


def test_half_a_character_inside_an_entry_is_read_as_a_replacement() -> None:
    """A byte-level tokenizer may stop inside an emoji; the entry is judged as it decodes."""
    pieces = byte_level()
    text = render([GTObject("a😀b", (1, 2, 3, 4))]).text
    ids = [i for i in pieces.encode(text) if pieces.of(i) != b"\x80"]
    broken = b"".join(pieces.of_all(ids))
    if broken.decode(errors="replace") == text:  # the emoji is one token here: cut its last byte
        head, tail = text.split("😀")
        half = pieces.encode_bytes("😀".encode()[:3])
        assert half is not None
        ids = [*pieces.encode(head), *half, *pieces.encode(tail)]

    (prediction,) = parse(ids, pieces).predictions

    assert prediction.desc == "a\ufffdb"
    assert json.dumps(prediction.desc)
