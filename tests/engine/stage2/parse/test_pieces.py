"""Text to ids: the tokenizer's own wherever they are exact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.sources.ground_truth import GTObject
from engine.stage2.target.payload import PayloadError, encode
from tests.engine.stage2.families import FAMILIES, byte_level

SOME = settings(max_examples=200, deadline=None, derandomize=True, database=None)

SAID = st.sampled_from(
    [
        *("a", "Cat", "dog", "'s", "'LL", "'\u017f", "_", "-", "12", "3", "object_7", ", ", ". "),
        *(" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\x00", '"', "\\", '{"', '"]}'),
        *("<", "|", "<|", "<|coord_", "|>", "<|coord_5|>", "<|coord_999|>", "<|coord_1000|>"),
        *("<|coord_07|>", "<|image_pad|>", "<|im_", "é", "e\u0301", "\u0301", "\u0338", "=", "ß"),
        *("猫", "😀", "\u200d", "K", "ﬁ", "²", "Ⅷ", "क्ष", "ǅ"),
    ]
)
TEXTS = st.lists(SAID | st.text(st.characters(codec="utf-8"), max_size=3), max_size=14).map("".join)


@pytest.mark.requirement("AB-11")
@pytest.mark.parametrize("family", FAMILIES)
@SOME
@given(text=TEXTS)
def test_encoding_gives_the_whole_texts_ids_wherever_they_are_exact(family: str, text: str) -> None:
    """Whatever stands in the text: coord tokens, other special tokens, marks, spaces, quotes."""
    pieces = FAMILIES[family]()
    whole = pieces._whole(text)

    if b"".join(pieces.of_all(whole)) == text.encode():
        assert pieces.encode(text) == whole


def test_a_special_token_in_a_description_is_refused() -> None:
    """It would stand for a picture's patches."""
    with pytest.raises(PayloadError, match=r"<\|image_pad\|>"):
        encode(byte_level(), [GTObject("a <|image_pad|> b", (0, 0, 1, 1))])
