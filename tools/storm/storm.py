"""The storm itself: keep the queue filled, wait for a moment, strike, let the queue recover."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.storm.moments import Moment, Phase, moment
from tools.storm.place import STOPPED_ITSELF, Place, StormError, Victim, eventually
from tools.storm.senders import Senders
from tools.storm.usurp import usurp, written_since
from worker.db.connection import Database
from worker.lane.process_id import ProcessIdentity
from worker.queue import control
from worker.queue.states import State
from worker.read import jobs

QUEUE = 6
"""Queued jobs that the storm keeps ready."""

_SPIN_S = 20.0
"""Seconds that a moment is waited for before another one is tried."""

_ENGINE_LIVES = (Phase.BRING_UP, Phase.SAMPLING, Phase.TRAINING, Phase.CHECKPOINT)


@dataclass
class Log:
    """What was struck, and what should never happen."""

    hits: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    late_stopped: int = 0
    """Supervisors that were taken over unnoticed and then stopped themselves."""
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Strikes of every kind: `kill -9`, SIGSTOP, takeover."""
        return sum(self.hits.values())

    def per_phase(self) -> dict[Phase, int]:
        """Strikes in each phase."""
        found = dict.fromkeys(Phase, 0)
        for (phase, _), n in self.hits.items():
            found[phase] += n
        return found


class Storm:
    """One lane under fire."""

    def __init__(self, place: Place, db: Database, seed: int) -> None:
        self.place = place
        self.db = db
        self.log = Log()
        self.senders = Senders(place, db)
        self._random = random.Random(seed)
        self._drain: Victim | None = None
        self._lane = place.settings.lane
        self._strikes: dict[str, Callable[[Moment], Moment]] = {
            "drain": self._kill_drain,
            "engine": self._kill_engine,
            "drain and engine": self._kill_both,
            "grandchild": self._kill_grandchild,
            "drain stopped past its lease": self._stop_drain,
            "late supervisor": self._usurp,
        }

    def rage(self, strikes: int, deadline: float) -> None:
        """Strike until the number is reached or the time (monotonic seconds) is over."""
        while self.log.kills < strikes and time.monotonic() < deadline:
            phase = min(self.log.per_phase().items(), key=lambda item: (item[1], item[0]))[0]
            if phase is Phase.ENQUEUE:
                self._strike_sender()
            else:
                self._strike(phase)

    def calm(self) -> None:
        """Let the queue run empty: whatever an engine's death failed is retried."""
        self._end_drain()
        self.senders.close()
        self.senders.thin_out(keep=2 * QUEUE)
        while True:
            self._retry_failed()
            if not self._open():
                return
            drain = self.place.drain(wait=False)
            drain.ended(600)

    # --- one strike ---

    def _strike(self, phase: Phase) -> None:
        self._provide()
        found = self._await(phase)
        if found is None:
            return
        victim = self._random.choice(self._victims(phase))
        hit = self._strikes[victim](found)
        self.log.hits[hit.phase, victim] += 1
        self._retry_failed()

    def _victims(self, phase: Phase) -> list[str]:
        if phase in _ENGINE_LIVES:
            return list(self._strikes)
        return ["drain", "drain", "drain stopped past its lease", "late supervisor"]

    def _await(self, phase: Phase) -> Moment | None:
        """The moment at which the lane is in that phase; None when it does not come."""
        deadline = time.monotonic() + _SPIN_S
        was_running = False
        while time.monotonic() < deadline:
            now = moment(self.db, self._lane)
            held = self._drain is not None and now.holder == self._drain.pid
            if held and now.phase is phase and (now.job_id or was_running):
                return now
            was_running |= held and now.job_id != 0
            if self._drain is not None and not self._drain.alive():
                self.log.wrong.append(f"a drain ended by itself: {self._drain.ended()}")
                self._drain = None
                return None
            time.sleep(0.0005)
        return None

    def _kill_drain(self, found: Moment) -> Moment:
        drain = self._running_drain()
        drain.send(signal.SIGKILL)
        drain.ended()
        self._drain = None
        # What it was in when it died, not what it was in when we looked.
        now = moment(self.db, self._lane)
        return now if now.job_id in {0, found.job_id} else found

    def _kill_engine(self, found: Moment) -> Moment:
        engine = _process(found.engine)
        if engine:
            engine.kill()
        return found

    def _kill_both(self, found: Moment) -> Moment:
        self._kill_engine(found)
        return self._kill_drain(found)

    def _kill_grandchild(self, found: Moment) -> Moment:
        note = self.place.notes / f"grandchild-{found.job_id}"
        if note.exists() and note.read_text():
            grandchild = ProcessIdentity.of(int(note.read_text()))
            if grandchild:
                grandchild.kill()
        return found

    def _stop_drain(self, found: Moment) -> Moment:
        """SIGSTOP until the lease is over, a new drain, SIGCONT: one of the two goes on."""
        sleeper = self._running_drain()
        sleeper.send(signal.SIGSTOP)
        now = moment(self.db, self._lane)
        time.sleep(self.place.settings.lease_s + 0.05)
        self._drain = self.place.drain()
        if self._random.random() < 0.5:
            time.sleep(self._random.random() * 0.2)
            sleeper.send(signal.SIGCONT)
        eventually(
            lambda: not sleeper.alive() or not self._running_drain().alive(),
            "one of two drains to give way",
        )
        sleeper.send(signal.SIGCONT)
        if sleeper.alive():
            self._drain.ended()
            self._drain = sleeper
        return now if now.job_id else found

    def _usurp(self, found: Moment) -> Moment:
        """A takeover that the holder does not see: it must stop itself, and write nothing more."""
        late = self._running_drain()
        taken = usurp(self.db, self._lane)
        status = late.ended()
        self._drain = None
        if status == STOPPED_ITSELF:
            self.log.late_stopped += 1
        else:
            self.log.wrong.append(f"a late supervisor ended with status {status}")
        self.log.wrong += written_since(self.db, taken, late.pid)
        return found._replace(phase=taken.phase) if taken.phase else found

    def _strike_sender(self) -> None:
        if self.senders.waiting() >= 10 * QUEUE:
            # A quick machine sends more than a lane under fire works off.
            self.senders.thin_out(keep=2 * QUEUE)
        kind = self._random.choice(["web", "client"])
        self.senders.struck(kind, self._random.random())
        self.log.hits[Phase.ENQUEUE, kind] += 1

    # --- between strikes ---

    def _provide(self) -> None:
        """A drain that lives, and enough to do."""
        if self.senders.waiting() < QUEUE:
            self.senders.send_family(QUEUE)
        if self._drain is None or not self._drain.alive():
            self._drain = self.place.drain()

    def _running_drain(self) -> Victim:
        if self._drain is None:
            raise StormError("no drain runs")
        return self._drain

    def _end_drain(self) -> None:
        if self._drain is not None:
            self._drain.send(signal.SIGTERM)
            self._drain.ended()
            self._drain = None

    def _retry_failed(self) -> None:
        for row in jobs.list_jobs(self.db, state=State.FAILED):
            control.retry(self.db, row.id, actor="storm")

    def _open(self) -> int:
        counted = jobs.counts(self.db)
        return counted[State.QUEUED] + counted[State.RUNNING]


def _process(text: str | None) -> ProcessIdentity | None:
    return ProcessIdentity.parse(text) if text else None
