"""How much of a bench stands in the training rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.sources.overlap import COMMON, FEW, GRAM, LEAK, NEAR, overlaps, words_of
from engine.data.rows import Question

WORDS = [f"w{i}" for i in range(4000)]


def rows(texts: Sequence[str], prefix: str = "t") -> list[Question]:
    return [Question(f"{prefix}{i}", text, "1") for i, text in enumerate(texts)]


def texts(n: int, seed: int, length: int = 40) -> list[str]:
    """Random ones that share no 13-gram."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=length)) for _ in range(n)]


def test_a_row_that_trains_is_a_leak_however_it_is_written() -> None:
    held = texts(30, 1)
    written = held[3].upper().replace(" ", "\n  ") + " ?!"

    found = overlaps(rows([*texts(50, 2), written]), {"bench": rows(held, "h")})["bench"]

    assert [(pair.heldout.id, pair.training.id) for pair in found.leaks] == [("h3", "t50")]
    assert (found.rows, found.training, found.near) == (30, 51, [])
    assert found.leaking == {50}


@pytest.mark.parametrize(
    ("shared", "kind"), [(40, "leak"), (34, "leak"), (33, "near"), (26, "near"), (25, "none")]
)
def test_shares_from_the_bounds_on(shared: int, kind: str) -> None:
    """Of 28 grams in 40 words, 22 (34 words) are not 0.8; bounds are included."""
    held = texts(1, 3)[0]
    begun = " ".join(held.split()[:shared])
    share = (shared - GRAM + 1) / (40 - GRAM + 1)

    found = overlaps(rows([*texts(20, 4), begun + " and so on"]), {"b": rows([held])})["b"]

    expected = "leak" if share >= LEAK else "near" if share >= NEAR else "none"
    got = "leak" if found.leaks else "near" if found.near else "none"
    assert got == expected
    assert kind == expected or shared == 34


def test_rows_of_under_thirteen_words_are_compared_whole() -> None:
    held = rows(["What is 3 + 4?", "What is 3 * 4?", "Who wrote Emma?"], "h")
    training = rows(["what is 3 - 4", "What  is 3 + 4", "Who wrote Emma and Persuasion?"])

    found = overlaps(training, {"bench": held})["bench"]

    assert [(pair.heldout.id, pair.training.id) for pair in found.leaks] == [("h0", "t1")]
    assert found.near == []


@pytest.mark.parametrize(
    "around", ["{} Think step by step and box it", "Please solve this for me now: {}"]
)
@pytest.mark.parametrize("side", ["training", "bench"])
def test_an_instruction_around_the_question_does_not_hide_it(around: str, side: str) -> None:
    """Of fewer than 13 words too, and around short questions."""
    held = [*texts(20, 5, length=16), *texts(20, 6, length=5)]
    framed = [around.format(text) for text in held]
    ours, theirs = (framed, held) if side == "training" else (held, framed)

    found = overlaps(rows(ours), {"bench": rows(theirs, "h")})["bench"]

    assert len(found.leaks) == 40
    assert len(found.kept(rows(ours))) == 0


def test_what_stands_in_many_rows_is_no_leak() -> None:
    """A worked example in front of every row, in training and on the bench."""
    shot = "Question: " + " ".join(WORDS[:60]) + " Answer: 3. Question: "
    training = rows([shot + text for text in texts(40, 7)])
    held = rows([shot + text for text in texts(20, 8)], "h")

    found = overlaps(training, {"bench": held})["bench"]

    assert (found.leaks, found.near) == ([], [])


def test_without_the_rows_named_nothing_leaks_and_no_other_row_goes() -> None:
    held = texts(20, 9)
    half = [" ".join(held[0].split()[:27]), " ".join(held[0].split()[14:])]
    training = rows([*texts(30, 10), held[1], *half, held[1] + "!"])

    found = overlaps(training, {"bench": rows(held, "h")})["bench"]
    kept = found.kept(training)

    assert {pair.heldout.id for pair in found.leaks} == {"h0", "h1"}
    assert len(kept) == 31, "both spellings of one row go, and one half of the other"
    assert overlaps(kept, {"bench": rows(held, "h")})["bench"].leaks == []


def test_a_row_of_many_twins_is_not_taken_for_a_form() -> None:
    """A curriculum may repeat a row as often as it likes."""
    held = texts(3, 11)

    found = overlaps(rows([held[0]] * 50 + texts(20, 12)), {"b": rows(held, "h")})["b"]

    assert len(found.leaks) == 1
    assert len(found.leaking) == 50


def test_characters_are_the_words_of_chinese() -> None:
    held = "小明有五个苹果,他又买了三个苹果,现在他一共有多少个苹果?"
    other = "小明有九个苹果,他又卖了两个苹果,现在他还剩下多少个苹果?"

    assert overlaps(rows(["请回答:" + held]), {"b": rows([held])})["b"].leaks
    assert not overlaps(rows([other]), {"b": rows([held])})["b"].pairs


def test_three_pairs_are_shown_the_most_alike_first() -> None:
    held = texts(9, 13)
    half = " ".join(held[0].split()[:30])

    found = overlaps(rows([half, *held[1:]]), {"gsm8k": rows(held, "h")})["gsm8k"]

    assert (len(found.leaks), len(found.near)) == (8, 1)
    assert [pair.share for pair in found.pairs] == [1.0] * 3


def test_short_rows_differ_by_their_brackets_too() -> None:
    held = rows(["What is (2 + 3) * 4?", "f[1] & g", "?!"], "h")

    found = overlaps(rows(["what is 2 + (3 * 4)", "f(1) & g", "f[1] | g", "..."]), {"b": held})["b"]

    assert found.pairs == []


WORD_LIST = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=40).map(" ".join)


@given(st.lists(WORD_LIST, max_size=12), st.lists(WORD_LIST, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_shares_are_those_of_the_plain_definition(training: list[str], held: list[str]) -> None:
    """No form is shared by so few rows, so that the definition is the sentence itself."""
    if _framed(training) or _framed(held):
        return
    found = overlaps(rows(training), {"bench": rows(held, "h")})["bench"]

    expected = {f"h{i}": _share(text, training, held) for i, text in enumerate(held)}
    said = {pair.heldout.id: pair.share for pair in (*found.leaks, *found.near)}
    assert said == {id_: share for id_, share in expected.items() if share >= NEAR}
    kept = found.kept(rows(training))
    assert all(
        _share(pair.heldout.prompt, [q.prompt for q in kept], held) < LEAK for pair in found.leaks
    )


def _share(text: str, training: Sequence[str], bench: Sequence[str]) -> float:
    """Slow and plain."""
    if words_of(text) in [words_of(one) for one in training]:
        return 1.0
    own = _grams(text) - _common(training) - _common(bench)
    theirs = set().union(*map(_grams, training))
    return len(own & theirs) / len(own) if own else 0.0


def _grams(text: str) -> set[tuple[str, ...]]:
    words = words_of(text)
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def _common(texts: Sequence[str]) -> set[tuple[str, ...]]:
    different = {tuple(words_of(text)): text for text in texts}.values()
    count = Counter(gram for text in different for gram in _grams(text))
    return {gram for gram, n in count.items() if n >= FEW and n > COMMON * len(texts)}


def _framed(texts: Sequence[str]) -> bool:
    """Whether beginnings or ends of six words are shared by so many that they count as a form."""
    words = {tuple(words_of(text)) for text in texts}
    ends = Counter(cut for text in words if len(text) > 6 for cut in {text[:6], text[-6:][::-1]})
    return any(n >= FEW for n in ends.values())
