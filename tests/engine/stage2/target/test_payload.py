"""Payload and pieces: canonical JSON byte for byte, in every tokenizer family, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2 import coords
from engine.stage2.parse.parser import parse
from engine.stage2.parse.pieces import TokenizerError, TokenPieces
from engine.stage2.target.payload import PayloadError, encode, render
from tests.engine.stage2.families import FAMILIES, byte_level

SOME = settings(max_examples=150, deadline=None, derandomize=True, database=None)

AWKWARD = st.sampled_from(
    [
        '"',
        "\\",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "object_7",
        '"object_1": {',
        "😀",
        "e\u0301",
        "\n",
        "\u2028",
        "<|coord_5|>",
        "<|",
        "\x00",
        "猫",
        "ﬁ",
        "'",
        "`",
    ]
)
DESCS = (
    st.lists(AWKWARD | st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=6)
    .map("".join)
    .filter(lambda text: text.strip() and "<|im_" not in text and "<|end" not in text)
)
BOXES = st.tuples(*[st.integers(0, 999)] * 4).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)
OBJECTS = st.lists(st.builds(GTObject, DESCS, BOXES), max_size=4)


@pytest.mark.requirement("AB-11")
@pytest.mark.parametrize("family", FAMILIES)
@SOME
@given(objects=OBJECTS)
def test_any_payload_comes_back_from_its_tokens(family: str, objects: list[GTObject]) -> None:
    """payload → tokens → parse gives the objects back, whatever their descriptions hold."""
    pieces = FAMILIES[family]()

    ids = encode(pieces, objects)
    parsed = parse([*ids, pieces.end_id], pieces)

    assert b"".join(pieces.of_all(ids)) == render(objects).text.encode()
    assert [(p.desc, p.box) for p in parsed.predictions] == [(o.desc, o.box) for o in objects]
    assert (parsed.invalid, parsed.truncated, parsed.drops.total()) == (False, False, 0)
    assert parsed.max_index == len(objects)


def test_the_payload_is_byte_exact() -> None:
    """Separators `, ` and `: `, quoted coord tokens, non-ASCII kept."""
    objects = [GTObject("Bär", (0, 1, 22, 999)), GTObject('a "b"', (5, 5, 5, 5))]

    assert render(objects).text == (
        '{"object_1": {"desc": "Bär", "bbox_2d": '
        '["<|coord_0|>", "<|coord_1|>", "<|coord_22|>", "<|coord_999|>"]}, '
        '"object_2": {"desc": "a \\"b\\"", "bbox_2d": '
        '["<|coord_5|>", "<|coord_5|>", "<|coord_5|>", "<|coord_5|>"]}}'
    )
    assert render([]).text == "{}"


@SOME
@given(objects=OBJECTS)
def test_the_payload_is_what_json_dumps_writes(objects: list[GTObject]) -> None:
    """The canonical form is the standard library's, with its default separators."""
    value = {
        f"object_{n}": {"desc": o.desc, "bbox_2d": [coords.token(k) for k in o.box]}
        for n, o in enumerate(objects, 1)
    }

    assert render(objects).text == json.dumps(value, ensure_ascii=False)


@SOME
@given(objects=OBJECTS)
def test_marks_cover_the_payload_without_gap_or_overlap(objects: list[GTObject]) -> None:
    """Every byte has one meaning; the marked descriptions and coordinates are the objects'."""
    marked = render(objects)
    text = marked.text.encode()

    assert [m.start for m in marked.marks] == [0, *(m.end for m in marked.marks[:-1])]
    assert marked.marks[-1].end == len(text)
    said = [text[m.start : m.end].decode() for m in marked.marks if m.part == "desc"]
    assert [json.loads(f'"{desc}"') for desc in said] == [o.desc for o in objects]
    bins = [text[m.start : m.end].decode() for m in marked.marks if m.part == "coord"]
    assert bins == [coords.token(k) for o in objects for k in o.box]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_coord_is_one_token(family: str) -> None:
    """Four coord tokens an object, found by id."""
    pieces = FAMILIES[family]()

    ids = encode(pieces, [GTObject("cat", (1, 20, 300, 999))])

    assert [pieces.coord_bins[i] for i in ids if i in pieces.coord_bins] == [1, 20, 300, 999]


def test_a_special_token_inside_a_description_is_refused() -> None:
    """It would be fed to the model as the special token, not as text."""
    with pytest.raises(PayloadError, match=r"<\|image_pad\|>"):
        encode(byte_level(), [GTObject("a <|image_pad|> b", (0, 0, 1, 1))])


@pytest.mark.parametrize("family", FAMILIES)
@SOME
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_written_exactly(family: str, text: str) -> None:
    """No normalisation and no space in front, whatever the family does by default."""
    pieces = FAMILIES[family]()

    assert b"".join(pieces.of_all(pieces.encode(text))) == text.encode()


def test_pieces_agree_with_the_tokenizers_own_decoding() -> None:
    """The bytes of all tokens together are what the library decodes."""
    tokenizer = Tokenizer.from_str(byte_level()._backend.to_str())
    pieces = TokenPieces(tokenizer)

    for token_id in range(tokenizer.get_vocab_size()):
        mine = pieces.of(token_id).decode(errors="replace")
        assert mine == tokenizer.decode([token_id], skip_special_tokens=False)


def test_an_unknown_id_has_no_bytes() -> None:
    """A padded embedding row may be sampled; it says nothing."""
    assert byte_level().of_all([-1, 10**6]) == [b"", b""]


def test_a_truncating_tokenizer_does_not_truncate_us() -> None:
    """The caller's last batch call may have left truncation and padding on."""
    tokenizer = Tokenizer.from_str(byte_level()._backend.to_str())
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50)

    pieces = TokenPieces(tokenizer)

    assert b"".join(pieces.of_all(pieces.encode("a long black cat"))) == b"a long black cat"


def _word_level(*tokens: str) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(["<unk>", *tokens])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def test_a_tokenizer_without_coord_tokens_is_refused() -> None:
    """The message names the first one missing."""
    with pytest.raises(TokenizerError, match=r"<\|coord_0\|>"):
        TokenPieces(_word_level("a"))


def test_a_tokenizer_that_splits_coord_tokens_is_refused() -> None:
    """They must be special tokens, not words."""
    tokens = [*map(chr, range(32, 127)), *(coords.token(k) for k in range(1000)), "<|im_end|>"]
    with pytest.raises(TokenizerError, match="splits or merges coord tokens"):
        TokenPieces(_word_level(*tokens))


def test_a_tokenizer_that_loses_text_is_refused() -> None:
    """WordPiece cannot give back the spaces it dropped."""
    tokenizer = _word_level("a")
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(TokenizerError, match="WordPiece"):
        TokenPieces(tokenizer)


def test_something_without_a_fast_backend_is_refused() -> None:
    """A slow tokenizer has no pieces we can trust."""
    with pytest.raises(TokenizerError, match="fast"):
        TokenPieces(object())


def test_a_transformers_tokenizer_is_taken_by_its_backend() -> None:
    """The object a trainer holds gives the same pieces as its backend."""
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(byte_level()._backend.to_str())
    )
    objects = [GTObject("a black cat 😀", (1, 2, 3, 4))]

    assert encode(TokenPieces(wrapped), objects) == encode(byte_level(), objects)
    assert encode(TokenPieces(wrapped), objects) == tuple(
        wrapped(render(objects).text, add_special_tokens=False)["input_ids"]
    )
