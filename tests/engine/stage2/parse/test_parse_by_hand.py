"""Rollouts worked out by hand: prefix, drops, pairs, numbering and the role of every token."""

from __future__ import annotations

import itertools
import re
from functools import cache

import pytest

from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2.inspect.roles import Role, y_train_roles
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import JudgedRollout, judge
from engine.stage2.target.segments import y_train
from tests.engine.stage2.families import ASCII, spell, words
from tests.engine.stage2.mutations import inactive_gate
from tests.engine.stage2.rollouts_by_hand import CASES, Case


@cache
def hand_pieces() -> TokenPieces:
    """Every token that a case writes, as one token; plain encoding goes letter by letter."""
    special = re.compile(r"<\|(im_end|coord_\d+)\|>")
    texts = (text for case in CASES for text, _ in case.tokens)
    return words((text for text in texts if not special.fullmatch(text)), ASCII + "é")


def ids_of(case: Case) -> list[int]:
    return spell(hand_pieces(), *(text for text, _ in case.tokens))


def judged(case: Case) -> JudgedRollout:
    (rollout,) = judge(
        [(ids_of(case), case.gt)], hand_pieces(), RolloutMatchingConfig(), inactive_gate()
    )
    return rollout


SOURCE = {"matched": "M", "FP": "F", "dropped": "D", "FN": "N", "frame": "f", "prefix": "p"}
PART = {"structure": "", "desc": "d", "coord": "c"}


def code(role: Role) -> str:
    """The letters of rollouts_by_hand, for a role."""
    if role.part == "text":
        return "t"
    return "s" if role.part == "stop" else SOURCE[role.source] + PART[role.part]


def by_name(case: Case) -> str:
    return case.name


def test_there_are_enough_cases_and_each_reason_occurs() -> None:
    """At least 30 rollouts; every bucket is hit by one of them."""
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)
    assert {drop for case in CASES for drop in case.drops} == {
        *("key_invalid", "missing_desc", "missing_geom", "unknown_geom", "poly_unsupported"),
        *("wrong_arity", "non_coord_token", "bbox_invalid"),
    }


@pytest.mark.requirement("AB-08", "AB-11", "AB-12")
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_the_rollout_is_read_as_by_hand(case: Case) -> None:
    """Verdicts, boxes, drops, pairs: none repaired, none lost."""
    rollout = judged(case)
    parsed = rollout.parsed

    assert (parsed.invalid, parsed.truncated) == (case.invalid, case.truncated)
    assert [e.drop.value for e in parsed.entries if e.drop] == list(case.drops)
    assert [p.box for p in parsed.predictions] == list(case.boxes)
    assert list(rollout.found.pairs) == list(case.pairs)
    if case.descs:
        assert [p.desc for p in parsed.predictions] == list(case.descs)


@pytest.mark.requirement("AB-11", "AB-12")
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_the_prefix_keeps_the_rollouts_own_tokens(case: Case) -> None:
    """Tokens stay as they were generated; only one that the cut goes through is written anew."""
    kept = [i for i, (_, role) in zip(ids_of(case), case.tokens, strict=True) if role not in "->"]
    pieces = hand_pieces()

    parsed = judged(case).parsed

    if case.invalid:
        assert parsed.prefix_ids == pieces.encode("{")
    else:
        rest = b"".join(pieces.of_all(parsed.prefix_ids[len(kept) :])).decode()
        assert list(parsed.prefix_ids[: len(kept)]) == kept
        assert rest == case.cut_to


@pytest.mark.requirement("AB-11", "AB-16")
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_each_token_of_the_target_has_its_role(case: Case) -> None:
    """Prefix as by hand; then the missing objects, the closing brace and the end."""
    rollout = judged(case)

    codes = [code(role) for role in y_train_roles(rollout, hand_pieces())]

    prefix = ["p"] if case.invalid else [role for _, role in case.tokens if role not in "->"]
    prefix += (
        [case.cut_role] * (len(rollout.parsed.prefix_ids) - len(prefix))
        if prefix or case.cut_to
        else ["p"]
    )
    assert codes[: len(prefix)] == prefix
    one = ["N", "Nd", *["N", "Nc"] * 4, "N"]
    appended = list(itertools.chain.from_iterable([*one, "f"] for _ in rollout.found.missing))[:-1]
    lead = ["f"] if appended and rollout.parsed.prefix.endswith(b"}") else []
    runs = [code for code, _ in itertools.groupby(codes[len(prefix) :])]
    assert runs == [*lead, *appended, "s"]


@pytest.mark.requirement("AB-16")
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_appended_numbers_go_on_from_the_largest_kept(case: Case) -> None:
    """Dropped entries hold their number too; nothing collides."""
    rollout = judged(case)
    text = b"".join(hand_pieces().of_all(y_train(rollout, hand_pieces())))
    appended = text[len(rollout.parsed.prefix) :].decode()

    numbers = [int(part.split('"')[0]) for part in appended.split('"object_')[1:]]

    first = case.fn_number
    assert numbers == list(range(first, first + len(rollout.found.missing)))
    assert appended.endswith("}<|im_end|>")
