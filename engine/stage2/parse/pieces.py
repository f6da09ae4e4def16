"""Token pieces: the exact bytes that each token of a tokenizer stands for.

JSON's own characters are ASCII, so a structure found over bytes is found over characters, however
a tokenizer cuts an emoji in two. Byte-level BPE and SentencePiece-style tokenizers are read from
their decoder; one that does not give a text back as it was is refused.
Knows no JSON.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from engine.contract.errors import UnfitError
from engine.contract.sources.ground_truth import STOP_TEXT
from engine.contract.stage2 import coords

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_RUN = re.compile(r"<\|coord_[0-9]+\|>|[^\x00-\x7f]+|[\x00-\x7f]+?(?=<\|coord_|[^\x00-\x7f]|\Z)")
_PLACEHOLDERS = ("<|image_pad|>", "<|video_pad|>")
"""Tokens that the model puts a picture's patches in place of, wherever they stand."""
_PROBE = '{"object_1": {"desc": "a", "bbox_2d": ["<|coord_0|>", "<|coord_999|>"]}}'


class TokenizerError(UnfitError):
    """A tokenizer that stage-2 cannot work with."""


class TokenPieces:
    """A tokenizer as two exact maps: ids → bytes, text → ids.

    Takes a Transformers tokenizer with a `backend_tokenizer`, or the `tokenizers.Tokenizer`
    itself, and keeps a copy of its own. Raises TokenizerError when a coord token or `<|im_end|>`
    is missing, or when its pieces do not add up to the text.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(backend, Tokenizer):
            raise TokenizerError(
                f"{type(tokenizer).__name__} has no fast backend; load the fast tokenizer"
            )
        self._backend = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()  # the caller's copy may still carry those of a batch call
        self._backend.no_padding()
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self._pieces = _byte_pieces(vocabulary, _decoder_steps(self._backend))
        self.coord_ids = tuple(_id_of(vocabulary, coords.token(k)) for k in range(1000))
        """Ids of the coord tokens by bin."""
        self.coord_bins: Mapping[int, int] = {id_: k for k, id_ in enumerate(self.coord_ids)}
        self.end_id = _id_of(vocabulary, STOP_TEXT)
        pad = getattr(tokenizer, "pad_token_id", None)
        self.pad_id = self.end_id if pad is None else int(pad)
        special = (i for i, t in self._backend.get_added_tokens_decoder().items() if t.special)
        self.reserved = frozenset({*special, self.end_id}.difference(self.coord_ids))
        """Special tokens that no payload may hold."""
        known = (vocabulary.get(token) for token in _PLACEHOLDERS)
        self.placeholders = frozenset(i for i in known if i is not None)
        """Tokens of pictures and videos: an answer that holds one cannot be taught as it is."""
        self._check()

    def of(self, token_id: int) -> bytes:
        """The bytes of one token; none for an id the vocabulary does not know."""
        return self._pieces.get(token_id, b"")

    def of_all(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each token, in order."""
        return [*map(self._pieces.get, ids, itertools.repeat(b""))]

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids whose pieces are exactly `text`, as it stands behind other tokens.

        The tokenizer's own way wherever that is exact. Where it is not (a space put behind each
        special token, normalisation to NFC), coord tokens, runs of ASCII and runs of other
        characters are encoded apart. Raises TokenizerError.
        """
        whole = self._exactly(text)
        if whole is not None:
            return whole
        ids: list[int] = []
        for run in _RUN.findall(text):
            found = self._exactly(run) or self.encode_bytes(run.encode())
            if found is None:
                raise TokenizerError(f"the tokenizer cannot write {run[:80]!r}; use one that can")
            ids += found
        return tuple(ids)

    def encode_bytes(self, wanted: bytes) -> tuple[int, ...] | None:
        """Ids whose pieces are exactly `wanted`, longest piece first; None when there are none."""
        table, longest = self._by_bytes
        ids: list[int] = []
        at = 0
        while at < len(wanted):
            for length in range(min(longest, len(wanted) - at), 0, -1):
                token_id = table.get(wanted[at : at + length])
                if token_id is not None:
                    ids.append(token_id)
                    at += length
                    break
            else:
                return None
        return tuple(ids)

    def retokenise(self, wanted: bytes) -> tuple[int, ...] | None:
        """Ids for the first bytes of a token that was cut; None when the vocabulary has none."""
        try:
            return self.encode(wanted.decode())
        except (UnicodeDecodeError, TokenizerError):
            return self.encode_bytes(wanted)

    def _exactly(self, text: str) -> tuple[int, ...] | None:
        """The tokenizer's own ids, without a space put in front; None unless they are `text`."""
        wanted = text.encode()
        for encode in (self._whole, self._anchored):
            ids = encode(text)
            if ids is not None and b"".join(self.of_all(ids)) == wanted:
                return ids
        return None

    def _whole(self, text: str) -> tuple[int, ...]:
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return tuple(encoding.ids)

    def _anchored(self, text: str) -> tuple[int, ...] | None:
        """Encode behind a line break and drop the break: no space is put in front of `text`."""
        ids = self._whole("\n" + text)
        head = b""
        for count, token_id in enumerate(ids, 1):
            head += self.of(token_id)
            if head in (b"\n", b" \n"):
                return ids[count:]
        return None

    @cached_property
    def _by_bytes(self) -> tuple[Mapping[bytes, int], int]:
        """Bytes → id, a written-out token before a byte token, then the smaller id."""
        usable = [
            (len(piece) == 1 and _is_byte_token(self._backend.id_to_token(i)), i, piece)
            for i, piece in self._pieces.items()
            if piece and i not in self.reserved
        ]
        table: dict[bytes, int] = {}
        for _, token_id, piece in sorted(usable):
            table.setdefault(piece, token_id)
        return table, max(map(len, table))

    def _check(self) -> None:
        ids = self.encode(_PROBE)
        captured = [self.coord_bins[i] for i in ids if i in self.coord_bins]
        if captured != [0, coords.LAST_BIN]:
            raise TokenizerError(
                "the tokenizer splits or merges coord tokens; add <|coord_0|>…<|coord_999|> "
                "as special tokens"
            )


