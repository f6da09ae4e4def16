"""How much of a bench's rows the training rows already hold, by 13-grams of words.

A held-out row leaks where training rows have 0.8 of its 13-grams; from 0.5 on it is reported. What
stands in more than 5 % of rows (a template, an instruction, worked shots) says nothing and is left
out. A row with fewer than 13 words of its own leaks where a training row is the same text. Knows no
model and no split.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

GRAM = 13
LEAK = 0.8
NEAR = 0.5
COMMON = 0.05
"""Share of rows above which a 13-gram belongs to the form, not to a question."""
FEW = 5
"""Rows at least that make something common: of ten rows one is a tenth already."""
SHOWN = 3
"""Pairs that a message shows."""

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_SIGNS = "+*/=<>^%×÷±−≤≥≠√·∙"
_HYPHEN = r"(?<![^\W\d_])-(?![^\W\d_])"
_WORD = re.compile(
    rf"[{_CJK}]|[^\W{_CJK}]+|[{_SIGNS}]|{_HYPHEN}|[^\w\s\-.,;:?!'\"`´’‘“”。，、？！；：…]"
)
"""Words, signs of arithmetic, and what else is no mark of a sentence: brackets, `&`, `$`."""
_FRAME = 6
"""Words from which on a beginning or end that many rows share is no question's own: an instruction
such as "Let's think step by step and …" may be shorter than a 13-gram."""
_LONGEST_FRAME = 256
_ASKED = 2_000
"""Rows that tell which beginnings and ends are shared."""


class Row(Protocol):
    """What is compared."""

    @property
    def id(self) -> str: ...
    @property
    def prompt(self) -> str: ...


AnyRow = TypeVar("AnyRow", bound=Row)


class Pair(NamedTuple):
    """A held-out row and the training row that has most of it."""

    heldout: Row
    training: Row
    share: float
    """Of the held-out row's 13-grams that training rows have, all together."""


@dataclass(frozen=True)
class Overlap:
    """What of one bench stands in the training rows."""

    rows: int
    """Of the bench."""
    leaks: Sequence[Pair]
    """Rows that training rows have, the most alike first."""
    near: Sequence[Pair]
    """Rows between the two bounds."""
    training: int
    """Training rows that were looked at."""
    leaking: frozenset[int] = field(default=frozenset(), repr=False)
    """Places of the training rows without which no row of the bench leaks."""

    @property
    def pairs(self) -> Sequence[Pair]:
        """Three to show: the most alike."""
        return [*self.leaks, *self.near][:SHOWN]

    def kept(self, training: Sequence[AnyRow]) -> list[AnyRow]:
        """The training rows that leak nothing; they must be those that were looked at."""
        assert len(training) == self.training
        return [row for place, row in enumerate(training) if place not in self.leaking]


def overlaps(training: Sequence[Row], benches: Mapping[str, Sequence[Row]]) -> dict[str, Overlap]:
    """Every bench against the training rows, which are read once; kept is what benches hold."""
    indexed = {name: _Bench(rows) for name, rows in benches.items()}
    found = _Found(most=_common_above(len(training)))
    wanted = frozenset().union(*(bench.wanted for bench in indexed.values()))
    frames = _Frames.of(training)
    seen: dict[int, int] = {}
    for place, question in enumerate(training):
        words = _read(question.prompt)
        text = hash(tuple(words))
        first = seen.setdefault(text, place)
        if first != place:
            found.twins.setdefault(first, []).append(place)
            continue
        own = frames.without(words)
        for key in {*_texts(words, own), *grams(own)} & wanted:
            found.add(key, place)
    return {name: bench.judged(found, training) for name, bench in indexed.items()}


def words_of(text: str) -> list[str]:
    """Words as they are compared: NFKC, without case and punctuation; a sign of arithmetic is one,
    and so is each character of Chinese and its kin.

    >>> words_of("What's ２-3, Tom?")
    ['what', 's', '2', '-', '3', 'tom']
    """
    return [one for one in _read(text) if _is_word(one)]


def grams(words: Sequence[str]) -> Iterator[int]:
    """The 13-grams, each as its hash."""
    words = [one for one in words if _is_word(one)]
    return map(hash, zip(*(words[i:] for i in range(GRAM)), strict=False))


