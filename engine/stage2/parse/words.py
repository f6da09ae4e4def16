"""Words: a text's token ids, put together from those of its words, each encoded once and kept.

Most of a payload is said again and again: the keys, the separators, and the words of a language.
A tokenizer whose pre-tokenizer always cuts between an ASCII letter and an ASCII character that is
none makes the same tokens of a text as of its chunks, cut there and around the coord tokens. Which
tokenizers do is decided by reading their parts; any other is left to encode whole texts.
Knows no JSON and no payload.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from engine.contract.stage2 import coords

_ROOM = 300_000
"""Characters of chunks to keep before starting over: some 43,000 words, 8 MB."""

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTTING_PATTERNS = frozenset(
    {
        # Qwen2 to Qwen3-VL
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+{_REST}",
        # Llama 3
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+{_REST}",
        # Qwen3.5
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+{_REST}",
    }
)
"""Pre-tokenizers that look at no character before the one they are at, and whose every match has
its letters at its end: behind an ASCII letter comes a letter, a combining mark, or a cut."""

_COORD = r"\|coord_(?:0|[1-9][0-9]{0,2})\|>"
"""Of a coord token, what follows its `<`."""

_BETWEEN = coords.token(0)
"""Stands in no chunk, and parts those that are encoded together."""


class Words:
    """Remembers the ids of chunks. Only for a tokenizer that `cuts_behind_words` holds of."""

    def __init__(
        self, backend: Tokenizer, coord_ids: Sequence[int], spell: Callable[[Iterable[int]], bytes]
    ) -> None:
        self._backend = backend
        self._spell = spell
        self._coords = {coords.token(k): (id_,) for k, id_ in enumerate(coord_ids)} | {"": ()}
        self._known: dict[str, tuple[int, ...]] = dict(self._coords)
        self._kept = 0
        added = {token.content for token in backend.get_added_tokens_decoder().values()}
        self._others = frozenset(added.difference(self._coords))
        self._chunks = _chunk_pattern(self._others).findall
        self._composes = backend.normalizer is not None

    def ids(self, text: str) -> tuple[int, ...] | None:
        """Token ids whose pieces are exactly `text`, the same as of the whole text encoded.

        None where the tokenizer has none, and where a special token other than a coord token
        stands in the text: what that does to its neighbours is the tokenizer's business.
        """
        if self._composes and not unicodedata.is_normalized("NFC", text):
            return None
        chunks = self._chunks(text)
        known = self._known
        new = set(chunks).difference(known)
        if new and not self._learn(new, known):
            return None
        return tuple(itertools.chain.from_iterable(map(known.__getitem__, chunks)))

    def _learn(self, chunks: set[str], known: dict[str, tuple[int, ...]]) -> bool:
        """Whether the tokenizer writes all `chunks` exactly; they are in `known` from then on."""
        if not self._others.isdisjoint(chunks):
            return False
        texts = list(chunks)
        joined = _BETWEEN.join(texts)  # half the time of a call with many texts
        (encoded,) = self._backend.encode_batch_fast([joined], add_special_tokens=False)
        ids_of_each = _split(encoded.ids, *self._coords[_BETWEEN])
        if len(ids_of_each) != len(texts) or self._spell(encoded.ids) != joined.encode():
            return False
        known.update(zip(texts, ids_of_each, strict=True))
        self._kept += sum(map(len, texts))
        if self._kept > _ROOM:  # the caller still reads the old ones
            self._known, self._kept = dict(self._coords), 0
        return True


def _split(ids: Sequence[int], separator: int) -> list[tuple[int, ...]]:
    """What stands before, between and behind the separators."""
    found = []
    start = 0
    for _ in range(ids.count(separator)):
        end = ids.index(separator, start)
        found.append(tuple(ids[start:end]))
        start = end + 1
    return [*found, tuple(ids[start:])]


def cuts_behind_words(backend: Tokenizer) -> bool:
    """Whether `Words` says of every text what the tokenizer says of it."""
    added = backend.get_added_tokens_decoder().values()
    return (
        _state(backend.normalizer).get("type", "NFC") == "NFC"
        and _cuts(_state(backend.pre_tokenizer))
        and not getattr(backend.model, "dropout", None)
        and all(map(_is_plain, added))
    )


def _cuts(pre_tokenizer: Mapping[str, Any]) -> bool:
    """Byte-level, behind the GPT-2 pattern that is built in or one of `CUTTING_PATTERNS`."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return True
        case {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": pattern},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return pattern in CUTTING_PATTERNS
    return False


def _is_plain(token: AddedToken) -> bool:
    """A coord token that leaves its neighbours alone, or another that begins with `<`."""
    if coords.bin_of(token.content) is not None:
        return not (token.lstrip or token.rstrip or token.single_word)
    begins_apart = token.content.startswith("<") and not re.match(f"<{_COORD}", token.content)
    return begins_apart and (token.content.isascii() or not token.normalized)


def _state(part: Any) -> dict[str, Any]:
    """What a part of a tokenizer is made of; nothing for a part that it does not have."""
    return json.loads(part.__getstate__()) if part is not None else {}


def _chunk_pattern(others: Iterable[str]) -> re.Pattern[str]:
    """A coord token, another added token, or text up to behind a word (or up to such a token)."""
    longest_first = sorted(others, key=len, reverse=True)
    behind = "|".join([_COORD, *(re.escape(token[1:]) for token in longest_first)])
    no_letters = rf"[^A-Za-z<]*+(?:<(?!{behind})[^A-Za-z<]*+)*+"
    word = rf"{no_letters}[A-Za-z]*+"
    # the lookahead: an ASCII letter before another character is no place to cut, as in naïve
    return re.compile(rf"<(?:{behind})|{word}(?:(?=[^\x00-\x7f]){word})*+")