def _id_of(vocabulary: Mapping[str, int], token: str) -> int:
    if token not in vocabulary:
        raise TokenizerError(f"the tokenizer has no token {token}; add it and resize the model")
    return vocabulary[token]


def _is_byte_token(token: str | None) -> bool:
    return token is not None and _BYTE_TOKEN.fullmatch(token) is not None


def _decoder_steps(backend: Tokenizer) -> list[dict[str, Any]]:
    """The decoder as a flat list of steps. Raises TokenizerError for one that loses text."""
    decoder: Any = backend.decoder
    state: Any = json.loads(decoder.__getstate__()) if decoder else {"type": "none"}
    steps: list[dict[str, Any]] = state["decoders"] if state["type"] == "Sequence" else [state]
    for step in steps:
        exact = step["type"] in {"ByteLevel", "Metaspace", "ByteFallback", "Fuse"}
        exact |= step["type"] == "Replace" and "String" in step["pattern"]
        # the space in front of a whole text: an assistant turn stands behind its prompt
        exact |= step["type"] == "Strip" and (step["start"], step["stop"]) == (1, 0)
        if not exact:
            raise TokenizerError(
                f"a tokenizer with the decoder {step['type']} does not give back the text it was "
                "given; use a byte-level BPE or SentencePiece tokenizer"
            )
    return steps


def _byte_pieces(
    vocabulary: Mapping[str, int], steps: Sequence[dict[str, Any]]
) -> Mapping[int, bytes]:
    return {token_id: _piece(token, steps) for token, token_id in vocabulary.items()}


def _piece(token: str, steps: Sequence[dict[str, Any]]) -> bytes:
    for step in steps:
        match step["type"]:
            case "Replace":
                token = token.replace(step["pattern"]["String"], step["content"])
            case "Metaspace":
                token = token.replace(step["replacement"], " ")
            case "ByteFallback" if found := _BYTE_TOKEN.fullmatch(token):
                return bytes([int(found[1], 16)])
            case "ByteLevel" if all(character in _BYTE_OF for character in token):
                return bytes(_BYTE_OF[character] for character in token)
    return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + rank): byte for rank, byte in enumerate(others)
    }


_BYTE_OF = _byte_alphabet()
