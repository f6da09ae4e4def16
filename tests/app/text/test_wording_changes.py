"""Two texts side by side: which words each has alone."""

from __future__ import annotations

import pytest

from app.text.wording_changes import MOST_WORDS, Stretch, changes


def alone(side: list[Stretch]) -> list[str]:
    return [one.text for one in side if one.changed]


@pytest.mark.requirement("UI-14")
def test_each_text_keeps_every_letter_and_marks_its_own_words() -> None:
    """What both have is not marked."""
    first, second = "so it is 7.\nDone", "so it was 8.\nDone"

    sides = changes(first, second)

    assert sides is not None
    assert ["".join(one.text for one in side) for side in sides] == [first, second]
    assert (alone(sides[0]), alone(sides[1])) == (["is", "7"], ["was", "8"])


@pytest.mark.requirement("UI-14")
def test_long_texts_are_compared_by_line_and_longer_ones_not_at_all() -> None:
    """The time of a comparison is bounded."""
    lines = "".join(f"line {i} of many words\n" for i in range(MOST_WORDS // 4))

    by_line = changes(lines, lines.replace("line 7 of", "line seven of"))

    assert by_line is not None
    assert alone(by_line[1]) == ["line seven of many words\n"]
    assert changes("a\n" * (MOST_WORDS + 1), "b\n") is None


def test_markup_in_a_text_is_escaped() -> None:
    """As everywhere."""
    assert Stretch("<b>\u202e", changed=True).html.startswith("&lt;b&gt;<span")
