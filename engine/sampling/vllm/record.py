"""What a run writes down of its servers: each sync, each call that went out, each rest.

Into the run's events and metrics, and into its trace where it has one. Knows no kind.
"""

from __future__ import annotations

import time

from engine.contract.trace import TraceWriter
from engine.models.policy import Policy
from engine.run.session import Attempt
from engine.sampling.vllm.lane import Rested
from engine.sampling.vllm.line import CallEvent
from engine.sampling.vllm.sync.proof import Synced

_NAMED = 3
"""Requests that a note names."""


class Syncs:
    """Writes each sync down: how long it took, and the proof's numbers once a step."""

    def __init__(self, attempt: Attempt, policy: Policy, trace: TraceWriter) -> None:
        self._attempt = attempt
        self._policy = policy
        self._trace = trace
        self._step = 0

    def __call__(self, synced: Synced) -> None:
        step = self._policy.version
        seconds = round(synced.seconds, 4)
        told = {"mode": synced.mode, "bytes": synced.bytes, "tries": synced.tries}
        self._attempt.events.write("span", name="weight-sync", seconds=seconds, step=step, **told)
        now = time.monotonic()
        self._trace.span("weight-sync", now - synced.seconds, now, step=step, **told)
        if step <= self._step:  # a checkpoint was taken back, or nothing was trained yet
            return
        self._step = step
        values = {
            "time/sync_s": synced.seconds,
            "sync/gap": synced.compared.gap,
            "sync/bytes": float(synced.bytes),
        }
        if synced.compared.moved is not None:
            values["sync/moved"] = synced.compared.moved
        self._attempt.metric(step, values)


class Calls:
    """Writes down what servers were asked, so that anybody can see under which decoding and seeds a
    completion was drawn, and says what did not go at once.
    """

    def __init__(self, attempt: Attempt, trace: TraceWriter) -> None:
        self._attempt = attempt
        self._trace = trace

    def __call__(self, call: CallEvent) -> None:
        told = {
            "server": call.server,
            "requests": list(call.requests),
            "attempt": call.attempt,
            "seed": call.seed,
            "decoding": dict(call.decoding),
        }
        self._trace.mark(f"rollout-call: {call.what}", **told, problem=call.problem)
        if call.what != "sent":
            ids = ", ".join(call.requests[:_NAMED])
            more = f" and {len(call.requests) - _NAMED} more" * (len(call.requests) > _NAMED)
            self._attempt.warn(
                "SERVER_CALL",
                f"{call.what} at {call.server}, try {call.attempt}: {ids}{more}"
                + (f"; {call.problem}" if call.problem else ""),
            )


class Rests:
    """Writes down what a colocated engine gave back before the trainer learnt."""

    def __init__(self, attempt: Attempt, policy: Policy) -> None:
        self._attempt = attempt
        self._policy = policy

    def __call__(self, rested: Rested) -> None:
        self._attempt.events.write(
            "span",
            name="engine-rest",
            seconds=round(rested.seconds, 4),
            step=self._policy.version + 1,
            given_back_gb=round(rested.given_back_gb, 3),
        )
