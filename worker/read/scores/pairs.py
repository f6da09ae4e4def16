"""Two scores held against each other: row by row where they are of the same rows.

Success by the score's own filter, from the completions that stand behind it; rows that ask the same
count as one. Scores of different rows have the interval of their two intervals, and no test.
Several pairs are corrected for each other (Holm). Writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, Row, select

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from engine.contract.intervals import apart
from engine.contract.run_dir import RunDir
from engine.contract.scores import BenchScore
from worker.db.connection import Database
from worker.db.tables import eval_score
from worker.read.comparison.difference import Difference, difference, holm, judged
from worker.read.comparison.heldout import Heldout, read_gate
from worker.read.samples.files import rollout_files
from worker.read.samples.index import SHELF, FileIndex, Shelf
from worker.read.scores.leaderboard import MEASURE, ref_of

MOST_PAIRS = 12
REF = rf"[1-9][0-9]{{0,9}}\.{MEASURE}"
_BETWEEN = "~"
PairRef = Annotated[str, Field(pattern=f"^{REF}{_BETWEEN}{REF}$")]
"""JOB.KEY~JOB.KEY: the score before and the score after."""
NOT_PAIRED = "not paired"


def pair_ref(before: str, after: str) -> PairRef:
    """The name of a pair of scores."""
    return f"{before}{_BETWEEN}{after}"


_SAME_SHARE = 1e-6


class PairError(NightlaneError):
    """Two scores that cannot be subtracted: which, and what to do."""

    exit_code = 2
    """Of the command line: a wrong request, like a wrong config."""


class Side(BaseModel):
    """One of the scores."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    ref: str
    job_id: int
    said: BenchScore


class Pair(BaseModel):
    """The second score against the first. Scores are shares of one."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    pair: str
    """Its name in an address."""
    before: Side
    after: Side
    paired: bool
    """Row by row: the luck that both had with the same rows cancels out."""
    why_not: str | None
    """Why it is not paired."""
    n: int
    """Rows that both answered; without pairing 0."""
    different: int
    """Different questions among them."""
    before_score: float
    after_score: float
    """On those rows."""
    lift: float
    low: float
    high: float
    """95 % interval of the lift."""
    gained: int
    lost: int
    """Rows that only the second solved, and that only the first did."""
    p_value: float | None
    """Exact McNemar test; null without pairing."""
    p_holm: float | None
    """The same, corrected for all tested pairs that were asked for."""
    word: str
    """better, worse, no difference proven, too few rows, or not paired."""


class Pairs(BaseModel):
    """Those that were asked for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    pairs: list[Pair]
    tested: int
    """How many chances for a difference by chance alone there were."""


class _Score(NamedTuple):
    """A score and the rows behind it."""

    side: Side
    rows: Heldout | None
    why_not: str | None


def compare_pairs(db: Database, asked: Sequence[str]) -> Pairs:
    """Raises PairError for scores of different measures or of one and the same, and ConfigError
    for a score that there is none of.
    """
    found = [_pair(db, *one.split(_BETWEEN), pair=one) for one in dict.fromkeys(asked)]
    corrected = holm([one.p_value for one, _ in found])
    words = _words([known for _, known in found])
    pairs = [
        one.model_copy(update={"p_holm": p, "word": word})
        for (one, _), p, word in zip(found, corrected, words, strict=True)
    ]
    return Pairs(pairs=pairs, tested=sum(one.paired for one in pairs))


def _words(found: Sequence[Difference | None]) -> list[str]:
    """Of each by the same rule as of compared runs."""
    known = iter(judged([one for one in found if one is not None]))
    return [NOT_PAIRED if one is None else next(known).word for one in found]


def _pair(db: Database, first: str, second: str, *, pair: str) -> tuple[Pair, Difference | None]:
    with db.read() as conn:
        rows = [_row(conn, ref) for ref in (first, second)]
    before, after = (_read(db, row) for row in rows)
    _check(before.side, after.side)
    found = _difference(before, after)
    if isinstance(found, str):
        return _unpaired(pair, before.side, after.side, found), None
    return (
        Pair(
            pair=pair,
            before=before.side,
            after=after.side,
            paired=True,
            why_not=None,
            n=found.n,
            different=found.different,
            before_score=found.a,
            after_score=found.b,
            lift=found.lift,
            low=found.low,
            high=found.high,
            gained=found.gained,
            lost=found.lost,
            p_value=found.p_value,
            p_holm=None,
            word=found.word,
        ),
        found,
    )


