"""Whether a sampler's own numbers are believed: the trainer's model reads its completions again.

A server may answer with other weights, another model or another prompt, for all that it is asked or
for one prompt of it. The mean over a step hides one prompt, so that rollouts are also held
together by question and by server, and each one alone. Torch-free: who reads a rollout again tells
the sum here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine.run.stop import Declined
from engine.sampling.base import Groups, Rollout

STALE_LIMIT = 1.0
"""Nats a token, for rollouts of weights that are gone: what updates since then moved counts too.
One step behind, 0.2 was measured (TRL, issue 5312)."""
_SLACK = 8.0
"""A mean over n tokens may be 1 + _SLACK / √n times the limit. In bfloat16 one token of 11,845 was
0.53 nats off and eight in a row 0.13, where the mean is 0.034 (SmolLM2-135M at temperature 0.8,
vLLM 0.32 on a CPU)."""
_IMPOSSIBLE = -30.0
"""Logarithm of a chance that no run ever meets."""
_SHOWN = 3
_ROUNDING = 1e-3
"""A log-probability above zero by no more than this is one of zero."""


class SamplerRefused(Declined):
    """What a sampler gave is not believed; nothing was trained on it."""


class SamplerContradicted(SamplerRefused):
    """What was sampled is not what the trainer's model would sample."""

    def __init__(self, message: str) -> None:
        super().__init__("SAMPLER_CONTRADICTED", message)


class SamplerMalformed(SamplerRefused):
    """A completion that no sampler of this run can have drawn."""

    def __init__(self, message: str) -> None:
        super().__init__("SAMPLER_MALFORMED", message)


_REMEDY = (
    "nothing was trained on it. Look whether each server has this run's base, tokenizer, weights "
    "and precision, then `cockpit retry`, which goes on from the last checkpoint"
)


def allowed(limit: float, tokens: float) -> float:
    """The largest mean over so many tokens, in nats.

    >>> allowed(0.1, 1), round(allowed(0.1, 64), 2)
    (0.9, 0.2)
    """
    return limit * (1 + _SLACK / math.sqrt(tokens))


@dataclass
class _Apart:
    """How far sampler and trainer lie apart over some rollouts."""

    total: float = 0.0
    tokens: float = 0.0

    def add(self, total: float, tokens: float) -> None:
        self.total += total
        self.tokens += tokens

    @property
    def mean(self) -> float:
        return self.total / self.tokens

    def beyond(self, limit: float) -> float:
        """How many times what is allowed; a number that is none is beyond every limit."""
        share = self.mean / allowed(limit, self.tokens)
        return share if math.isfinite(share) else math.inf


@dataclass
class Evidence:
    """Rollouts that were read again, all at one limit in nats a token."""

    limit: float
    why: str = "objective.sampler_gap_limit"
    """Where the limit comes from."""
    _rows: list[tuple[Rollout, float, int]] = field(default_factory=list, init=False)

    def add(self, rollout: Rollout, apart: float) -> None:
        """`apart`: sum over its tokens of |log π_trainer − log π_sampler|."""
        self._rows.append((rollout, apart, len(rollout.completion_ids)))

    def take(self, others: Evidence) -> None:
        """What another rank read again."""
        self._rows += others._rows

    @property
    def mean(self) -> float:
        """Nats a token over all of it; 0 before anything was read."""
        tokens = sum(tokens for _, _, tokens in self._rows)
        return math.fsum(apart for _, apart, _ in self._rows) / max(1, tokens)

    def require(self, where: str) -> None:
        """Raises SamplerContradicted where any part of it lies beyond what is allowed; the part
        that is the farthest beyond is named.
        """
        parts = {name: part for who in _PARTS for name, part in self._over(who).items()}
        name = max(parts, key=lambda one: parts[one].beyond(self.limit), default="")
        if not parts or parts[name].beyond(self.limit) <= 1:
            return
        apart = parts[name]
        raise SamplerContradicted(
            f"{where}: sampler and trainer differ by {apart.mean:.3g} nats a token over {name} "
            f"({apart.tokens:.0f} tokens), where {allowed(self.limit, apart.tokens):.3g} is "
            f"allowed ({self.why}: {self.limit:g} and more for few tokens); the worst: "
            f"{self._worst()}; {_REMEDY}"
        )

    def _over(self, name: Callable[[Rollout], str]) -> dict[str, _Apart]:
        found: defaultdict[str, _Apart] = defaultdict(_Apart)
        for rollout, apart, tokens in self._rows:
            found[name(rollout)].add(apart, tokens)
        return found

    def _worst(self) -> str:
        """Questions, the farthest first."""
        parts = self._over(_question)
        ordered = sorted(parts, key=lambda one: -parts[one].beyond(self.limit))
        return ", ".join(f"{one} {parts[one].mean:.3g}" for one in ordered[:_SHOWN])


