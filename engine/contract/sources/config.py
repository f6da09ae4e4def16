"""A source of rows as a config names it. Knows no file and no row."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from engine.contract.paths import located
from engine.contract.section import Section
from engine.contract.sources import generated
from engine.contract.sources.duplicates import Dedupe
from engine.contract.sources.layouts.recognised import LayoutName
from engine.contract.sources.where import parsed

NO_FILE = ("embedded:", "mixture:", generated.PREFIX)
"""How a source begins that is no file."""


class SourceConfig(Section):
    """Rows of one origin, and what of them is used."""

    source: str = "embedded:addition"
    """`embedded:addition`, `embedded:word_problems`, `reasoning_gym:chain_sum?size=500&seed=1`, or
    the rows themselves: a file (JSONL, JSON, CSV, Parquet, Arrow, also gzipped), a pattern over
    shards, or a folder; docs/data.md."""
    split: str | None = None
    """Which split of the source, where it has several: `train`. They are never joined."""
    layout: LayoutName | None = None
    """How rows are read: `verl`, `trl`, `gsm8k` and others of docs/data.md. By default told by
    their columns."""
    prompt_field: str | None = None
    """Column of the question: a text, or a chat that ends with the user's turn; `a.b` is b inside
    a. By default the layout's own."""
    answer_field: str | None = None
    """Column of the expected answer: a text, a number, or the object that the verifier reads
    (docs/verifiers.md), taken as its JSON text. What is named here is taken as it is, by default
    the layout finds it (`#### 18` is 18)."""
    solution_field: str | None = None
    """Column of a worked answer; rows may go without (see `format.demonstration`)."""
    id_field: str | None = None
    """Column of a row's stable id, a text or a whole number; a row without one, or with an empty
    one, is named by its line number."""
    bad_rows: Literal["refuse", "drop"] = "refuse"
    """What becomes of a source with rows that cannot be read: refused with their lines, or used
    without them."""
    where: str | None = None
    """Which rows are used: `level >= 3 and type in [Algebra, Geometry]`, `extra_info.level in
    3..5`; ranges include their ends, and `Level 3` is the number 3. docs/data.md."""
    dedupe: Dedupe = "exact"
    """When a row repeats an earlier one and is left out: the same question and answer to the letter
    (`exact`), but for case, white space and marks at the end (`normalized`), or by 0.8 of its
    13-grams beside the same answer (`n-gram`)."""
    conflicts: Literal["refuse", "keep"] = "refuse"
    """What becomes of a row that asks the same as an earlier one and has another answer: it is a
    bad row, or used like any other."""
    shuffle: int | None = Field(None, ge=0, lt=2**31)
    """Seed of a shuffle of the rows, before `limit`; without one they stay in order."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many rows."""

    @field_validator("source")
    @classmethod
    def _absolute(cls, source: str) -> str:
        return source if source.startswith(NO_FILE) else str(located(source))

    @field_validator("where")
    @classmethod
    def _condition(cls, where: str | None) -> str | None:
        if where is not None:
            parsed(where)
        return where
