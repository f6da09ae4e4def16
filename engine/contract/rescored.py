"""Stored completions judged again: what is asked of `python -m engine rescore`, and its answer.

Nothing is sampled: a file of completions and names of verifiers go in, tables come out. Scores and
shares are parts of one. Knows no job.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, field_validator

from engine.contract.errors import ConfigProblem
from engine.contract.scores import Part
from engine.contract.verifiers import VerifierName

MOST_VERIFIERS = 12
MOST_BENCHES = 40
MOST_ROWS = 20_000
"""Completions of a file whose judgements are told one by one; of more the tables alone."""
MOST_KEPT = 50
"""Answers that a run keeps."""
AS_JUDGED = "its run's judge"
"""Whose judgement a rollout file of a run holds already."""


class Completions(BaseModel):
    """A file of completions."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    file: str
    """A rollout file of a run, `samples_*.jsonl` of lm-evaluation-harness, or a log of Inspect."""
    name: str
    """What people call its checkpoint: `step 20`."""
    run: str | None = None
    """Its run directory: of an older file, whose lines do not say what is right, its rows do."""
    step: int | None = None
    """Of that run."""


class BenchAsk(BaseModel):
    """A bench that is judged again, at one checkpoint or at two."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str
    after: Completions
    before: Completions | None = None
    """Another checkpoint's, which is compared row by row."""
    baseline: Completions | None = None
    """Whose pass rate puts rows into bands, as it was judged then; without it `before`."""


class RescoreAsk(BaseModel):
    """What is judged again, by whom, and how it is split."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    benches: list[BenchAsk] = Field(min_length=1, max_length=MOST_BENCHES)
    verifiers: list[VerifierName] = Field(min_length=1, max_length=MOST_VERIFIERS)
    """The first is the one that others are held against."""
    by: str | None = None
    """A column, as `level`; None: the one that the rows bring, if any."""
    threshold: float = Field(0.5, allow_inf_nan=False)
    """A reward at or above this counts as solved."""
    rows: bool = False
    """Whether each completion's judgements are part of the answer."""
    keep: str | None = None
    """A file that the answer is written to as well."""

    @field_validator("verifiers")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))


class FormCount(BaseModel):
    """Completions that wrote their answer in one form; a completion may have several."""

    n: int
    right: int


class Known(BaseModel):
    """A completion that one verifier calls wrong and another right."""

    id: str
    prompt: str
    text: str
    """Its end, where the answer stands."""
    gold: str
    read: str | None
    """What the first verifier took for the answer."""
    meant: str | None
    """What the other one read."""
    forms: list[str]


class JudgedBy(BaseModel):
    """The completions of one file by one verifier."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    verifier: str
    stored: bool = False
    """It is what the file says itself; nobody judged again."""
    n: int
    """Completions that were judged."""
    rows: int
    """Rows behind them."""
    score: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % interval: Wilson's, over questions."""
    mean_reward: float | None = None
    reward_low: float | None = None
    reward_high: float | None = None
    """Bootstrap interval of the mean reward; None where each reward is 0 or 1."""
    pass_at: dict[int, float] = {}
    """Of rows with several completions: pass@k by k, unbiased."""
    unparsed: float | None = None
    """None where the file does not say why a completion failed."""
    truncated: float | None = None
    """Share that was cut off; None where the file does not say it."""
    ended_n: int | None = None
    ended: float | None = None
    """The score among those that ended by themselves."""
    reasons: dict[str, int] = {}
    """Completions by reason, `crash` and `timeout` of the verifier among them."""
    broke: str | None = None
    """What the verifier said where it broke first."""
    forms: dict[str, FormCount] = {}
    """By answer format: boxed, hashes, answer_is, tags, code, number, none."""
    only_here: int = 0
    """Completions that the first verifier calls wrong and this one right."""
    only_first: int = 0
    known: list[Known] = []
    """Some of `only_here`: it knows, in another format."""
    parts: list[Part] = []
    """By the column, and by band of the baseline's pass rate."""


class Change(BaseModel):
    """Before against after by one verifier, on all rows or a part of them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    by: str | None = None
    """`level`, `band`; None: all rows."""
    name: str = ""
    n: int
    """Completions that both have, of the same prompt."""
    different: int
    """Questions among them."""
    before: float | None = None
    after: float | None = None
    lift: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % interval of `lift`."""
    gained: int = 0
    lost: int = 0
    p: float | None = None
    """Exact test; None where nothing is tested."""
    paired: bool = True
    """False: they have no row in common, and their rates alone are compared."""
    can_show: float | None = None
    can_show_unpaired: float | None = None
    """The smallest lift found with 80 % power at the share of rows that changed."""


class VerifierChange(BaseModel):
    """A line of bench × verifier, and its parts."""

    verifier: str
    stored: bool = False
    whole: Change
    parts: list[Change] = []


class RowJudged(BaseModel):
    """One completion, in the order of its file."""

    id: str
    sample: int
    forms: list[str]
    success: list[bool | None]
    """By each verifier of the table, in its order; None where it does not judge."""
    reason: list[str]
    answer: list[str | None]


class BenchRescored(BaseModel):
    """What was found of one bench."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    after_name: str
    before_name: str | None = None
    judged: list[JudgedBy]
    """Of `after`."""
    judged_before: list[JudgedBy] = []
    changes: list[VerifierChange] = []
    columns: list[str] = []
    """By which its rows can be split."""
    said: list[str] = []
    """How its files were read, and what was left out, a sentence each."""
    rows: list[RowJudged] = []


class Rescored(BaseModel):
    """What was found."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    benches: list[BenchRescored]
    verifiers: list[str]
    comparisons: int = 0
    """Differences that were tested: the more there are, the more of them look real by chance."""

    @property
    def level(self) -> float:
        """Of each test, so that one of them all is wrong in 5 of 100 times (Bonferroni)."""
        return 0.05 / max(1, self.comparisons)


class Problem(BaseModel):
    """A `ConfigProblem` on its way between processes."""

    field: str
    value: str | None
    problem: str
    remedy: str

    @classmethod
    def of(cls, one: ConfigProblem) -> Problem:
        """As text."""
        value = None if one.value is None else str(one.value)
        return cls(field=one.field, value=value, problem=one.problem, remedy=one.remedy)

    def read(self) -> ConfigProblem:
        """As it was."""
        return ConfigProblem(self.field, self.value, self.problem, self.remedy)


class Answer(BaseModel):
    """What the child says: what it found, or why it found nothing."""

    found: Rescored | None = None
    problems: list[Problem] = []


def verifier_list(text: str) -> Sequence[str]:
    """
    >>> verifier_list("math, gsm8k_any,,")
    ['math', 'gsm8k_any']
    """
    return [name.strip() for name in text.split(",") if name.strip()]
