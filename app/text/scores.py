"""Scores of checkpoints in words: for the leaderboard, the run page and the command line.

Knows no page.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from app.text import wording
from engine.contract.scores import BenchScore
from engine.contract.sources.benches import label_of
from worker.read.scores.leaderboard import (
    MOST_COLUMNS,
    Cell,
    Change,
    Column,
    Leaderboard,
    Line,
)
from worker.read.scores.pairs import Pair, Pairs, Side

PICKED = "these rows picked it"
"""Beside a score that is too good."""
_HASH = 8
"""Characters of a hash that are shown."""


def bench(column: Column) -> str:
    """Its name with its shots; of a gate's own rows which half of them."""
    name = label_of(column.bench, column.shots)
    return f"{name}, {column.split}" if column.split in {"select", "report"} else name


def how(column: Column) -> str:
    """How answers were read and counted, and by whom."""
    metric = "" if column.metric in {"exact_match", column.filter} else column.metric
    k = f"pass@{column.k}" if column.k > 1 else ""
    runner = {"harness": "lm-eval", "gate": "gate"}.get(column.runner, "")
    return ", ".join(filter(None, (column.filter, metric, k, runner)))


def named(column: Column) -> str:
    """In one line."""
    return f"{bench(column)}, {how(column)}"


def compares(column: Column) -> str:
    """With which scores its own compare."""
    if column.bench_hash is None:
        return f"rows of job {column.job_id} alone"
    rows = f"rows {column.bench_hash[:_HASH]}"
    return f"{rows}: others than in the column of the same name" if column.other_rows else rows


def order(board: Leaderboard, *, sort: str, best: bool) -> str:
    """By what the lines are ordered, and what that does not mean."""
    column = next((one for one in board.columns if one.measure == board.column), None)
    if column is None:
        return "Those scored last come first: no order of merit."
    which = {"score": "the score", "truncated": "truncated answers", "unparsed": "unread answers"}
    by = f"By {which[sort]} on {named(column)}, and on that alone: benches are never added up."
    if best:
        by += (
            " Of each base the best one: of many scores the highest is too high by chance, so look"
            " at its interval and test it against the base."
        )
    return by


def within(cell: Cell) -> str:
    """The 95 % interval of a score.

    >>> within(Cell.model_construct(low=0.5, high=0.625))
    '50.0 to 62.5'
    """
    return between(cell.low, cell.high)


def between(low: float, high: float) -> str:
    """Two shares as the ends of an interval, without a sign of percent."""
    return f"{wording.percent(low)} to {wording.percent(high)}".replace(" % to", " to")[:-2]


def change(found: Change | None) -> str:
    """Against step 0, with its interval."""
    if found is None:
        return wording.UNKNOWN
    return f"{wording.points(found.lift)} ({wording.interval(found.low, found.high)})"


def line(said: BenchScore, against: Pair | None) -> str:
    """One score, and what it is against the baseline, where that is known."""
    metric = "" if said.metric in {"exact_match", said.filter} else f" {said.metric}"
    k = f" pass@{said.k}" if said.k > 1 else ""
    which = f"{said.checkpoint} on {label_of(said.bench, said.shots)}, {said.filter}{metric}{k}"
    ends = between(said.low, said.high)
    found = f"{which}: {wording.percent(said.score)} ({ends}), n {said.n}"
    if against is None:
        return found
    moved = f"{wording.points(against.lift)} ({wording.interval(against.low, against.high)})"
    paired = "paired" if against.paired else "not paired"
    return f"{found}; {moved} against {against.before.said.checkpoint}, {paired}"


def lost(cell: Cell) -> str:
    """Answers that were cut off, and those in which none was found, where there were any."""
    shares = (("truncated", cell.truncated), ("unparsed", cell.unparsed))
    said = (f"{name} {wording.percent(share)}" for name, share in shares if share)
    return ", ".join(said).replace(" %", "\u00a0%")


def decoded(said: BenchScore) -> str:
    """How the completions were drawn."""
    length = "" if said.max_new_tokens is None else f"{said.max_new_tokens} tokens"
    many = f"{said.samples} samples" if said.samples > 1 else ""
    chat = "chat template" if said.chat_template else ""
    version = f"lm-eval {said.version}" if said.version else ""
    temp = f"temp {said.temp:g}"
    return ", ".join(filter(None, (temp, length, many, chat, version)))


