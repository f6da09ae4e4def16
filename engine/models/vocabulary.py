"""Token ids that a model has an embedding for. A tokenizer may know more than its model does.

Some models come with a token or two that only their larger kin can read, so a longer tokenizer is
refused only where such a token is written. Knows no prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.contract.errors import RLLoopError


def readable(ids: Sequence[int], known: int, tokenizer: Any) -> Sequence[int]:
    """`ids` as they are. Raises RLLoopError where one is beyond the model's `known` embeddings."""
    highest = max(ids, default=0)
    if highest >= known:
        token = tokenizer.convert_ids_to_tokens(highest)
        raise RLLoopError.of(
            "base",
            None,
            f"its tokenizer writes {token!r} as token {highest}, but the model has embeddings for "
            f"{known} tokens alone",
            "use the tokenizer that the model was trained with, or resize the model's embeddings",
        )
    return ids
