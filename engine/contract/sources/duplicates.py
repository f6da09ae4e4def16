"""Rows that are there twice: the same question with the same answer is one row, with another
answer a contradiction.

`n-gram` takes a row for a repetition of earlier ones with its answer when they have 0.8 of its
13-grams, those of more than a twentieth of all rows (templates, worked shots) left out; under 13
words the whole text counts. Keeps hashes, no text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from engine.contract.asked import asked
from engine.contract.sources.bad_rows import BadRowError

Dedupe = Literal["exact", "normalized", "n-gram", "off"]

WORDS = 13
"""Of an n-gram."""
SAME = 0.8
"""Share of a row's n-grams from which it repeats others."""
COMMON = 0.05
"""Share of the rows from which an n-gram is part of a template."""
_LOOKED_AT = 2_000
"""Rows at least, evenly spaced, that tell which n-grams are part of a template."""
_BITS = 64


class Duplicates:
    """Asked about each row once, in order. Keeps some hundred bytes of a row, `n-gram` as many of
    each of its words.
    """

    def __init__(
        self, how: Dedupe, *, refuse_conflicts: bool, place_of: Callable[[int], str]
    ) -> None:
        self._how, self._refuse_conflicts = how, refuse_conflicts
        self._place_of = place_of
        self._first: dict[int, int] = {}
        """By question the number of its first row, and behind it that row's answer in 64 bits."""
        self._pairs: set[int] = set()
        """Of questions with several answers, all but the first."""
        self._grams: set[int] = set()
        self._rows_with: Counter[int] = Counter()
        self._rows = 0
        self.count = 0
        """Rows that repeated one."""

    @property
    def looks_first(self) -> bool:
        """Whether `learn` wants to see every row before the first is asked about."""
        return self._how == "n-gram"

    def learn(self, prompts: Iterable[str]) -> None:
        """Which n-grams are part of a template."""
        sample = _evenly(prompts)
        self._rows = len(sample)
        for prompt in sample:
            self._rows_with.update(set(_grams(prompt)))

    def repeats(self, prompt: str, answer: str, number: int) -> bool:
        """Whether an earlier row is the same. Raises BadRowError for another answer to the same
        question, with the place of that row. `number`: of this one in the source.
        """
        question = _digest(prompt if self._how in {"exact", "off"} else asked(prompt))
        gold = _digest(" ".join(answer.split()))
        first, known = divmod(self._first.setdefault(question, number << _BITS | gold), 1 << _BITS)
        if known != gold and self._refuse_conflicts:
            raise BadRowError(
                f"asks the same as {self._place_of(first)} and has another answer",
                "correct one of them, or set data.conflicts: keep",
            )
        if self._how == "off":
            return False
        again = first != number and (known == gold or self._known(hash((question, gold))))
        again = again or (self._how == "n-gram" and self._is_near(prompt, gold))
        self.count += again
        return again

    def forget(self) -> None:
        """After the last row: only the count is left."""
        self._first.clear()
        for kept in (self._pairs, self._grams, self._rows_with):
            kept.clear()

    def said(self) -> str:
        """What was left out, in a sentence; empty where nothing was."""
        if not self.count:
            return ""
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"left {rows} out that repeat an earlier one (dedupe: {self._how})"

    def _known(self, pair: int) -> bool:
        if pair in self._pairs:
            return True
        self._pairs.add(pair)
        return False

    def _is_near(self, prompt: str, gold: int) -> bool:
        # at least two rows have what repeats: in a small source that is no template
        most = max(COMMON * self._rows, 2)
        own = [gram ^ gold for gram in _grams(prompt) if self._rows_with[gram] <= most]
        near = bool(own) and sum(one in self._grams for one in own) >= SAME * len(own)
        if not near:
            self._grams.update(own)
        return near


def _evenly(prompts: Iterable[str]) -> list[str]:
    """All of them, of many every so-manieth: fewer than twice `_LOOKED_AT`, none else kept."""
    sample: list[str] = []
    every = 1
    for place, prompt in enumerate(prompts):
        if place % every == 0:
            sample.append(prompt)
        if len(sample) == 2 * _LOOKED_AT:
            sample, every = sample[::2], 2 * every
    return sample


def _grams(prompt: str) -> Iterator[int]:
    """Each as its hash, of this process alone; none of a text under 13 words."""
    words = asked(prompt).split()
    return map(hash, zip(*(words[start:] for start in range(WORDS)), strict=False))


def _digest(text: str) -> int:
    found = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=_BITS // 8).digest()
    return int.from_bytes(found)
