"""Rows of several origins, each judged by its own verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.rewards.case import Case
from engine.rewards.judgement import Verdict

Ask = Callable[[Sequence[Case]], list[Verdict]]


@dataclass(frozen=True)
class RoutedReward:
    """Each completion by the verifier that its row names, else by `own`."""

    own: Ask
    named: Mapping[str, Ask]
    takes_cases = True

    def __call__(self, completion: str, expected: str) -> Verdict:
        return self.many([Case(completion, expected)])[0]

    def many(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict a case, in their order; each verifier is asked once for all of its own."""
        places: dict[str, list[int]] = {}
        for place, case in enumerate(cases):
            places.setdefault(case.verifier, []).append(place)
        found: dict[int, Verdict] = {}
        for name, mine in places.items():
            ask = self.named[name] if name else self.own
            found |= zip(mine, ask([cases[place] for place in mine]), strict=True)
        return [found[place] for place in range(len(cases))]
