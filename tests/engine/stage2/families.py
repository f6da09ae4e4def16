"""Tokenizer families, built on the spot: byte-level BPE, SentencePiece-like, and odd ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from functools import cache

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from engine.contract.stage2 import coords
from engine.stage2.parse.pieces import TokenPieces

_CORPUS = [
    '{"object_1": {"desc": "black cat", "bbox_2d": ["',
    '"]}, "object_2": {"desc": "a red car on the left", "bbox_2d": ["',
    '"]}}',
    "Here are the objects: person, dog, traffic light, wooden chair",
    "der große Bär läuft über die Straße 猫 犬 😀 naïve café",
] * 4


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _with_byte_fallback(tokenizer: Tokenizer) -> Tokenizer:
    """The trained byte tokens as plain vocabulary, as in a converted SentencePiece model."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = []
    state["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(state))


def _with_specials(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>"])
    tokenizer.add_special_tokens([coords.token(k) for k in range(1000)])
    return tokenizer


@cache
def byte_level() -> TokenPieces:
    """Qwen's family: byte-level BPE behind an NFC normaliser."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return TokenPieces(_with_specials(tokenizer))


@cache
def sentencepiece() -> TokenPieces:
    """Llama's family: BPE over characters with byte fallback, a space in front of each text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<unk>", *_BYTES],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return TokenPieces(_with_specials(_with_byte_fallback(tokenizer)))


@cache
def unigram() -> TokenPieces:
    """T5's family: a Unigram model over Metaspace words, with byte tokens for the rest."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    trainer = trainers.UnigramTrainer(
        vocab_size=400,
        special_tokens=["<unk>", *_BYTES],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return TokenPieces(_with_specials(_with_byte_fallback(tokenizer)))


FUSED = (
    *('"]}', '"]}, "', '"]}}', "]}", "}}", "}}<|im_end|>", "}<|im_end|>", 'cat"', '": {"', '["'),
    *('", "', '": "', "x}y{", "é}", "}é", "object_", "desc", "bbox_2d", '"bbox_2d": [', "<|", "|>"),
)
"""Tokens that glue a brace to its neighbours; a rollout may use them, plain encoding does not."""


def words(tokens: Iterable[str], alphabet: str) -> TokenPieces:
    """One token a character of `alphabet`, and beside them `tokens`, which encoding never makes."""
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(["<unk>", *alphabet, *tokens]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return TokenPieces(_with_specials(tokenizer))


ASCII = "".join(map(chr, range(0x20, 0x7F)))


@cache
def characters() -> TokenPieces:
    """One token a character, and beside them the fused tokens of FUSED."""
    return words(FUSED, ASCII + "éß\n\t")


FAMILIES: dict[str, Callable[[], TokenPieces]] = {
    "byte_level": byte_level,
    "sentencepiece": sentencepiece,
    "unigram": unigram,
}


def spell(pieces: TokenPieces, *texts: str) -> list[int]:
    """Token ids of texts, each one token if the vocabulary has it, else encoded on its own."""
    by_piece = {pieces.of(i): i for i in range(4096) if pieces.of(i)}
    ids = ([by_piece[t.encode()]] if t.encode() in by_piece else pieces.encode(t) for t in texts)
    return list(itertools.chain.from_iterable(ids))
