"""What a checkpoint scored on a bench: the field names of event `score` and of table `eval_score`.

One score is one checkpoint, bench, number of shots and filter. Its completions stand in
`rollouts/heldout-SPLIT-STEP.jsonl`, a line each, with `success` by the first filter and `judged`
by every one of them. Shares and scores are parts of one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

Runner = Literal["own", "harness", "gate"]
"""Who asked and judged: the run's sampler, lm-evaluation-harness, or a gate of a training run."""


class Part(BaseModel):
    """The score of some of the rows."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    by: str
    """`level`, `subject`, another column, or `band` (of the baseline's pass rate)."""
    name: str
    """Its value: `Level 3`, `0.1 to 0.5`."""
    n: int
    score: float | None = None
    low: float | None = None
    high: float | None = None


class BenchScore(BaseModel):
    """One cell of a table of scores, with all that makes it comparable."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    checkpoint: str
    """What people call it: `base`, `step 20`, a folder's name."""
    path: str | None = None
    """Its folder or hub id; None for an embedded model."""
    base: str
    """The model that training began from; of a model that nobody here trained the model itself."""
    run: int | None = None
    """The job that trained it; None where none did."""
    step: int = 0
    """Of that run; the number in the file of its completions."""
    format: str | None = None
    """What its weights were written in behind the run: `int8`; None for the checkpoint itself."""
    bench: str
    """Its name, without shots."""
    split: str
    """Under which its completions are found."""
    task: str | None = None
    """The task of lm-evaluation-harness that it is; None for a bench of one's own."""
    shots: int = 0
    filter: str
    """How the answer was read: `strict-match`; a verifier's name where the bench is one's own."""
    metric: str = "exact_match"
    """What was counted, by the harness's name."""
    k: int = 1
    """pass@k; 1 for plain accuracy."""
    samples: int = 1
    """Completions of each row."""
    n: int
    """Rows that were judged (of `inst_level_strict_acc`: instructions)."""
    score: float
    low: float
    high: float
    """95 % interval."""
    truncated: float | None = None
    """Share of completions that were cut off at the limit."""
    unparsed: float | None = None
    """Share in which the filter found no answer."""
    ended_n: int | None = None
    """Completions that ended by themselves."""
    ended: float | None = None
    """The score among those."""
    formats: dict[str, float] = {}
    """Share of each form of answer: `format/boxed`, and `/right`, `/wrong` among those."""
    parts: list[Part] = []
    """By level, subject, band."""
    picked: bool = False
    """These rows picked the checkpoint: the score is too good."""
    runner: Runner = "own"
    version: str | None = None
    """Of the harness, where it ran."""
    temp: float = 0.0
    max_new_tokens: int | None = None
    chat_template: bool = False
    tensor_parallel: int = 1
    seeds: dict[str, int] = {}
    """`sampling`, `fewshot`; of the harness `random`, `numpy`, `torch` too."""
    bench_hash: str | None = None
    """Over rows, examples, form, filters and decoding: equal hashes compare row by row."""
    data_hash: str | None = None
    """Over the rows alone."""


def score_of(value: Any) -> BenchScore | None:
    """From an event's field; None for what is none."""
    try:
        return BenchScore.model_validate(value)
    except ValidationError:
        return None
