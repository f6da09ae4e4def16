"""The filter of the table of runs finds what it says; nonsense is refused by name."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.errors import ConfigError
from worker.read.runs.filter import LONGEST, FilterError, matcher, terms


def holds(text: str, value: float | str | tuple[str, ...] | None) -> bool:
    """Whether a value meets the one term of a filter."""
    [term] = terms(text)
    return matcher(term, "number" if isinstance(value, float) else "text")(value)


@pytest.mark.requirement("UI-12")
@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("lr:1e-5", 1e-5, True),
        ("lr:1e-5,3e-6", 3e-6, True),
        ("gain:>3", 3.0, False),
        ("gain:>=3", 3.0, True),
        ("gain:-1..1", -0.5, True),
        ("gain:none", None, True),
        ("time:>2h", 7200.5, True),
        ("base:*qwen*", "Qwen3-4B", True),
        ("base:qwen", "Qwen3-4B", False),
        ("base:qwen*4b", "Qwen3-4B", True),
        ("-tag:night", ("night", "paper"), False),
        ('note:"two words"', "Two Words", True),
        ('note:"a, b"', "a, b", True),
    ],
)
def test_a_condition_finds_what_it_says(
    text: str, value: float | str | tuple[str, ...] | None, expected: bool
) -> None:
    """Numbers by value and unit, texts whole or with `*`, whatever their case."""
    assert holds(text, value) is expected


@pytest.mark.requirement("UI-12")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"a', "closes? it|does not close"),
        ("lr:", "half a condition"),
        (":3", "half a condition"),
        ("lr:>x", "a number, with 'x'"),
        ("lr:,,", "nothing between its commas"),
        ('""', "says nothing"),
        ("a" * (LONGEST + 1), f"at most {LONGEST}"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(text: str, said: str) -> None:
    """The term, what is wrong with it, and what to write."""
    with pytest.raises(FilterError, match=said):
        [matcher(term, "number") for term in terms(text)]


@given(st.text(max_size=LONGEST))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_filter(text: str) -> None:
    """Whatever is typed is read, or refused as a ConfigError."""
    try:
        found = [matcher(term, kind) for term in terms(text) for kind in ("number", "text")]
    except ConfigError:
        return
    for meets in found:
        for value in (None, 1.0, "one", ("one", "two"), ()):
            assert meets(value) in {True, False}


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_number_is_found_by_itself_and_by_its_sides(value: float) -> None:
    """What the table writes in full finds the same run again."""
    written = format(float(value), ".17g")

    assert holds(f"x:{written}", float(value))
    assert holds(f"x:>={written}", float(value))
    assert not holds(f"x:>{written}", float(value))
    assert not holds(f"-x:{written}", float(value))


WORDS = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=12)


@given(WORDS, WORDS, WORDS)
def test_a_star_stands_for_anything_between_what_it_divides(a: str, b: str, c: str) -> None:
    """Begin, middle and end are found in their order."""
    if "none" in {a, f"{a}{b}{c}"}:
        return
    assert holds(f"x:{a}*{c}", a + b + c)
    assert holds(f"x:*{b}*", a + b + c)
    assert holds(f"x:{a}{b}{c}", a + b + c)


def test_a_pattern_of_many_stars_takes_one_pass() -> None:
    """A regular expression would try every way to share the text among them."""
    began = time.process_time()

    assert not holds("x:" + "*a" * 90 + "*b", "a" * 20_000)

    assert time.process_time() - began < 1
