"""Section `data`: one source of questions, or a mixture of several.

Each source of a mixture has its own held-out rows and its own line in every gate and report, so
that an average never hides a loss.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from engine.contract.paths import located
from engine.contract.section import refusal
from engine.contract.sources.config import SourceConfig
from engine.contract.templates.table import template_problem
from engine.contract.verifiers import VerifierName

MIXTURE = "mixture:"
"""How `data.source` of a mixture begins; the names of its sources follow."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_RESERVED = frozenset({"select", "report", "train", "own", "pool"})


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name files and series; use letters, digits, '.', '_' and '-', "
            "40 at most"
        )
    if name in _RESERVED:
        raise ValueError(f"{name!r} is the name of rows of the run's own; choose another one")
    return name


def _checked_template(name: str | None) -> str | None:
    problem = None if name is None else template_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


Name = Annotated[str, AfterValidator(_checked_name)]
"""Of a source or bench: part of file names and series."""
TemplateName = Annotated[str | None, AfterValidator(_checked_template)]


class JudgedSource(SourceConfig):
    """A source with a name, and who judges its rows."""

    name: Name
    """What it is called in series, tables and reports."""
    source: str
    """As `data.source`."""
    verifier: VerifierName | None = None
    """Who judges its rows; without one the run's `verifier` or `rewards`."""
    verifier_field: str | None = None
    """Key of the row that names its verifier, instead of `verifier`: `dataset` in rows of the RLVR
    mix. Capital letters do not count."""
    template: TemplateName = None
    """The form of its prompts by name (docs/prompts.md); without one that of `prompting`."""

    @model_validator(mode="after")
    def _one_verifier(self) -> Self:
        if self.verifier is not None and self.verifier_field is not None:
            raise ValueError("says verifier and verifier_field; keep one of them")
        return self


class MixPart(JudgedSource):
    """One source of a mixture."""

    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Its share of what is drawn and of the own split's score, among the weights of all."""


class DataConfig(SourceConfig):
    """Where the questions come from."""

    mix: list[MixPart] = Field([], max_length=32)
    """Several sources instead of `source`, each with its own held-out rows:
    `[{name: gsm8k, source: gsm8k.jsonl, weight: 2, verifier: gsm8k}, …]`."""
    split_seed: int | None = Field(None, ge=0, lt=2**31)
    """Which rows are held out. Runs that differ in `seed` alone are compared row by row where this
    is the same; without one it is the run's `seed`."""
    curriculum: Literal["none", "easy_to_hard", "by_form", "bands", "file"] = "none"
    """In which order training rows are drawn: in a new shuffle every epoch (`none`); every epoch
    from easy to hard; rows first that the model already answers in a readable form (`by_form`); in
    bands of like difficulty, shuffled inside; or as a file says (docs/curriculum.md)."""
    curriculum_file: str | None = None
    """With `file`: one id a line, drawn in that order and as often as it stands there. With the
    others: the JSONL of `cockpit passk` that has each row's pass rate and parsed share."""
    difficulty_field: str | None = None
    """How hard a row is: its field (`level`, `extra_info.level`), or with `curriculum_file` one of
    that file, there `pass_rate` by default. "Level 5" is 5, "7/8" is 0.875."""
    easy_values: Literal["low", "high"] | None = None
    """Which values of it are easy. Without it low ones are, but high ones of a share of right
    answers (a name with `pass`, `solve`, `success`, `correct` or `accuracy` in it)."""
    difficulty_bands: int = Field(4, ge=2, le=100)
    """With `bands`: how many, of about equally many rows; equal values are in one band."""
    mix_order: Literal["weighted", "one_after_the_other"] = "weighted"
    """How the parts of a mixture are drawn: every step by their weights, each part in epochs of
    its own; or one part whole, then the next."""

    @model_validator(mode="before")
    @classmethod
    def _named_after_its_sources(cls, data: Any) -> Any:
        """`source` of a mixture names its sources: pages and comparisons read it."""
        if not isinstance(data, dict) or not data.get("mix"):
            return data
        source = data.get("source")
        if source is None:
            return {**data, "source": _source_of(data["mix"])}
        return data

    @model_validator(mode="after")
    def _either(self) -> Self:
        names = [part.name for part in self.mix]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise refusal(["mix"], twice, f"names {twice!r} twice; give each source its own name")
        is_mixture = self.source.startswith(MIXTURE)
        if self.mix and self.source != _source_of([{"name": name} for name in names]):
            raise refusal(
                ["source"],
                self.source,
                "stands beside mix, which names its own sources; remove source, or make it one of "
                "mix",
            )
        if is_mixture and not self.mix:
            raise refusal(["source"], self.source, "names a mixture without one; add mix")
        return self

    @field_validator("curriculum_file")
    @classmethod
    def _located(cls, path: str | None) -> str | None:
        return None if path is None else str(located(path))

    @model_validator(mode="after")
    def _has_what_its_curriculum_needs(self) -> Self:
        kind, file, field = self.curriculum, self.curriculum_file, self.difficulty_field
        if kind in {"file", "by_form"} and file is None:
            raise refusal(["curriculum"], kind, "needs a file; set data.curriculum_file")
        if kind in {"easy_to_hard", "bands"} and file is None and field is None:
            how = "set data.difficulty_field, or data.curriculum_file to one of cockpit passk"
            raise refusal(["curriculum"], kind, f"is not told how hard a row is; {how}")
        unread = {"none": (file, field), "file": (field,)}.get(kind, ())
        if any(one is not None for one in unread):
            name = "curriculum_file" if kind == "none" and file else "difficulty_field"
            how = "set data.curriculum: file" if name == "curriculum_file" else "remove it"
            raise refusal(
                [name], file or field, f"does nothing with data.curriculum: {kind}; {how}"
            )
        return self

    @property
    def alone(self) -> SourceConfig:
        """The one source, without what a mixture or a split is told."""
        return SourceConfig.model_construct(
            **{name: getattr(self, name) for name in SourceConfig.model_fields}
        )

    @property
    def weights(self) -> dict[str, float]:
        """Share of each source by name, adding up to 1; empty without a mixture."""
        whole = sum(part.weight for part in self.mix)
        return {part.name: part.weight / whole for part in self.mix}


def same_origin(earlier: Mapping[str, Any], data: DataConfig) -> bool:
    """Whether section `data` of another run reads the same rows, by the names of its sources."""
    mix = earlier.get("mix") or []
    before = [(part.get("name"), part.get("source")) for part in mix if isinstance(part, Mapping)]
    now = [(part.name, part.source) for part in data.mix]
    return earlier.get("source") == data.source and before == now


def _source_of(parts: Any) -> str:
    if not isinstance(parts, list):
        return MIXTURE
    names = [part.get("name") if isinstance(part, dict) else None for part in parts]
    return MIXTURE + ",".join(name if isinstance(name, str) else "?" for name in names)
