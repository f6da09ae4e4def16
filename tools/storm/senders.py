"""Who puts jobs in: through the web process, or by a program of its own; both get killed over it.

Every request has an idempotency key. What was acknowledged must be there; what was not is sent
again with the same key, and must be there once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import time
from itertools import count

from tools.storm.place import Place, Victim, eventually
from worker.access import Scope, new_token
from worker.db.connection import Database
from worker.queue import control
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs

_CLIENT_S = 0.02
"""Seconds in which a client enqueues a few jobs."""


class Senders:
    """Numbers every job once: job n has seed n and key `key-n`."""

    def __init__(self, place: Place, db: Database) -> None:
        self._place = place
        self._db = db
        self._numbers = count(1)
        self._token = new_token(db, Scope.OPERATE, actor="storm", now=time.time()).secret
        self._web: Victim | None = None
        self.sent: dict[int, int] = {}
        """Number → job id, as acknowledged."""
        self.cancelled: set[int] = set()
        self.wrong: list[str] = []

    def waiting(self) -> int:
        """Jobs in the queue now."""
        return jobs.counts(self._db)[State.QUEUED]

    def send_family(self, size: int) -> None:
        """One job and others that run after it, so that there is a follow-up to strike."""
        parents: list[int] = []
        for _ in range(size):
            number = next(self._numbers)
            job_id = self._enqueue(number, after=parents[-1:])
            parents.append(job_id)

    def struck(self, kind: str, chance: float) -> None:
        """Kill a sender in the middle of sending; then send again what nobody acknowledged."""
        if kind == "web":
            self._strike_web(chance)
        else:
            self._strike_client(chance)

    def thin_out(self, keep: int) -> None:
        """Cancel what was never started, but for the first `keep` of it."""
        fresh = [row for row in jobs.next_jobs(self._db, limit=100_000) if row.attempt == 0]
        for row in reversed(fresh[keep:]):
            control.cancel(self._db, row.id, actor="storm")
            self.cancelled.add(row.id)

    def close(self) -> None:
        """No web process is left."""
        if self._web is not None:
            self._web.send(signal.SIGKILL)
            self._web.ended()
            self._web = None

    # --- a program of its own ---

    def _strike_client(self, chance: float) -> None:
        first = next(self._numbers)
        notes = self._place.notes / f"acknowledged-{first}"
        client = self._place.client(first, notes)
        eventually(lambda: notes.exists() and notes.read_bytes(), "the client's first job")
        time.sleep(chance * _CLIENT_S)
        client.send(signal.SIGKILL)
        client.ended()
        lines = [line.split() for line in notes.read_text().splitlines(keepends=True)]
        for number, job_id in lines:
            self._acknowledge(int(number), int(job_id))
        last = int(lines[-1][0]) + 1  # the one that it may have been writing
        while next(self._numbers) < last:
            pass
        self._enqueue(last)

    # --- through the web process ---

    def _strike_web(self, chance: float) -> None:
        if self._web is None or not self._web.alive():
            self._web = self._place.web()
        number = next(self._numbers)
        connection = http.client.HTTPConnection("127.0.0.1", self._place.port, timeout=30)
        asked = {"kind": "squall", "config": self._config(number), "if_parent_fails": "wait"}
        body = json.dumps(asked)
        headers = {"Authorization": f"Bearer {self._token}", **_headers(number)}
        connection.request("POST", "/api/v1/jobs", body, headers)
        time.sleep(chance * 0.02)
        self._web.send(signal.SIGKILL)
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = connection.getresponse()
            if answer.status in {200, 201}:
                self._acknowledge(number, json.loads(answer.read())["id"])
        connection.close()
        self._web.ended()
        self._enqueue(number)

    # --- both ---

    def _enqueue(self, number: int, after: list[int] | None = None) -> int:
        job_id = enqueue(
            self._db,
            "squall",
            self._config(number),
            actor="storm",
            key=f"key-{number}",
            after=after or [],
            if_parent_fails="wait",
        )
        self._acknowledge(number, job_id)
        return job_id

    def _config(self, number: int) -> dict[str, object]:
        return {"seed": number, "notes": str(self._place.notes)}

    def _acknowledge(self, number: int, job_id: int) -> None:
        before = self.sent.setdefault(number, job_id)
        if before != job_id:
            self.wrong.append(f"key-{number} brought forth job {before} and job {job_id}")


def _headers(number: int) -> dict[str, str]:
    return {"Content-Type": "application/json", "Idempotency-Key": f"key-{number}"}
