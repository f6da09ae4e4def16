"""Which runs are demonstrations: their model or their data are made on the spot.

They show that the product works and are no result of anybody's: they never lead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "embedded:"


def is_demo(config: Mapping[str, Any]) -> bool:
    """Whether a resolved config of any kind names something embedded.

    >>> is_demo({"base": "embedded:qwen3-tiny"}), is_demo({"model": {"path": "/m"}, "n": [1]})
    (True, False)
    >>> is_demo({"data": {"source": "/rows.jsonl"}, "prompting": {"system": "embedded: yes"}})
    False
    >>> is_demo({"base": "/m", "data": {"source": "embedded:addition"}, "benches": [{"name": "b"}]})
    False
    """
    if config.get("benches"):  # its rows are asked instead of `data`
        config = {name: value for name, value in config.items() if name != "data"}
    return any(
        is_demo(value)
        if isinstance(value, Mapping)
        else isinstance(value, str) and value.startswith(PREFIX) and not set(value) & set(" \n")
        for value in config.values()
    )
