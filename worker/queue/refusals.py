"""Refusals of the queue: the request is well-formed, but what stands in the queue forbids it.

Each one says what stands in the way and the way out; `code` is the word for programs, `facts`
what they need beside it. Knows no HTTP status and no exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.contract.errors import NightlaneError


class QueueRefusedError(NightlaneError):
    """The queue's answer to a request that cannot be granted as things stand."""

    code = "refused"

    @property
    def facts(self) -> Mapping[str, Any]:
        """What a program may want to know beside the sentence."""
        return {}


class WrongStateError(QueueRefusedError):
    """The job is in a state in which this cannot be done."""

    code = "wrong_state"

    def __init__(self, job_id: int, state: str, remedy: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is {state}; {remedy}")

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"job_id": self.job_id, "state": self.state}


class NoEventsError(QueueRefusedError):
    """There is nothing to rebuild a result from, and a result that would be lost by it."""

    code = "no_events"

    def __init__(self, job_id: int, events: Path) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} has no events at {events}; its result stays as it is; "
            "put its run directory back first"
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"job_id": self.job_id}


class AlreadyTriedError(QueueRefusedError):
    """The same kind, settings and data have a finished result."""

    code = "already_tried"

    def __init__(self, job_id: int, verdict: str | None, point: str = "") -> None:
        self.job_id = job_id
        self.verdict = verdict
        came_out = f"its verdict: {verdict}" if verdict else "it succeeded"
        which = f"the point {point} " if point else ""
        super().__init__(
            f"{which or 'this '}was tried already: job {job_id} has the same kind, settings and "
            f"data, and {came_out}; look at it with: cockpit show {job_id}, or force it"
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"job_id": self.job_id, "verdict": self.verdict}


class AlreadyQueuedError(AlreadyTriedError):
    """The same kind, settings and data wait in the queue, or run."""

    code = "already_queued"

    def __init__(self, job_id: int, state: str, point: str = "") -> None:
        super().__init__(job_id, None, point)
        self.state = state
        which = f"the point {point}" if point else "this"
        stands = "waits in the queue" if state == "queued" else "runs"
        self.args = (
            f"{which} {stands} already: job {job_id} has the same kind, settings and data, and "
            f"will have the same result; look at it with: cockpit show {job_id}, or force it",
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"job_id": self.job_id, "state": self.state}


class KeyReusedError(QueueRefusedError):
    """An idempotency key came again with another request."""

    code = "key_reused"

    def __init__(self, key: str, owner: str) -> None:
        self.key = key
        super().__init__(
            f"the key {key!r} was used for {owner} with another request; "
            "give each request a key of its own"
        )


class CycleError(QueueRefusedError):
    """A job would wait for itself."""

    code = "cycle"

    def __init__(self, job_id: int, parent_id: int) -> None:
        self.job_id = job_id
        self.parent_id = parent_id
        super().__init__(
            f"job {job_id} cannot wait for itself; leave it out of the jobs it runs after"
            if job_id == parent_id
            else f"job {job_id} cannot wait for job {parent_id}: that one waits for job {job_id}; "
            "leave one of the two out"
        )


class ParentFailedError(QueueRefusedError):
    """The job would be cancelled at once, because what it waits for has ended without success.

    `retried`: the job itself, where it is one that is over and cannot be changed any more.
    """

    code = "parent_failed"

    def __init__(self, parent_id: int, state: str, retried: int | None = None) -> None:
        self.parent_id = parent_id
        all_the_same = (
            "if_parent_fails run" if retried is None else f"cockpit retry {retried} --fresh"
        )
        super().__init__(
            f"job {parent_id} is {state}, and this job runs only after its success; "
            f"try that one again first: cockpit retry {parent_id}, or run this one all the same: "
            f"{all_the_same}"
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"parent_id": self.parent_id}
