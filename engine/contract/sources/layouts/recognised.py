"""Which layout a source's rows have, by the columns of its first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Literal

from engine.contract.sources.layouts import (
    apps,
    gsm8k,
    hendrycks_math,
    humaneval,
    ifeval,
    mbpp,
    plain,
    reasoning_gym,
    rlvr,
    trl,
    verl,
)
from engine.contract.sources.layouts.reading import Reading
from engine.contract.sources.values import Columns

LayoutName = Literal[
    "verl", "rlvr", "ifeval", "humaneval", "mbpp", "apps", "reasoning_gym", "gsm8k", "math", "trl",
    "plain",
]  # fmt: skip
_IN_ORDER: Sequence[ModuleType] = (
    verl, rlvr, ifeval, humaneval, mbpp, apps, reasoning_gym, gsm8k, hendrycks_math, trl, plain
)  # fmt: skip
_BY_NAME: Mapping[str, ModuleType] = {module.NAME: module for module in _IN_ORDER}


def recognised(row: Columns) -> Reading | None:
    """The first layout that fits; None where no column has a name that is known."""
    found = (module.recognise(row) for module in _IN_ORDER)
    return next((reading for reading in found if reading is not None), None)


def named(layout: str, row: Columns) -> Reading | None:
    """The layout of that name; None where the row lacks its columns."""
    reading: Reading | None = _BY_NAME[layout].recognise(row)
    return reading


def wants(layout: str) -> str:
    """The columns of the layout of that name, in words."""
    return str(_BY_NAME[layout].WANTS)
