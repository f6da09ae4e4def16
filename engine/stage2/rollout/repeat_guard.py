"""Repeat guard: ends a rollout that repeats itself.

Looks at a growing row of tokens one by one: the same token many times in a row, a long stretch
that stood there before, or more objects than anybody asked for. Knows no model.
"""

from __future__ import annotations

import re
from collections import Counter

from engine.contract.stage2.rollout_matching import RepeatGuardConfig

_KEY = re.compile(rb'"object_[0-9]+"\s*:')
_KEY_LENGTH = 32
"""Bytes behind which a key is whole; longer ones are no key anybody would write."""


class RepeatGuard:
    """One row's guard. `feed` each token with its bytes; True from then on means: stop."""

    def __init__(self, config: RepeatGuardConfig) -> None:
        self._config = config
        self._ids: list[int] = []
        self._run = 0
        self._stretches: Counter[tuple[int, ...]] = Counter()
        self._keys = 0
        self._tail = b""
        self._tripped = False

    def feed(self, token_id: int, piece: bytes) -> bool:
        """Whether the row repeats itself, `token_id` included."""
        if not self._config.enabled or self._tripped:
            return self._tripped
        self._run = self._run + 1 if self._ids and self._ids[-1] == token_id else 1
        self._ids.append(token_id)
        repeats = self._count_stretch()
        self._count_key(piece)
        config = self._config
        self._tripped = len(self._ids) >= config.min_new_tokens and (
            self._run >= config.max_consecutive_token_repeats
            or repeats >= config.ngram_repeats
            or self._keys > config.max_object_keys
        )
        return self._tripped

    def _count_stretch(self) -> int:
        """How often the last stretch has stood there."""
        size = self._config.ngram_size
        if len(self._ids) < size:
            return 0
        stretch = tuple(self._ids[-size:])
        self._stretches[stretch] += 1
        return self._stretches[stretch]

    def _count_key(self, piece: bytes) -> None:
        self._tail += piece
        found = list(_KEY.finditer(self._tail))
        self._keys += len(found)
        self._tail = self._tail[found[-1].end() if found else 0 :][-_KEY_LENGTH:]
