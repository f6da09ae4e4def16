"""KL at one token: a mean hides it, and the update that follows it does not.

Token ids that are no longer those that were sampled, another temperature in one of two passes, or a
mask that leaves a token out show here first.
"""

from __future__ import annotations

import math

from engine.rl.farthest import Farthest
from engine.rl.guards.examples import Judged, Order
from engine.rl.guards.warnings.seen import KL_MAX, Finding, Seen, longest

_TIMES = 2.0
"""Of the largest log-ratio of the steps before. The value is exponential in it: tokens that the
policy itself finds unlikely reach e^y about once in e^y tokens, so that a record which is several
times the last one is usual, and one with twice its log-ratio is not."""


def look(seen: Seen) -> Finding | None:
    """Far beyond the largest of the steps before. Asked after every step."""
    *before, value = seen.memory.recent.get(KL_MAX, [0.0])
    first = not before and seen.state.step == 1
    if not first and len(before) < seen.limits.window:
        return None
    largest = max(before, default=0.0)
    if value < seen.limits.kl_token or math.log1p(value) < _TIMES * math.log1p(largest):
        return None
    at = seen.farthest
    where = "" if at is None else f" (token {at.place + 1} of a completion of row {at.question_id})"
    usual = (
        "before it had moved" if first else f"and in the steps before none more than {largest:.3g}"
    )
    return Finding(
        "KL_TOKEN",
        value,
        f"one token lies {value:.3g} nats from the step-0 policy{where}, {usual}; look at the "
        "completion: where the token is not as it was sampled (template, end token, temperature, "
        "precision) correct that, else lower lr",
        {"value": value, "before": largest},
        _of(at),
    )


def _of(at: Farthest | None) -> Order:
    def order(one: Judged) -> tuple[float, ...]:
        found = at is not None and (one.rollout.question_id, one.rollout.sample) == at[1:3]
        return (0.0 if found else 1.0, *longest(one))

    return order
