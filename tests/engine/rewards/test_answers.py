"""Right answers are paid in any spelling, wrong ones in none: our own verifiers of numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.contract.golds.quantity import read, same
from engine.rewards.judgement import Verdict
from engine.rewards.verifiers import gsm8k_any, gsm8k_last_number, math
from tests.engine.rewards.answers import (
    RIGHT_MATHS,
    RIGHT_NUMBERS,
    WRONG_MATHS,
    WRONG_NUMBERS,
    Pair,
)

OURS = [math.verify, gsm8k_any.verify, gsm8k_last_number.verify]


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("verify", OURS, ids=["math", "gsm8k_any", "gsm8k_last_number"])
@pytest.mark.parametrize("pair", RIGHT_NUMBERS, ids=str)
def test_a_right_number_is_paid_however_it_is_written(
    verify: Callable[[str, str], Verdict], pair: Pair
) -> None:
    """Spellings, dress, units, percent, and an answer that is stated after all."""
    gold, completion = pair

    assert verify(completion, gold).reward == 1.0


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("verify", OURS, ids=["math", "gsm8k_any", "gsm8k_last_number"])
@pytest.mark.parametrize("pair", WRONG_NUMBERS, ids=str)
def test_a_number_that_is_not_stated_or_another_one_is_not_paid(
    verify: Callable[[str, str], Verdict], pair: Pair
) -> None:
    """Denied, left open, asked, of another sign, value or unit."""
    gold, completion = pair

    assert verify(completion, gold).reward == 0.0


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("pair", RIGHT_MATHS, ids=str)
def test_math_pays_what_is_equal(pair: Pair) -> None:
    """Words, tuples, sets, intervals, matrices, formulas."""
    gold, completion = pair

    assert math.verify(completion, gold).reward == 1.0


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("pair", WRONG_MATHS, ids=str)
def test_math_pays_nothing_that_differs(pair: Pair) -> None:
    """The same kinds, one thing changed."""
    gold, completion = pair

    assert math.verify(completion, gold).reward == 0.0


def test_the_tables_are_long_and_nothing_stands_in_both() -> None:
    """Sixty right and sixty wrong ones for `math` at least."""
    right, wrong = RIGHT_NUMBERS + RIGHT_MATHS, WRONG_NUMBERS + WRONG_MATHS

    assert min(len(set(right)), len(set(wrong))) >= 60
    assert not set(right) & set(wrong)


decimals = st.builds(
    lambda n, p: Fraction(n, 10**p), st.integers(-(10**9), 10**9), st.integers(0, 6)
)
spelled = st.sampled_from(range(9))


def spelling(value: Fraction, way: int) -> str:
    """The same number, written another way."""
    sign, size = ("-" if value < 0 else ""), abs(value)
    places = next(p for p in range(10) if (size * 10**p).denominator == 1)
    plain = f"{size.numerator // size.denominator}"
    digits = f"{(size * 10**places).numerator:0{places + 1}d}"
    after = f".{digits[-places:]}" if places else ""
    mantissa = f"{digits[0]}.{digits[1:] or '0'}e{len(digits) - 1 - places}"
    whole, rest = divmod(size.numerator, size.denominator)
    mixed = f"{whole} {rest}/{size.denominator}" if whole and rest else f"{plain}{after}"
    return (
        sign
        + [
            f"{plain}{after}",
            f"{whole:,}{after}",
            f"{whole:,}".replace(",", " ") + after,
            f"{whole:,}".replace(",", "{,}") + after,
            mantissa,
            f"{size.numerator * 3}/{size.denominator * 3}",
            rf"\frac{{{size.numerator}}}{{{size.denominator}}}",
            mixed,
            f"{plain}{after or '.'}0",
        ][way]
    )


@settings(max_examples=300, deadline=None)
@given(decimals, spelled, spelled)
def test_equal_numbers_are_equal_in_any_two_spellings(
    value: Fraction, one: int, other: int
) -> None:
    """Read exactly: no rounding on the way."""
    gold, answer = spelling(value, one), spelling(value, other)

    assert math.quick(f"So $\\boxed{{{answer}}}$.", gold) == Verdict.of(True, answer)
    assert gsm8k_any.verify(f"\\boxed{{{answer}}}", gold).reward == 1.0


@settings(max_examples=300, deadline=None)
@given(decimals, decimals, spelled, spelled)
def test_different_numbers_are_equal_in_no_spelling(
    value: Fraction, changed: Fraction, one: int, other: int
) -> None:
    """Nor a number and one beside it, or its negative."""
    gold = spelling(value, one)
    for wrong in {changed, value + Fraction(1, 10**6), value + 1, -value, value * 10} - {value}:
        answer = spelling(wrong, other)

        verdict = math.quick(f"So $\\boxed{{{answer}}}$.", gold)

        assert verdict is not None
        assert verdict.reward == 0.0
        assert gsm8k_any.verify(f"The answer is {answer}.", gold).reward == 0.0


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_decimal_stands_for_a_fraction_without_end_only_as_its_rounding(
    above: int, below: int
) -> None:
    """To six significant digits at least."""
    value = Fraction(above, below)
    assume(any(below // value.denominator and value.denominator % p == 0 for p in (3, 7, 11, 13)))
    gold = read(f"{above}/{below}")
    rounded, off = read(f"{above / below:.12f}"), read(f"{above / below + 1e-6:.12f}")
    assert gold is not None
    assert rounded is not None
    assert off is not None

    assert same(gold, rounded) == (rounded.digits >= 6)
    assert not same(gold, off)