def _unpaired(pair: str, before: Side, after: Side, why_not: str) -> Pair:
    a, b = before.said, after.said
    low, high = apart(a.score, (a.low, a.high), b.score, (b.low, b.high))
    return Pair(
        pair=pair,
        before=before,
        after=after,
        paired=False,
        why_not=why_not,
        n=0,
        different=0,
        before_score=a.score,
        after_score=b.score,
        lift=b.score - a.score,
        low=low,
        high=high,
        gained=0,
        lost=0,
        p_value=None,
        p_holm=None,
        word=NOT_PAIRED,
    )


def _row(conn: Connection, ref: str) -> Row[Any]:
    job_id, key = ref.split(".")
    c = eval_score.c
    asked = select(eval_score).where(c.job_id == int(job_id), c.key == key)
    row = conn.execute(asked).one_or_none()
    if row is None:
        problem, remedy = "names no score", "choose it on the leaderboard again"
        raise ConfigError([ConfigProblem("pair", ref, problem, remedy)])
    return row


def _check(before: Side, after: Side) -> None:
    if before.ref == after.ref:
        raise PairError(f"score {before.ref} is named twice; choose another one")
    a, b = before.said, after.said
    for name in ("bench", "filter", "metric", "k"):
        one, other = getattr(a, name), getattr(b, name)
        if one != other:
            raise PairError(
                f"{before.ref} and {after.ref} measure different things: {name} is {one} and "
                f"{other}; choose two scores of one column"
            )


def _difference(before: _Score, after: _Score) -> Difference | str:
    """Paired, or why it is not."""
    if before.rows is None or after.rows is None:
        return before.why_not or after.why_not or "its rows cannot be read"
    if before.rows.measure != after.rows.measure:
        return "one counts rows solved and the other boxes found"
    found = difference(before.rows, after.rows)
    if not found.paired:
        return "no row of the two has the same id and asks the same"
    a, b = before.side.said.bench_hash, after.side.said.bench_hash
    left = found.only_a + found.only_b + found.changed
    if left and (a is None or a != b):
        return f"{left} of their rows are not the same or ask something else"
    return found


# --- the rows behind a score ---


def _read(db: Database, row: Row[Any], shelf: Shelf = SHELF) -> _Score:
    said = BenchScore.model_validate(row.body)
    side = Side(ref=ref_of(row), job_id=row.job_id, said=said)
    if said.k > 1 or said.samples > 1:
        return _Score(side, None, "rows with several completions each are not paired here")
    root = RunDir(db.settings.runs_dir / str(row.job_id)).root
    path = rollout_files(root).get(said.split, {}).get(said.step)
    if path is None:
        return _Score(side, None, f"job {row.job_id} has no completions of {said.split} any more")
    rows = read_gate(path, said.split, said.step, shelf)
    rows = None if rows is None else _by_filter(rows, said.filter)
    if rows is None:
        return _Score(side, None, f"{path.name} of job {row.job_id} says no success of its rows")
    if rows.read_share < 1:
        return _Score(side, None, f"{path.name} is very large and not read to its end yet")
    if not _says(rows, said.score):
        why = f"the rows of job {row.job_id} do not add up to its score"
        return _Score(side, None, f"{why}: it counts something else, or weighs them")
    return _Score(side, rows, None)


def _by_filter(rows: Heldout, filter_: str) -> Heldout | None:
    """By what the score's filter read, where the completions were judged by several."""
    index: FileIndex = rows.file
    places = {row.place: name for name, row in rows.rows.items()}
    told: dict[str, bool] = {}
    for place, line in index.rows(places):
        success = _success(line, filter_)
        if success is None:
            return rows if not told else None
        told[places[place]] = success
    changed = {
        name: row._replace(outcome=row.outcome._replace(success=told[name]))
        for name, row in rows.rows.items()
        if name in told
    }
    return rows._replace(rows=changed)


def _success(line: Mapping[str, Any], filter_: str) -> bool | None:
    judgements = line.get("judged")
    judgement = judgements.get(filter_) if isinstance(judgements, Mapping) else None
    success = judgement.get("success") if isinstance(judgement, Mapping) else None
    return success if isinstance(success, bool) else None


def _says(rows: Heldout, score: float) -> bool:
    """Whether the share of solved rows is the score; an F1 is not made of those."""
    if rows.measure == "f1":
        return True
    solved = [bool(row.outcome.success) for row in rows.rows.values()]
    return math.isclose(sum(solved) / len(solved), score, abs_tol=_SAME_SHARE)
