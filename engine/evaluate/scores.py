"""From stored completions to scores: by filter, with intervals, shares, and parts of the rows.

Torch-free; reads lines of completions, knows no model and no verifier.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contract.asked import asked
from engine.contract.intervals import bootstrap, evidence, wilson
from engine.contract.scores import BenchScore, Part
from engine.evaluate.parts import BAND, band_of, natural
from engine.evaluate.passk import PassAt, counted_ks, pass_at_over
from engine.rewards.judgement import Reason
from engine.rewards.text.forms import form_shares

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """The completions of one row, as one filter reads them."""

    id: str
    asks: Hashable
    n: int
    """Those that were judged, or that the verifier broke on."""
    solved: int
    columns: Mapping[str, Any]
    source: str = ""
    """Of a mixture."""

    @property
    def pass_rate(self) -> float | None:
        """None where nothing was judged."""
        return self.solved / self.n if self.n else None


def told_by(lines: Iterable[Line], name: str) -> list[Told]:
    """Every row of the lines, in their order, by one filter."""
    rows: dict[str, list[Line]] = {}
    for line in lines:
        rows.setdefault(line["id"], []).append(line)
    found = []
    for id_, mine in rows.items():
        outcomes = [of_filter(line, name).get("success") for line in mine]
        judged = [one for one in outcomes if one is not None]
        columns = mine[0].get("columns") or {}
        asks = asked(mine[0]["prompt"])
        source = mine[0].get("source") or ""
        found.append(Told(id_, asks, len(judged), sum(judged), columns, source))
    return found


def of_filter(line: Line, name: str) -> Line:
    """A filter's judgement of a completion."""
    found: Line = line["judged"][name]
    return found


def pass_rates(lines: Sequence[Line], name: str) -> dict[str, float]:
    """By row id, as one filter reads them: what bands are made of."""
    return {row.id: rate for row in told_by(lines, name) if (rate := row.pass_rate) is not None}


def scores(
    facts: Mapping[str, Any],
    lines: Sequence[Line],
    filters: Sequence[tuple[str, str]],
    samples: int,
    *,
    rates: Mapping[str, float] | None = None,
    bands: Sequence[float] = (),
    weights: Mapping[str, float] | None = None,
) -> Iterator[BenchScore]:
    """One for each filter (name, metric) and k. `facts`: the fields that they share.

    `rates`: the baseline's pass rate by row, which parts the rows into `bands`; `weights`: of a
    mixture's sources, whose mean its score is.
    """
    for name, metric in filters:
        rows = told_by(lines, name)
        shares = _shares(lines, name)
        if any("of" in of_filter(line, name) for line in lines):
            yield BenchScore(**facts, **shares, filter=name, metric=metric, **_counted(lines, name))
            continue
        sources = [*_by_source(rows, weights or {})]
        parts = [*sources, *_by_columns(rows), *_by_bands(rows, rates or {}, bands)]
        for k in counted_ks(samples):
            found = _weighed(k, rows, weights) if weights else _pass_at(k, rows)
            if found is not None:
                yield BenchScore(
                    **facts,
                    **shares,
                    filter=name,
                    metric=metric,
                    k=k,
                    samples=samples,
                    n=found.rows,
                    score=found.value,
                    low=found.low,
                    high=found.high,
                    parts=parts if k == 1 else [],
                )


def _pass_at(k: int, rows: Sequence[Told]) -> PassAt | None:
    return pass_at_over(k, [(row.n, row.solved) for row in rows], [row.asks for row in rows])


def _weighed(k: int, rows: Sequence[Told], weights: Mapping[str, float]) -> PassAt | None:
    """The mean over sources by weight, with the interval that a gate gives it: rows of which few
    make up much of the score count for less.
    """
    groups = {name: [row for row in rows if row.source == name] for name in weights}
    known = {name: one for name, some in groups.items() if (one := _pass_at(k, some)) is not None}
    whole = math.fsum(weights[name] for name in known)
    if not known:
        return None
    share = {name: weights[name] / whole for name in known}
    value = math.fsum(share[name] * one.value for name, one in known.items())
    asks = {name: [row.asks for row in groups[name] if row.n >= k] for name in known}
    worth = 1 / math.fsum(share[name] ** 2 / evidence(asks[name]) for name in known)
    low, high = wilson(value * worth, worth)
    return PassAt(k, value, low, high, sum(one.rows for one in known.values()))


def _shares(lines: Sequence[Line], name: str) -> dict[str, Any]:
    """What explains a score: answers cut off, unread, of each form, and the score of the rest."""
    told = [of_filter(line, name) for line in lines]
    outcomes = [one.get("success") for one in told]
    ended = [
        one["success"] is True
        for one, line in zip(told, lines, strict=True)
        if not line["truncated"] and one.get("success") is not None
    ]
    return {
        "truncated": statistics.fmean(line["truncated"] is True for line in lines),
        "unparsed": statistics.fmean(one["reason"] == Reason.UNPARSED for one in told),
        "ended_n": len(ended),
        "ended": statistics.fmean(ended) if ended else None,
        "formats": form_shares([line["text"] for line in lines], outcomes),
    }


def _counted(lines: Sequence[Line], name: str) -> dict[str, Any]:
    """A metric that counts several things a row: their share, with a bootstrap over rows."""
    counts = [(of_filter(line, name), asked(line["prompt"])) for line in lines]
    values = [
        (float(place < one["right"]), ask) for one, ask in counts for place in range(one["of"])
    ]
    if not values:
        return {"n": 0, "score": 0.0, "low": 0.0, "high": 1.0}
    score = statistics.fmean(value for value, _ in values)
    low, high = bootstrap([value for value, _ in values], [ask for _, ask in values])
    if low == high:  # no draw differs: certainty needs more than that
        low, high = wilson(len(lines) * score, len(lines))
    return {"n": len(values), "score": score, "low": low, "high": high}


def _by_source(rows: Sequence[Told], weights: Mapping[str, float]) -> Iterator[Part]:
    for name in weights:
        yield _part("source", name, [row for row in rows if row.source == name])


def _by_columns(rows: Sequence[Told]) -> Iterator[Part]:
    for column in rows[0].columns if rows else ():
        groups: dict[str, list[Told]] = {}
        for row in rows:
            groups.setdefault(str(row.columns.get(column)), []).append(row)
        for value in sorted(groups, key=natural):
            yield _part(column, value, groups[value])


def _by_bands(
    rows: Sequence[Told], rates: Mapping[str, float], bands: Sequence[float]
) -> Iterator[Part]:
    groups: dict[str, list[Told]] = {}
    for row in rows:
        rate = rates.get(row.id)
        if rate is not None and bands:
            groups.setdefault(band_of(rate, bands), []).append(row)
    for name in sorted(groups, key=natural):
        yield _part(BAND, name, groups[name])


def _part(by: str, name: str, rows: Sequence[Told]) -> Part:
    found = _pass_at(1, rows)
    if found is None:
        return Part(by=by, name=name, n=0)
    return Part(by=by, name=name, n=found.rows, score=found.value, low=found.low, high=found.high)