def stale_evidence(limit: float) -> Evidence:
    """For rollouts of weights that are gone, and steps of the trainer in between."""
    return Evidence(max(limit, STALE_LIMIT), "for rollouts of older weights")


def _question(rollout: Rollout) -> str:
    asked = f"question {rollout.question_id!r}"
    return f"{asked} from {rollout.server}" if rollout.server else asked


_PARTS: Sequence[Callable[[Rollout], str]] = (
    lambda _: "all that was read again",
    lambda one: f"what {one.server or 'the server'} answered",
    _question,
    lambda one: f"sample {one.sample} of {_question(one)}",
)
"""What is held against the limit together."""


def require_whole(rollouts: Iterable[Rollout], longest: int | None = None) -> None:
    """Raises SamplerMalformed for ids and log-probabilities that do not belong together.

    `longest`: tokens of a completion, of a server, which must tell log-probabilities and none above
    zero; without it a rollout may have none.
    """
    for rollout in rollouts:
        problem = _problem(rollout, longest)
        if problem is not None:
            who = rollout.server or "the sampler"
            raise SamplerMalformed(
                f"question {rollout.question_id!r}, sample {rollout.sample}: {who} gave {problem}; "
                f"{_REMEDY}"
            )


def _problem(rollout: Rollout, longest: int | None) -> str | None:
    ids, logprobs = rollout.completion_ids, rollout.logprobs
    if longest is not None and len(ids) > longest:
        return f"{len(ids)} tokens where max_new_tokens is {longest}"
    if (logprobs or longest is not None) and len(logprobs) != len(ids):
        return f"{len(logprobs)} log-probabilities for {len(ids)} tokens"
    highest = math.inf if longest is None else _ROUNDING
    wrong = [one for one in logprobs if not math.isfinite(one) or one > highest]
    return f"{wrong[0]} as a log-probability" if wrong else None


def are_independent(groups: Groups) -> bool:
    """Whether chance explains that all completions of a prompt are one, prompt after prompt, by
    their own log-probabilities.

    The others of a group equal its first one with its probability to the power of their number; of
    P prompts any may be those that are alike, hence P·log 2.
    """
    alike = [
        (len(group) - 1) * (math.fsum(group[0].logprobs) + group[0].draw_shift)
        for group in groups
        if _is_one(group)
    ]
    return not alike or math.fsum(alike) + len(groups) * math.log(2) > _IMPOSSIBLE


def copied(groups: Groups, where: str) -> SamplerContradicted:
    """What to raise for groups that are not."""
    alike = [group for group in groups if _is_one(group)]
    names = {one.server for group in alike for one in group} - {""}
    return SamplerContradicted(
        f"{where}: {', '.join(sorted(names)) or 'the sampler'} answered all samples of "
        f"{len(alike)} of {len(groups)} prompts alike, which independent draws never do: it "
        f"ignores seeds or copies its first answer; {_REMEDY}"
    )


def _is_one(group: Sequence[Rollout]) -> bool:
    return len(group) > 1 and len({one.completion_ids for one in group}) == 1
