"""The envelope in force (memory admission): a kind's estimate, corrected by what runs really used.

    own        the job ran before, and was stopped for memory perhaps: what it used then
    same       the same experiment ran before: what it used
    kind       others of its kind ran: the estimate, times the largest share they used of theirs
    estimate   nothing ran yet

What a run used is what its own processes held at most; of one that ran before that was measured,
the machine's peak less what was in use before its engine was started. Knows no reading of free
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import RowMapping

from engine.contract.envelope import Envelope
from engine.contract.errors import ConfigError
from engine.contract.known import real
from engine.contract.registry import get_kind
from worker.estimate.history import Done, History

MARGIN = 1.1
"""A run that used so much once may use a tenth more the next time."""
LEAST_SHARE, MOST_SHARE = 0.5, 4.0
"""Bounds of a correction: other work on the box is in a peak of before, too."""
LOOKED_AT = 5

Basis = Literal["own", "same", "kind", "estimate"]


class Need(NamedTuple):
    """Memory that a job needs at most."""

    gb: float
    basis: Basis
    estimate: Envelope | None
    """Part by part, before any correction."""


def need_of(history: History, candidate: RowMapping) -> Need | None:
    """What a queued job needs; None when nothing is known about it."""
    estimate = _estimate(candidate["kind"], candidate["config"])
    own = used_gb(candidate["result"])
    if own is not None:
        return Need(own * MARGIN, "own", estimate)
    same = [used for used, _ in _used(history.same(candidate["config_hash"]))]
    if same:
        return Need(max(same) * MARGIN, "same", estimate)
    if estimate is None:
        return None
    shares = [
        used / theirs.total
        for used, done in _used(history.of_kind(candidate["kind"]))
        if (theirs := _estimate(done.kind, done.config)) is not None and theirs.total > 0
    ]
    if shares:
        share = min(MOST_SHARE, max([LEAST_SHARE, *shares]))
        return Need(estimate.total * share, "kind", estimate)
    return Need(estimate.total, "estimate", estimate)


def used_gb(result: Mapping[str, Any]) -> float | None:
    """What a run itself used at most, from its memory trace.

    >>> used_gb({"mem_trace": {"total_gb": 25, "headroom_at_spawn_gb": 20, "peak_used_gb": 9}})
    4.0
    >>> used_gb({"mem_trace": {"peak_used_gb": 24, "own_peak_gb": 2.2}})
    2.2
    """
    trace = result.get("mem_trace")
    if not isinstance(trace, Mapping):
        return None
    own = real(trace.get("own_peak_gb"))
    if own is not None:
        return own
    try:
        before = trace["total_gb"] - trace["headroom_at_spawn_gb"]
        return float(max(0, trace["peak_used_gb"] - before))
    except (KeyError, TypeError):
        return None


def _used(done: Sequence[Done]) -> list[tuple[float, Done]]:
    """(GB used, run) of those that say it."""
    return [(used, one) for one in done[:LOOKED_AT] if (used := used_gb(one.result)) is not None]


def _estimate(kind_name: str, config: Mapping[str, Any]) -> Envelope | None:
    """The kind's own estimate; None also for a config that does not hold any more."""
    try:
        kind = get_kind(kind_name)
        return kind.envelope(kind.config.model_validate(config))
    except (ConfigError, ValueError):
        return None


def needs_server_program(row: RowMapping) -> bool:
    """Whether the job may start the program that serves models."""
    try:
        kind = get_kind(row["kind"])
        config = kind.config.model_validate(row["config"])
        return kind.needs_server_program(config) and not kind.check(config)
    except (ConfigError, ValueError):
        return False
