"""Before against after on the same completions, by each verifier: in all, by a column, by band.

Bands are made of the same completions that are `before`: a low band can only rise and a high one
only fall, whatever was learnt, so that a band is shown and not tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.contract.intervals import PairedComparison, compare, evidence, independent
from engine.contract.power import CHANGED, paired_lift, unpaired_lift
from engine.contract.rescored import AS_JUDGED, Change, VerifierChange
from engine.evaluate.completions import Completion
from engine.evaluate.judged_tables import Sections
from engine.evaluate.parts import BAND
from engine.evaluate.rejudge import Judged


class Side(NamedTuple):
    """A file's completions by all judges."""

    completions: Sequence[Completion]
    judged: Sequence[Judged]
    said: Sequence[str] = ()
    """What its file left out."""

    @property
    def places(self) -> dict[tuple[str, int], int]:
        """Of each completion, by row and sample."""
        return {(one.id, one.sample): i for i, one in enumerate(self.completions)}


class Pairs(NamedTuple):
    """Places of the same completion on both sides, and how many ids ask something else there."""

    places: Sequence[tuple[int, int]]
    other_prompts: int


def pairs_of(before: Side, after: Side) -> Pairs:
    """Same row and sample, same prompt where both say it."""
    first, found, others = before.places, [], 0
    for key, there in after.places.items():
        here = first.get(key)
        if here is None:
            continue
        one, other = before.completions[here], after.completions[there]
        if one.prompt and other.prompt and one.ask != other.ask:
            others += 1
        else:
            found.append((here, there))
    return Pairs(found, others)


def changes_of(
    before: Side, after: Side, pairs: Pairs, parts: Sections, *, one_run: bool
) -> list[VerifierChange]:
    """Of each judge that both sides have. `parts`: of the completions after; `one_run`: else the
    judges of their runs may be two.
    """
    same = [one for one in before.judged if one_run or one.name != AS_JUDGED]
    of = {(one.name, one.stored): one for one in same}
    return [
        VerifierChange(
            verifier=one.name,
            stored=one.stored,
            whole=_whole(of[one.name, one.stored], one, before, after, pairs),
            parts=_parts(of[one.name, one.stored], one, after, pairs, parts),
        )
        for one in after.judged
        if (one.name, one.stored) in of
    ]


def _whole(first: Judged, last: Judged, before: Side, after: Side, pairs: Pairs) -> Change:
    if pairs.places:
        return _paired(first, last, after, pairs.places)
    return _unpaired(first, last, before, after)


def _parts(
    first: Judged, last: Judged, after: Side, pairs: Pairs, sections: Sections
) -> list[Change]:
    of = {there: here for here, there in pairs.places}
    found = []
    for by in sections.names:
        for name, places in sections.places(by).items():
            some = [(of[there], there) for there in places if there in of]
            one = _paired(first, last, after, some)
            untested = {"p": None, "low": None, "high": None, "can_show": None}
            more = untested | {"can_show_unpaired": None} if by == BAND else {}
            found.append(one.model_copy(update={"by": by, "name": name, **more}))
    return found


def _paired(first: Judged, last: Judged, after: Side, places: Sequence[tuple[int, int]]) -> Change:
    asks = [after.completions[there].ask for _, there in places]
    solved = [first.solved[here] for here, _ in places], [last.solved[there] for _, there in places]
    found = compare(*solved, asks)
    if not found.n:
        return Change(n=0, different=0)
    return Change(
        n=found.n,
        different=found.different,
        before=found.before,
        after=found.after,
        lift=found.lift,
        low=found.ci95[0],
        high=found.ci95[1],
        gained=found.gained,
        lost=found.lost,
        p=found.p_value,
        **_shown(found, evidence(asks) * found.n / len(asks)),
    )


def _shown(found: PairedComparison, n: float) -> dict[str, float | None]:
    changed = (found.gained + found.lost) / found.n or CHANGED
    return {
        "can_show": paired_lift(n, changed),
        "can_show_unpaired": unpaired_lift(n, n, found.before),
    }


def _unpaired(first: Judged, last: Judged, before: Side, after: Side) -> Change:
    """Rates of different rows: an interval, and no test."""
    sides = []
    for judged, side in ((first, before), (last, after)):
        pairs = zip(judged.solved, side.completions, strict=True)
        known = [(ok, one.ask) for ok, one in pairs if ok is not None]
        if not known:
            return Change(n=0, different=0, paired=False)
        sides.append((sum(ok for ok, _ in known) / len(known), evidence([a for _, a in known])))
    (a, n_a), (b, n_b) = sides
    low, high = independent(a * n_a, n_a, b * n_b, n_b)
    return Change(
        n=0,
        different=0,
        before=a,
        after=b,
        lift=b - a,
        low=low,
        high=high,
        paired=False,
        can_show_unpaired=unpaired_lift(n_a, n_b, min(a, b)),
    )
