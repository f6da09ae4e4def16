"""Questions of a source: looked at before a job is queued, and read by the run.

A row that cannot be trained on is named with its line before anything is queued. Knows no model
and no split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.contract.asked import asked
from engine.contract.errors import ConfigProblem, RLLoopError
from engine.contract.golds.survey import GoldSurvey, Unfit
from engine.contract.sources.config import SourceConfig
from engine.contract.sources.file_looks import once_a_file
from engine.contract.sources.generated import PREFIX, Generated, is_generated
from engine.contract.sources.rows import Row, Rows, found_files
from engine.contract.sources.values import Line

__all__ = [
    "EMBEDDED_ANSWER",
    "EMBEDDED_TASKS",
    "Corpus",
    "SourceConfig",
    "files_or_source",
    "found_files",
    "read_rows",
    "source_cautions",
    "survey",
]

EMBEDDED_TASKS = {"embedded:addition": 10_000, "embedded:word_problems": 2_000}
"""Data sets generated on the spot, with their number of rows."""
EMBEDDED_ANSWER = "18"
"""What all of their answers look like."""
_LOOKED_AT = 100
"""Generated rows of which something is known before a run: some take a second each."""
_SHOWN = 200
"""Letters of an id that is shown."""


class Corpus(NamedTuple):
    """What is known of a source without keeping a row of it."""

    rows: int
    unfit: Sequence[Unfit] = ()
    """What the verifiers asked about cannot read or never pay."""
    alike: bool = False
    """Whether all rows ask the same question."""
    longest: int | None = None
    """Bytes of its longest prompt; None where nobody looked."""
    said: Sequence[str] = ()
    """How it was read, a sentence each."""
    left_out: Sequence[str] = ()
    """What of it is not used, and why, a sentence each."""
    answer_column: str = "answer"
    """Where the answers came from."""
    converted: bool = False
    """Whether question and answer are found by the layout that was recognised."""


def files_or_source(source: SourceConfig) -> Sequence[Path]:
    """Its files; none of generated rows. The source itself where it cannot be read: whoever reads
    it says why.
    """
    if source.source.startswith(("embedded:", PREFIX)):
        return []
    try:
        return found_files(source)
    except RLLoopError:
        return [Path(source.source)]


def survey(data: SourceConfig, verifiers: Sequence[str] = ()) -> Corpus:
    """Look at every row once, for each verifier. Raises RLLoopError as `read_rows` does.

    What was found is kept while none of the files changes. Of generated rows the first hundred are
    looked at, and all are counted.
    """
    if is_generated(data.source):
        return _survey_of_first(data, tuple(verifiers))
    return _survey(tuple(found_files(data)), data, tuple(verifiers))


@once_a_file
def _survey(files: tuple[Path, ...], data: SourceConfig, verifiers: Sequence[str]) -> Corpus:
    del files  # they tell one look from another
    count = longest = 0
    first, alike = None, True
    golds = [GoldSurvey(name) for name in verifiers]
    rows = Rows(data)
    for count, (_, row) in enumerate(rows.ranked(), 1):
        longest = max(longest, len(row.prompt.encode()))
        if alike:
            first = first or asked(row.prompt)
            alike = asked(row.prompt) == first
        for gold in golds:
            gold.add(count, row.id[:_SHOWN], row.answer)
    _require_answers(rows, data, verifiers)
    unfit = tuple(unfit for gold in golds for unfit in gold.found())
    answers = rows.reading.answer if rows.reading is not None else None
    column = answers.column if answers is not None else "answer"
    said, left_out = tuple(rows.said()), tuple(rows.left_out())
    return Corpus(count, unfit, alike, longest, said, left_out, column, _is_converted(rows))


def _is_converted(rows: Rows) -> bool:
    if rows.reading is None or rows.config.layout is not None or not rows.files:
        return False
    named = rows.config.prompt_field, rows.config.answer_field
    own = rows.reading.prompt.column, rows.reading.answer and rows.reading.answer.column
    return None in named and own != ("prompt", "answer")


def _survey_of_first(data: SourceConfig, verifiers: Sequence[str]) -> Corpus:
    made = len(Generated(data.source))
    rows = made if data.limit is None else min(made, data.limit)
    looked_at = min(rows, _LOOKED_AT)
    few = {"limit": looked_at, "shuffle": None}
    found = _survey((), SourceConfig.model_construct(**dict(data) | few), verifiers)
    if found.rows < looked_at:  # all of them were asked for, and some are left out
        return found
    return found._replace(rows=rows, longest=None, left_out=())


def _require_answers(rows: Rows, data: SourceConfig, verifiers: Sequence[str]) -> None:
    """Rows without a gold are judged by reward functions alone."""
    judges = [name for name in verifiers if ":" not in name]
    if rows.reading is None or rows.reading.answer is not None or not judges:
        return
    has = ", ".join(map(repr, rows.columns[:12]))
    problem = f"has no column with the answers, which {judges[0]} reads; the columns are {has}"
    raise RLLoopError.of("data.source", data.source, problem, "set data.answer_field")


def source_cautions(where: str, data: SourceConfig, corpus: Corpus) -> Iterator[ConfigProblem]:
    """How rows of another layout than this project's own are read, and which are left out.

    `where`: path of the section that describes them.
    """
    if corpus.converted and data.layout is None:
        remedy = f"set {where}.layout or {where}.answer_field if that is not what is meant"
        yield ConfigProblem(f"{where}.source", data.source, "; ".join(corpus.said), remedy)
    for sentence in corpus.left_out:
        remedy = "correct the rows or the setting if that is not what is meant"
        yield ConfigProblem(where, None, sentence, remedy)


def read_rows(data: SourceConfig) -> list[Row]:
    """Every row. Raises RLLoopError with the lines that are wrong."""
    return with_own_ids(list(Rows(data)))


def with_own_ids(rows: list[Row]) -> list[Row]:
    """The same, none named by its line as another one is by its id."""
    ids = own_ids([row.id for row in rows])
    return [
        row if id_ == row.id else row._replace(id=id_) for row, id_ in zip(rows, ids, strict=True)
    ]


def own_ids(ids: Sequence[str]) -> Sequence[str]:
    """The ids of rows, none the number of a line as another one is a row's own."""
    if len({type(id_) for id_ in ids}) < 2:
        return ids
    named = {id_ for id_ in ids if not isinstance(id_, Line)}
    return [_apart(id_, named) if isinstance(id_, Line) else id_ for id_ in ids]


def _apart(id_: str, named: set[str]) -> str:
    if id_ in named:
        id_ = f"line {id_}"
    while id_ in named:
        id_ += "'"
    return id_
