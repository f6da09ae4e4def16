"""Tables of judged completions: score and interval, reasons, answer formats, parts of the rows, and
what one verifier calls wrong and another right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from engine.contract.intervals import bootstrap
from engine.contract.rescored import FormCount, JudgedBy, Known
from engine.contract.scores import Part
from engine.evaluate.completions import Completion
from engine.evaluate.parts import BAND, band_of, natural
from engine.evaluate.passk import PassAt, counted_ks, pass_at_over
from engine.evaluate.rejudge import Judged
from engine.rewards.judgement import BROKE, Reason
from engine.rewards.text.forms import forms_of

_EXAMPLES = 5
_LONGEST = 240
"""Characters of a text in an example: of a completion its end, where the answer stands."""


@dataclass(frozen=True)
class Sections:
    """By what results are split: of each completion the name of its part, None: in none."""

    names: Mapping[str, Sequence[str | None]]

    def places(self, by: str) -> dict[str, list[int]]:
        """The completions of each part, in the order of the parts' names."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.names[by]):
            if name is not None:
                found.setdefault(name, []).append(place)
        return {name: found[name] for name in sorted(found, key=natural)}


def sections_of(
    completions: Sequence[Completion], by: str | None, rates: Mapping[str, float]
) -> Sections:
    """By a column, and by the band of the baseline's pass rate where any is known."""
    names: dict[str, list[str | None]] = {}
    if by is not None and any(by in one.columns for one in completions):
        values = [one.columns.get(by) for one in completions]
        names[by] = [None if value is None else str(value) for value in values]
    if rates:
        known = [rates.get(one.id) for one in completions]
        names[BAND] = [None if rate is None else band_of(rate) for rate in known]
    return Sections(names)


def pass_rates(completions: Sequence[Completion], judged: Judged) -> dict[str, float]:
    """Of each row the share of its judged completions that are solved."""
    return {id_: solved / n for id_, (n, solved, _) in _rows(completions, judged).items() if n}


def table_of(
    completions: Sequence[Completion], judged: Judged, first: Judged, sections: Sections
) -> JudgedBy:
    """One line of the table. `first`: the verifier that it is held against."""
    every = range(len(completions))
    score = _score(completions, judged, every)
    cut = [one.truncated for one in completions]
    ended = [i for i, one in enumerate(cut) if one is False and judged.solved[i] is not None]
    only_here = _only(judged, first)
    return JudgedBy(
        verifier=judged.name,
        stored=judged.stored,
        n=sum(one is not None for one in judged.solved),
        rows=score.rows if score else 0,
        **_interval(score),
        **_mean_reward(completions, judged),
        pass_at=_pass_at(completions, judged),
        unparsed=_share([one.reason is Reason.UNPARSED for one in judged.verdicts]),
        truncated=None if None in cut else _share([bool(one) for one in cut]),
        ended_n=None if None in cut else len(ended),
        ended=_share([bool(judged.solved[i]) for i in ended]),
        reasons=dict(Counter(one.reason.value for one in judged.verdicts).most_common()),
        broke=next((v.answer for v in judged.verdicts if v.reason in BROKE and v.answer), None),
        forms=_forms(completions, judged),
        only_here=len(only_here),
        only_first=len(_only(first, judged)),
        known=[_known(completions[i], i, judged, first) for i in only_here[:_EXAMPLES]],
        parts=list(_parts(completions, judged, sections)),
    )


def _interval(score: PassAt | None) -> dict[str, float]:
    return {"score": score.value, "low": score.low, "high": score.high} if score else {}


def _score(
    completions: Sequence[Completion], judged: Judged, places: Sequence[int]
) -> PassAt | None:
    """The mean over rows of their solved shares: pass@1."""
    found = list(_rows(completions, judged, places).values())
    return pass_at_over(1, [(n, solved) for n, solved, _ in found], [ask for *_, ask in found])


def _rows(
    completions: Sequence[Completion], judged: Judged, places: Sequence[int] | None = None
) -> dict[str, tuple[int, int, Hashable]]:
    """By row: judged completions, solved ones, and what it asks."""
    found: dict[str, tuple[int, int, Hashable]] = {}
    for i in range(len(completions)) if places is None else places:
        solved = judged.solved[i]
        if solved is not None:
            one = completions[i]
            n, right, ask = found.get(one.id, (0, 0, one.ask))
            found[one.id] = (n + 1, right + solved, ask)
    return found


def _pass_at(completions: Sequence[Completion], judged: Judged) -> dict[int, float]:
    """Of rows with several completions, every k that all of them have."""
    found = list(_rows(completions, judged).values())
    most = min((n for n, *_ in found), default=0)
    if most < 2:
        return {}
    counts, asks = [(n, solved) for n, solved, _ in found], [ask for *_, ask in found]
    every = {k: pass_at_over(k, counts, asks) for k in counted_ks(most)}
    return {k: one.value for k, one in every.items() if one is not None}


def _mean_reward(completions: Sequence[Completion], judged: Judged) -> dict[str, float]:
    """Where a reward is neither 0 nor 1."""
    pairs = [
        (verdict.reward, one.ask)
        for verdict, one in zip(judged.verdicts, completions, strict=True)
        if verdict.counted
    ]
    rewards = [reward for reward, _ in pairs]
    if all(reward in {0.0, 1.0} for reward in rewards):
        return {}
    low, high = bootstrap(rewards, [ask for _, ask in pairs])
    mean = math.fsum(rewards) / len(rewards)
    return {"mean_reward": mean, "reward_low": low, "reward_high": high}


def _share(has: Sequence[bool]) -> float | None:
    return sum(has) / len(has) if has else None


def _forms(completions: Sequence[Completion], judged: Judged) -> dict[str, FormCount]:
    n: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for one, solved in zip(completions, judged.solved, strict=True):
        for form in forms_of(one.text):
            n[form] += 1
            right[form] += bool(solved)
    return {form: FormCount(n=count, right=right[form]) for form, count in n.most_common()}


def _parts(completions: Sequence[Completion], judged: Judged, sections: Sections) -> Sequence[Part]:
    found = []
    for by in sections.names:
        for name, places in sections.places(by).items():
            score = _score(completions, judged, places)
            n = sum(judged.solved[i] is not None for i in places)
            found.append(Part(by=by, name=name, n=n, **_interval(score)))
    return found


def _only(one: Judged, other: Judged) -> list[int]:
    """Places that `one` calls right and `other` wrong."""
    pairs = enumerate(zip(one.solved, other.solved, strict=True))
    return [i for i, (here, there) in pairs if here and there is False]


def _known(one: Completion, place: int, judged: Judged, first: Judged) -> Known:
    return Known(
        id=one.id,
        prompt=_start(one.prompt),
        text=one.text if len(one.text) <= _LONGEST else f"…{one.text[-_LONGEST:]}",
        gold=_start(one.gold or ""),
        read=first.verdicts[place].answer,
        meant=judged.verdicts[place].answer,
        forms=forms_of(one.text),
    )


def _start(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
