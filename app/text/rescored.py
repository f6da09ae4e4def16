"""Completions that were judged again, in words and tables: for the page and the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from app.text import wording
from app.text.benches import FORMS
from engine.contract.rescored import BenchRescored, Change, JudgedBy, Rescored

_FORMS: Mapping[str, str] = {
    **{name.removeprefix("format/"): words for name, words in FORMS.items()},
    "number": "a number alone",
    "none": "no number",
}


class Table(NamedTuple):
    """A heading with its columns and rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def form(name: str) -> str:
    """What a form of an answer looks like.

    >>> form("boxed"), form("number")
    ('\\\\boxed{}', 'a number alone')
    """
    return _FORMS.get(name, name)


def forms_told(names: Sequence[str]) -> str:
    """The forms of one completion."""
    return ", ".join(map(form, names))


def judge(one: JudgedBy) -> str:
    """Its name; of what the file says itself that it does."""
    return f"{one.verifier} (in the file)" if one.stored else one.verifier


def score(share: float | None, low: float | None, high: float | None) -> str:
    """With its interval.

    >>> score(0.25, 0.0716, 0.591)
    '25.0 % (7.2 % to 59.1 %)'
    """
    if share is None:
        return wording.UNKNOWN
    return f"{wording.percent(share)} ({wording.percent(low)} to {wording.percent(high)})"


def reasons(one: JudgedBy) -> str:
    """`10 correct, 5 unparsed`, and what a verifier that broke said first."""
    told = ", ".join(f"{n} {reason}" for reason, n in one.reasons.items())
    return f"{told}; it broke with: {one.broke}" if one.broke else told


def scores(bench: BenchRescored) -> Table:
    """A line a verifier; two columns hold it against the first one that judged anew."""
    first = next(one.verifier for one in bench.judged if not one.stored)
    rewards = any(one.mean_reward is not None for one in bench.judged)
    head = (
        *("judged by", "completions", "score, 95 %", "among ended", "unparsed", "cut off"),
        *(("mean reward, 95 %",) if rewards else ()),
        *(f"right, not by {first}", f"only by {first}", "reasons"),
    )
    rows = [
        (
            judge(one),
            _counted(one),
            score(one.score, one.low, one.high),
            *map(wording.percent, (one.ended, one.unparsed, one.truncated)),
            *((_reward(one),) if rewards else ()),
            *(str(one.only_here), str(one.only_first), reasons(one)),
        )
        for one in bench.judged
    ]
    return Table(f"{bench.name}, {bench.after_name}", head, rows)


def _counted(one: JudgedBy) -> str:
    return str(one.n) if one.n == one.rows else f"{one.n} of {one.rows} rows"


def _reward(one: JudgedBy) -> str:
    if one.mean_reward is None:
        return wording.UNKNOWN
    low, high = wording.number(one.reward_low), wording.number(one.reward_high)
    return f"{wording.number(one.mean_reward)} ({low} to {high})"


def forms(bench: BenchRescored) -> Table:
    """Of each answer format how many completions have it, and how many each verifier pays."""
    names = list(dict.fromkeys(name for one in bench.judged for name in one.forms))
    head = ("answer format", "completions", *(f"right by {judge(one)}" for one in bench.judged))
    rows = [
        (
            form(name),
            str(bench.judged[0].forms[name].n),
            *(str(one.forms[name].right) for one in bench.judged),
        )
        for name in names
    ]
    return Table("By answer format", head, rows)


def parts(bench: BenchRescored) -> Table | None:
    """By level, and by band of the baseline's pass rate; None where nothing splits the rows."""
    every = [{(one.by, one.name): one for one in line.parts} for line in bench.judged]
    head = ("part", "completions", *(judge(one) for one in bench.judged))
    rows = [
        (
            _part(*key),
            str(one.n),
            *(score(line[key].score, line[key].low, line[key].high) for line in every),
        )
        for key, one in every[0].items()
    ]
    return Table("By part of the rows", head, rows) if rows else None


def _part(by: str, name: str) -> str:
    return f"baseline solves {name}" if by == "band" else f"{by}: {name}"


def pass_at(bench: BenchRescored) -> Table | None:
    """pass@k of rows with several completions."""
    ks = list(dict.fromkeys(k for one in bench.judged for k in one.pass_at))
    rows = [
        (judge(one), *(wording.percent(one.pass_at.get(k)) for k in ks)) for one in bench.judged
    ]
    return Table("pass@k", ("judged by", *map(str, ks)), rows) if ks else None


def changes(found: Rescored) -> Table:
    """Bench by verifier, and below each its parts."""
    head = ("bench", "judged by", "rows", "before → after", "change, 95 %", "p", "can show")
    rows: list[Sequence[str]] = []
    for bench in found.benches:
        for line in bench.changes:
            name = f"{line.verifier} (in the file)" if line.stored else line.verifier
            rows.append((bench.name, name, *change(line.whole)))
            rows += [
                (f"  {_part(one.by or '', one.name)}", name, *change(one)) for one in line.parts
            ]
    return Table("Before and after", head, rows)


def change(one: Change) -> tuple[str, ...]:
    """Rows, before → after, difference with its interval, p, and what so many rows can show."""
    moved = f"{wording.percent(one.before)} → {wording.percent(one.after)}"
    counts = f"{one.gained} gained, {one.lost} lost" if one.paired else "not paired"
    ends = f" ({wording.interval(one.low, one.high)})" if one.low is not None else ""
    return (
        wording.rows(one.n, one.different) if one.paired else "no common row",
        moved,
        f"{wording.points(one.lift)}{ends}; {counts}",
        p_value(one.p),
        shown(one),
    )


def p_value(p: float | None) -> str:
    """
    >>> p_value(0.03125), p_value(1e-9), p_value(None)
    ('0.0312', '< 0.0001', 'not tested')
    """
    if p is None:
        return "not tested"
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def shown(one: Change) -> str:
    """The smallest change that is found with 80 % power, paired and unpaired."""
    if one.can_show is None and one.can_show_unpaired is None:
        return wording.UNKNOWN
    sides = ((one.can_show, "paired"), (one.can_show_unpaired, "unpaired"))
    told = (f"{wording.points(size)} {how}" for size, how in sides if size is not None)
    return "; ".join(told)


def multiplicity(found: Rescored) -> str:
    """How many differences were tested, and what that asks of each."""
    if not found.comparisons:
        return "No difference was tested."
    were = "difference was" if found.comparisons == 1 else "differences were"
    return (
        f"{found.comparisons} {were} tested. With all of them in view one is real where its p is "
        f"under {found.level:.2g} (Bonferroni); a band is made of the completions before, moves by "
        "chance and is not tested."
    )


def known(bench: BenchRescored) -> Iterator[tuple[JudgedBy, str]]:
    """Of each verifier that reads more than the first: a sentence about what it calls right."""
    first = next(one.verifier for one in bench.judged if not one.stored)
    for one in bench.judged:
        if one.only_here and not one.stored:
            are = "completion is" if one.only_here == 1 else "completions are"
            yield (
                one,
                f"{one.only_here} {are} wrong by {first} and right by {one.verifier} "
                f"({wording.percent(one.only_here / one.n)}): it knows, in another format",
            )