def _read(text: str) -> list[str]:
    """Words and brackets: short rows may differ in those alone, as (2+3)*4 and 2+(3*4) do."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _is_word(one: str) -> bool:
    return len(one) > 1 or one.isalnum() or one in _ALSO_WORDS


_ALSO_WORDS = frozenset([*_SIGNS, "-", "_"])


def _texts(*texts: Sequence[str]) -> set[int]:
    """Whole texts, each as its hash; one without a word cannot be compared."""
    return {hash(tuple(words)) for words in texts if words}


def _common_above(rows: int) -> float:
    return max(COMMON * rows, FEW - 1)


class _Frames:
    """Beginnings and ends that many rows share."""

    def __init__(self, heads: frozenset[int], tails: frozenset[int]) -> None:
        self._heads, self._tails = heads, tails

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Frames:
        """Of rows as many as there are, an even sample of them looked at."""
        sample = rows[:: max(1, len(rows) // _ASKED)]
        texts = {tuple(_read(row.prompt)) for row in sample}
        most = _common_above(len(texts))
        return cls(_shared(texts, most), _shared([text[::-1] for text in texts], most))

    def without(self, words: Sequence[str]) -> Sequence[str]:
        """A row's own words."""
        head = _length(words, self._heads)
        left = words[head:]
        tail = _length(left[::-1], self._tails)
        own = left[: len(left) - tail]
        return own or words


def _shared(texts: Iterable[Sequence[str]], most: float) -> frozenset[int]:
    """Hashes of the beginnings that more than `most` of the texts have."""
    found: set[int] = set()
    for length in range(_FRAME, _LONGEST_FRAME):
        texts = [text for text in texts if len(text) > length]
        count = Counter(hash(tuple(text[:length])) for text in texts)
        common = {key for key, rows in count.items() if rows > most}
        if not common:
            break
        found |= common
        texts = [text for text in texts if hash(tuple(text[:length])) in common]
    return frozenset(found)


def _length(words: Sequence[str], shared: frozenset[int]) -> int:
    """Words of the longest shared beginning."""
    length = 0
    for longer in range(_FRAME, min(len(words), _LONGEST_FRAME)) if shared else ():
        if hash(tuple(words[:longer])) not in shared:
            break
        length = longer
    return length


@dataclass
class _Found:
    """Where in the training rows the benches' grams and texts stand."""

    most: float
    """More rows than this: common."""
    places: dict[int, list[int]] = field(default_factory=dict)
    twins: dict[int, list[int]] = field(default_factory=dict)
    """By the first of equal rows the others."""

    def add(self, key: int, place: int) -> None:
        held = self.places.setdefault(key, [])
        if len(held) <= self.most:
            held.append(place)

    def common(self, key: int) -> bool:
        return len(self.places.get(key, ())) > self.most


class _Bench:
    """A bench's rows by what is looked for in the training rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        frames = _Frames.of(rows)
        words = [_read(row.prompt) for row in rows]
        owns = [frames.without(each) for each in words]
        self._texts = [_texts(w, o) for w, o in zip(words, owns, strict=True)]
        self._grams = [set(grams(own)) for own in owns]
        texts = {hash(tuple(each)): place for place, each in enumerate(words)}
        count = Counter(key for place in texts.values() for key in self._grams[place])
        most = _common_above(len(texts))
        self._common = {key for key, rows in count.items() if rows > most}
        self.wanted = frozenset().union(*self._texts, *self._grams)

    def judged(self, found: _Found, training: Sequence[Row]) -> Overlap:
        pairs, leaking = [], set[int]()
        for row, texts, all_grams in zip(self._rows, self._texts, self._grams, strict=True):
            own = [k for k in all_grams if k not in self._common and not found.common(k)]
            same = {place for text in texts for place in found.places.get(text, ())}
            held = [found.places[key] for key in own if key in found.places]
            share = 1.0 if same else len(held) / len(own) if own else 0.0
            if share < NEAR:
                continue
            cover = Counter(place for places in held for place in places)
            best = min(same) if same else min(cover, key=lambda place: (-cover[place], place))
            pairs.append(Pair(row, training[best], share))
            if share >= LEAK:
                leaking |= same
                leaking |= _taken(held, len(own), leaking)
        leaking |= {twin for place in leaking for twin in found.twins.get(place, ())}
        pairs.sort(key=lambda pair: -pair.share)
        return Overlap(
            len(self._rows),
            [pair for pair in pairs if pair.share >= LEAK],
            [pair for pair in pairs if pair.share < LEAK],
            len(training),
            frozenset(leaking),
        )


def _taken(held: Sequence[Sequence[int]], grams: int, gone: set[int]) -> set[int]:
    """Training rows to be taken out beside those that are `gone`, the one with most first, until
    the others have less than a leak.
    """
    taken = set[int]()
    while True:
        left = [[p for p in places if p not in gone and p not in taken] for places in held]
        left = [places for places in left if places]
        if len(left) < LEAK * grams or not left:
            return taken
        cover = Counter(place for places in left for place in places)
        taken.add(min(cover, key=lambda place: (-cover[place], place)))
