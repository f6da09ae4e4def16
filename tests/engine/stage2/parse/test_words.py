"""Words: the ids of a text put together from its chunks are those of the whole text."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import Qwen2Tokenizer
from transformers.models.qwen3_5 import tokenization_qwen3_5

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2 import coords
from engine.stage2.parse import words
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.payload import PayloadError, encode
from tests.engine.stage2.families import FAMILIES, byte_level

SOME = settings(max_examples=200, deadline=None, derandomize=True, database=None)
COORDS = [coords.token(k) for k in range(coords.BIN_COUNT)]

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

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def changed(change: Callable[[Tokenizer], None]) -> Tokenizer:
    """The byte-level family with one part of it changed."""
    tokenizer = Tokenizer.from_str(byte_level()._backend.to_str())
    change(tokenizer)
    return tokenizer


def splitting(pattern: str) -> Callable[[Tokenizer], None]:
    """Set the pre-tokenizer as Qwen and Llama write it."""

    def change(tokenizer: Tokenizer) -> None:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])

    return change


@cache
def qwen_2() -> TokenPieces:
    """Transformers' own class, with coord tokens added as plain ones."""
    model = json.loads(byte_level()._backend.to_str())["model"]
    merges: Any = [tuple(pair) for pair in model["merges"]]
    tokenizer = Qwen2Tokenizer(vocab=model["vocab"], merges=merges)
    tokenizer.add_tokens(["<|im_end|>", "<|image_pad|>"], special_tokens=True)
    tokenizer.add_tokens(COORDS)
    return TokenPieces(tokenizer)


@cache
def llama_3() -> TokenPieces:
    """Digits by threes, and nothing normalised."""
    tokenizer = changed(splitting(LLAMA_3))
    tokenizer.normalizer = None
    return TokenPieces(tokenizer)


@cache
def qwen_3_5() -> TokenPieces:
    """Combining marks belong to words."""
    return TokenPieces(changed(splitting(tokenization_qwen3_5.PRETOKENIZE_REGEX)))


CUTTING = {"gpt_2": byte_level, "qwen_2": qwen_2, "llama_3": llama_3, "qwen_3_5": qwen_3_5}


@pytest.mark.parametrize("family", CUTTING)
@SOME
@given(text=TEXTS)
def test_words_put_together_are_the_tokenizers_own_ids_of_the_whole_text(
    family: str, text: str
) -> None:
    """Whatever stands in the text: coord tokens, other special tokens, marks, spaces, quotes."""
    pieces = CUTTING[family]()
    assert pieces._words is not None, "this tokenizer is one that cuts behind words"

    found = pieces._words.ids(text)

    assert found in (None, pieces._whole(text))
    assert found is None or b"".join(pieces.of_all(found)) == text.encode()


@pytest.mark.requirement("AB-11")
@pytest.mark.parametrize("family", FAMILIES)
@SOME
@given(text=TEXTS)
def test_encoding_gives_the_whole_texts_ids_wherever_they_are_exact(family: str, text: str) -> None:
    """The quick way and the slow way are one, in a family that has no quick way too."""
    pieces = FAMILIES[family]()
    whole = pieces._whole(text)

    if b"".join(pieces.of_all(whole)) == text.encode():
        assert pieces.encode(text) == whole


def test_a_payload_in_plain_letters_needs_no_whole_text() -> None:
    """Descriptions in any script, and quotes and backslashes, take the quick way."""
    for desc in ("a black cat", "naïve café", "猫と犬", 'a \\"b\\" c', "half <b>bold</b>", "don't"):
        for pieces in (byte_level(), qwen_2()):
            assert pieces._words is not None
            assert pieces._words.ids(f'{{"object_1": {{"desc": "{desc}", "bbox_2d": ["<|coord_1|>"')


@pytest.mark.parametrize("text", ["a <|image_pad|> b", "e\u0301"])
def test_what_the_tokenizer_does_to_a_whole_text_is_left_to_it(text: str) -> None:
    """A special token may take its neighbours' spaces; NFC looks across our cuts."""
    pieces = byte_level()
    assert pieces._words is not None

    assert pieces._words.ids(text) is None


def test_a_mark_that_composes_with_a_coord_tokens_last_character_is_left_to_the_tokenizer() -> None:
    """Where coord tokens are sought in the normalised text, there is none any more."""
    pieces = qwen_2()
    assert pieces._words is not None

    assert pieces.coord_ids[5] not in pieces._whole("<|coord_5|>\u0338")
    assert pieces._words.ids("<|coord_5|>\u0338") is None


def test_a_special_token_in_a_description_is_refused_on_the_quick_way_too() -> None:
    """It stands between words that are known already."""
    pieces = qwen_2()
    encode(pieces, [GTObject("a b", (0, 0, 1, 1))])

    with pytest.raises(PayloadError, match=r"<\|image_pad\|>"):
        encode(pieces, [GTObject("a <|image_pad|> b", (0, 0, 1, 1))])


def _lower(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Lowercase()


def _prefix_space(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def _no_regex(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _bracket_token(tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens(["[INST]"])


def _swallowing_token(tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens(["<|coord_5|>, "])


def _dropout(tokenizer: Tokenizer) -> None:
    assert isinstance(tokenizer.model, models.BPE)
    tokenizer.model.dropout = 0.1


@pytest.mark.parametrize(
    "change",
    [
        *(_lower, _prefix_space, _no_regex, _bracket_token, _swallowing_token, _dropout),
        splitting(r"\w+'s|\s+|\w+|[^\w\s]+"),
    ],
)
def test_a_tokenizer_not_known_to_cut_behind_words_encodes_whole_texts(
    change: Callable[[Tokenizer], None],
) -> None:
    """Normalising, a space in front, tokens of other shapes, chance, and unknown patterns."""
    assert words.cuts_behind_words(changed(lambda _: None))
    assert not words.cuts_behind_words(changed(change))


def test_a_coord_token_that_takes_spaces_encodes_whole_texts() -> None:
    """Its neighbours would not be those of a text that stands alone."""
    state = json.loads(byte_level()._backend.to_str())
    for token in state["added_tokens"]:
        token["lstrip"] = token["content"] == "<|coord_0|>"

    assert not words.cuts_behind_words(Tokenizer.from_str(json.dumps(state)))


def test_what_is_remembered_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the room is used up it starts over, and says the same as before."""
    monkeypatch.setattr(words, "_ROOM", 50)
    pieces = TokenPieces(byte_level()._backend)
    assert pieces._words is not None

    for start in range(0, 400, 8):
        text = " ".join(
            f"word{'abcdefghij'[n % 10]}x{'y' * (n % 7)}" for n in range(start, start + 8)
        )
        assert pieces._words.ids(text) == pieces._whole(text)
        assert sum(map(len, pieces._words._known)) < sum(map(len, COORDS)) + 50 + len(text)
