"""Rows that are there twice: the same question with the same answer is one row, with another
answer a contradiction.

`n-gram` takes a row for a repetition of earlier ones with its answer when they have 0.8 of its
13-grams, those of more than a twentieth of all rows (templates, worked shots) left out; under 13
words the whole text counts. Keeps hashes, no text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
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


class Duplicates:
    """Asked about each row once, in order."""

    def __init__(self, how: Dedupe, *, refuse_conflicts: bool) -> None:
        self._how, self._refuse_conflicts = how, refuse_conflicts
        self._first: dict[bytes, tuple[bytes, str]] = {}
        """By question the answer of its first row, and where that is."""
        self._pairs: set[bytes] = set()
        self._grams: set[bytes] = set()
        self._rows_with: Counter[bytes] = Counter()
        self._rows = 0
        self.count = 0
        """Rows that repeated one."""

    @property
    def looks_first(self) -> bool:
        """Whether `learn` wants to see every row before the first is asked about."""
        return self._how == "n-gram"

    def learn(self, prompts: Iterable[str]) -> None:
        """Which n-grams are part of a template."""
        for self._rows, prompt in enumerate(prompts, 1):
            self._rows_with.update(set(_grams(prompt)))

    def repeats(self, prompt: str, answer: str, place: str) -> bool:
        """Whether an earlier row is the same. Raises BadRowError for another answer to the same
        question, named with the `place` of that row.
        """
        question = _digest(prompt if self._how in {"exact", "off"} else asked(prompt))
        gold = _digest(" ".join(answer.split()))
        known, where = self._first.setdefault(question, (gold, place))
        if known != gold and self._refuse_conflicts:
            raise BadRowError(
                f"asks the same as {where} and has another answer",
                "correct one of them, or set data.conflicts: keep",
            )
        if self._how == "off":
            return False
        again = self._known(question + gold) or (
            self._how == "n-gram" and self._is_near(prompt, gold)
        )
        self.count += again
        return again

    def said(self) -> str:
        """What was left out, in a sentence; empty where nothing was."""
        if not self.count:
            return ""
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"left {rows} out that repeat an earlier one (dedupe: {self._how})"

    def _known(self, pair: bytes) -> bool:
        if pair in self._pairs:
            return True
        self._pairs.add(pair)
        return False

    def _is_near(self, prompt: str, gold: bytes) -> bool:
        most = COMMON * self._rows
        # at least two rows have what repeats: in a small source that is no template
        own = [gram + gold for gram in _grams(prompt) if self._rows_with[gram] <= max(most, 2)]
        near = bool(own) and sum(one in self._grams for one in own) >= SAME * len(own)
        if not near:
            self._grams.update(own)
        return near


def _grams(prompt: str) -> Iterator[bytes]:
    words = asked(prompt).split()
    if len(words) < WORDS:
        return
    for start in range(len(words) - WORDS + 1):
        yield _digest(" ".join(words[start : start + WORDS]))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