def short(hashed: str | None) -> str:
    """The beginning of a hash."""
    return wording.UNKNOWN if hashed is None else hashed[:_HASH]


def checkpoint(line: Line) -> str:
    """`#7 sums, step 20`; a model that nobody here trained by its name."""
    if line.run is None:
        return line.checkpoint
    name = line.run_name or "run"
    return f"#{line.run} {name}, {line.checkpoint}"


def marks(line: Line) -> list[str]:
    """What became of it."""
    said = (("chosen", line.chosen), ("published", line.published))
    return [word for word, holds in said if holds]


def side(found: Side) -> str:
    """One of two scores: whose it is."""
    of = "" if found.said.run is None else f"#{found.said.run} "
    return f"{of}{found.said.checkpoint}"


def on(pair: Pair) -> str:
    """On what the two were held against each other."""
    said = pair.after.said
    return f"{label_of(said.bench, said.shots)}, {said.filter}"


def one_of(board: Leaderboard, ref: str) -> str:
    """A score by its name in an address; one of another page by that alone."""
    for line in board.lines:
        for column in board.columns:
            cell = line.cells.get(column.measure)
            if cell is not None and cell.ref == ref:
                return f"{wording.percent(cell.score)} of {checkpoint(line)} on {named(column)}"
    return f"score {ref}"


def pressed(cell: Cell, line: Line, column: Column, picked: str | None) -> str:
    """What a press on a score does."""
    if picked == cell.ref:
        does = "chosen"
    else:
        does = "choose it for a test" if picked is None else "test it against the chosen score"
    return f"{wording.percent(cell.score)}, {checkpoint(line)} on {named(column)}: {does}"


def completions(cell: Cell) -> str:
    """Address of what the checkpoint answered."""
    query = urlencode({"split": cell.said.split, "step": cell.said.step})
    return f"/jobs/{cell.job_id}/samples?{query}"


def address_of(board: Leaderboard, job_id: int) -> str:
    """Of the leaderboard with what a job's own table shows: its run, the one run that it scored, or
    its benches.
    """
    runs = {line.run for line in board.lines}
    run = job_id if job_id in runs else next(iter(runs)) if len(runs) == 1 else None
    asked = (
        {"run": run, "sort": "newest"}
        if run is not None
        else {"bench": board.benches[:MOST_COLUMNS]}
    )
    return f"/leaderboard?{urlencode(asked, doseq=True)}"


def shown(board: Leaderboard) -> str:
    """How much of the whole a page is."""
    n = len(board.lines)
    said = "1 checkpoint shown" if n == 1 else f"{n} checkpoints shown"
    if board.column is not None:
        said += ", those scored in the column that orders them"
    if board.more_columns:
        said += f"; {board.more_columns} more columns: narrow by bench, filter, shots or run"
    return said


def looked_at(pairs: Pairs) -> str:
    """How many chances there were.

    >>> looked_at(Pairs(pairs=[], tested=1))
    '1 pair was tested.'
    """
    if pairs.tested == 1:
        return "1 pair was tested."
    if not pairs.tested:
        return "No pair was tested."
    return (
        f"{pairs.tested} pairs were tested: p is corrected for all of them (Holm), and pairs that "
        "somebody looked at before and took away again are not among them."
    )


def text_table(board: Leaderboard) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Head and rows, for a terminal."""
    head = ("checkpoint", "base", *(named(column) for column in board.columns), "")
    rows: list[Sequence[str]] = [
        (
            checkpoint(line),
            line.base,
            *(_text_cell(line.cells.get(column.measure)) for column in board.columns),
            ", ".join(marks(line)),
        )
        for line in board.lines
    ]
    return head, rows


def _text_cell(cell: Cell | None) -> str:
    if cell is None:
        return wording.UNKNOWN
    said = f"{wording.percent(cell.score)} ({within(cell)}), n {cell.n}"
    moved = f", {wording.points(cell.change.lift)}" if cell.change else ""
    return f"{said}{moved}{' [picked]' if cell.picked else ''}"
