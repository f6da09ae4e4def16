"""The queue against a model in plain Python: a state machine that Hypothesis drives.

The model is a list and some dictionaries; it knows nothing of ranks, indexes or SQL. Two lanes
run jobs at once, the clock steps back and forth, and after each verb table and model must agree
in states, order, deferrals, counters, audit and attempts.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlmodel import SQLModel

from worker.attempt.settlement import Verdict
from worker.attempt.writing import write_verdict
from worker.db.connection import Database
from worker.db.tables import attempt, job, job_event, lane, state_count
from worker.lane.lease import Lease, LeaseLostError
from worker.queue import control, order, pausing
from worker.queue.deferral import wake_due
from worker.queue.dependencies import IfParentFails
from worker.queue.refusals import CycleError, ParentFailedError, WrongStateError
from worker.queue.states import State
from worker.queue.submit import claim, enqueue

LANES = ("one", "two")
START = 2_000_000_000.0
OUTCOMES = (State.SUCCEEDED, State.FAILED, State.ABORTED, State.QUEUED)

which = st.integers(0, 10_000)
priorities = st.sampled_from([-100, 0, 0, 0, 7])


@dataclass
class Modelled:
    """One job as the model knows it."""

    state: State = State.QUEUED
    priority: int = 0
    parents: tuple[int, ...] = ()
    policy: IfParentFails = IfParentFails.CANCEL
    not_before: float | None = None
    timed: bool = False
    """It waits for its start time; a clock that is set back later does not defer it again."""
    attempts: int = 0
    audit: int = 1
    moved: bool = False
    asked: str | None = None
    lane: str | None = None


@dataclass
class Model:
    """The whole queue."""

    jobs: dict[int, Modelled] = field(default_factory=dict)
    line: list[int] = field(default_factory=list)
    """Queued jobs in their order, deferred ones too."""
    paused: bool = False

    def satisfied(self, parent: int, policy: IfParentFails) -> bool:
        state = self.jobs[parent].state
        return state is State.SUCCEEDED or (policy is IfParentFails.RUN and state.final)

    def fails(self, parent: int, policy: IfParentFails) -> bool:
        state = self.jobs[parent].state
        lost = state.final and state is not State.SUCCEEDED
        return policy is IfParentFails.CANCEL and lost

    def reason(self, number: int) -> str | None:
        one = self.jobs[number]
        if any(not self.satisfied(parent, one.policy) for parent in one.parents):
            return "WAITING_FOR"
        return "NOT_BEFORE" if one.timed else None

    def append(self, number: int) -> None:
        """Behind every queued job of its priority or a higher one."""
        mine = self.jobs[number].priority
        place = sum(self.jobs[other].priority >= mine for other in self.line)
        self.line.insert(place, number)

    def ended(self, number: int, now: float) -> None:
        """What the end of a job means for those that run after it."""
        for child, one in self.jobs.items():
            if one.state is not State.QUEUED or number not in one.parents:
                continue
            if self.fails(number, one.policy):
                one.state = State.CANCELLED
                one.audit += 1
                one.timed = False
                self.line.remove(child)
                self.ended(child, now)
            else:
                one.timed = one.not_before is not None and one.not_before > now

    def waits_for(self, number: int, target: int) -> bool:
        """Whether `number` waits, directly or not, for `target`."""
        parents = self.jobs[number].parents
        return target in parents or any(self.waits_for(parent, target) for parent in parents)

    def next(self) -> int | None:
        if self.paused:
            return None
        return next((number for number in self.line if self.reason(number) is None), None)


class QueueMachine(RuleBasedStateMachine):
    """Set `database` before running it."""

    database: Database

    @initialize()
    def begin(self) -> None:
        self.now = START
        self.model = Model()
        self._empty()
        self.clock = mock.patch("time.time", self._time)
        self.clock.start()
        with self.database.write_tx() as conn:
            conn.execute(sa.insert(lane), [{"name": name, "fence": 0} for name in LANES])
        self.leases = {name: Lease(self.database, name, 0) for name in LANES}

    def teardown(self) -> None:
        if hasattr(self, "clock"):
            self.clock.stop()

    def _empty(self) -> None:
        with self.database.write_tx() as conn:
            for table in reversed(SQLModel.metadata.sorted_tables):
                if table.name == "state_count":
                    conn.execute(sa.update(state_count).values(n=0))
                elif table.name == "job":
                    conn.execute(sa.update(job).values(clone_of=None))
                    conn.execute(sa.delete(job))
                else:
                    conn.execute(sa.delete(table))

    # --- verbs ---

    @rule(
        priority=priorities,
        parents=st.lists(which, max_size=2),
        policy=st.sampled_from(IfParentFails),
        delay=st.sampled_from([None, None, None, 50, 4000]),
    )
    def enqueue(
        self, priority: int, parents: list[int], policy: IfParentFails, delay: int | None
    ) -> None:
        after = sorted({self._pick(number) for number in parents} if self.model.jobs else set())
        placement: dict[str, Any] = {
            "priority": priority,
            "after": after,
            "if_parent_fails": policy,
            "not_before": None if delay is None else f"+{delay}s",
        }
        refused = any(self.model.fails(parent, policy) for parent in after)
        with _expecting(ParentFailedError if refused else None):
            number = enqueue(self.database, "tally", {}, actor="machine", force=True, **placement)
            starts = None if delay is None else self.now + delay
            self.model.jobs[number] = Modelled(
                priority=priority,
                parents=tuple(after),
                policy=policy,
                not_before=starts,
                timed=starts is not None,
            )
            self.model.append(number)

    @rule(name=st.sampled_from(LANES))
    def claim(self, name: str) -> None:
        if any(one.lane == name for one in self.model.jobs.values()):
            return
        lease = self.leases[name]
        for one in self.model.jobs.values():
            due = one.not_before is not None and one.not_before <= self.now
            one.timed = one.timed and not due
        with self.database.write_tx() as conn:
            wake_due(conn, self.now)
            taken = claim(conn, lane=name, fence=lease.fence + 1, actor="machine")
            if taken:
                lease.advance(conn, taken.job_id)
        assert (taken and taken.job_id) == self.model.next()
        if taken:
            lease.fence = taken.fence
            one = self.model.jobs[taken.job_id]
            one.state, one.lane, one.asked = State.RUNNING, name, None
            one.attempts += 1
            one.audit += 1
            self.model.line.remove(taken.job_id)

    @precondition(lambda self: any(one.lane for one in self.model.jobs.values()))
    @rule(name=st.sampled_from(LANES), to=st.sampled_from(OUTCOMES))
    def settle(self, name: str, to: State) -> None:
        running = [n for n, one in self.model.jobs.items() if one.lane == name]
        if not running:
            return
        number = running[0]
        one = self.model.jobs[number]
        settled = write_verdict(self.leases[name], number, one.attempts, Verdict(to, "settled"))
        if to is State.QUEUED and one.asked == "cancel":
            to = State.CANCELLED
        assert settled.state is to
        one.state, one.lane, one.asked = to, None, None
        one.audit += 1
        if to is State.QUEUED:
            self._returned(number)
        else:
            self.model.ended(number, self.now)

    @precondition(lambda self: any(one.lane for one in self.model.jobs.values()))
    @rule(name=st.sampled_from(LANES), to=st.sampled_from(OUTCOMES))
    def settle_under_a_stale_fence(self, name: str, to: State) -> None:
        running = [n for n, one in self.model.jobs.items() if one.lane == name]
        if running:
            late = Lease(self.database, name, self.leases[name].fence - 1)
            with _expecting(LeaseLostError):
                write_verdict(late, running[0], 1, Verdict(to, "late"))

    @precondition(lambda self: self.model.jobs)
    @rule(number=which)
    def cancel(self, number: int) -> None:
        number = self._pick(number)
        one = self.model.jobs[number]
        over = one.state.final and one.state is not State.CANCELLED
        with _expecting(WrongStateError if over else None):
            done = control.cancel(self.database, number, actor="machine")
            if one.state is State.QUEUED:
                assert done is control.Done.AT_ONCE
                one.state, one.timed = State.CANCELLED, False
                one.audit += 1
                self.model.line.remove(number)
                self.model.ended(number, self.now)
            elif one.state is State.RUNNING and one.asked != "cancel":
                assert done is control.Done.ASKED
                one.asked = "cancel"
                one.audit += 1
            else:
                assert done is control.Done.BEFORE

    @precondition(lambda self: self.model.jobs)
    @rule(number=which)
    def requeue(self, number: int) -> None:
        number = self._pick(number)
        one = self.model.jobs[number]
        with _expecting(WrongStateError if one.state.final or one.asked == "cancel" else None):
            done = control.requeue(self.database, number, actor="machine")
            if one.state is State.RUNNING and one.asked is None:
                assert done is control.Done.ASKED
                one.asked = "requeue"
                one.audit += 1
            else:
                assert done is control.Done.BEFORE

    @precondition(lambda self: self.model.jobs)
    @rule(number=which)
    def retry(self, number: int) -> None:
        number = self._pick(number)
        one = self.model.jobs[number]
        expected: type[Exception] | None = None
        if one.state not in {State.FAILED, State.CANCELLED, State.ABORTED}:
            expected = WrongStateError
        elif any(self.model.fails(parent, one.policy) for parent in one.parents):
            expected = ParentFailedError
        with _expecting(expected):
            control.retry(self.database, number, actor="machine")
            one.state = State.QUEUED
            one.audit += 1
            one.timed = one.not_before is not None and one.not_before > self.now
            self._returned(number)

    @rule(resume=st.booleans())
    def pause(self, *, resume: bool) -> None:
        if resume:
            assert pausing.resume(self.database, actor="ada") is self.model.paused
        else:
            assert pausing.pause(self.database, actor="machine") is not self.model.paused
        self.model.paused = not resume

    @precondition(lambda self: len(self.model.line) > 1)
    @rule(number=which, other=which, to=st.sampled_from(["before", "after", "top", "bottom"]))
    def move(self, number: int, other: int, to: str) -> None:
        line, jobs = self.model.line, self.model.jobs
        mine, theirs = line[number % len(line)], line[other % len(line)]
        raw: dict[str, Any] = {"to": to} if to in {"top", "bottom"} else {to: theirs}
        order.move(self.database, mine, raw, actor="machine")
        if to in {"top", "bottom"}:
            theirs = next(n for n in (line if to == "top" else line[::-1]) if n != mine)
            beyond = jobs[mine].priority - jobs[theirs].priority
            if (beyond > 0 and to == "top") or (beyond < 0 and to == "bottom"):
                return
        elif mine == theirs:
            return
        line.remove(mine)
        line.insert(line.index(theirs) + (to in {"after", "bottom"}), mine)
        jobs[mine].priority, jobs[mine].moved = jobs[theirs].priority, True
        jobs[mine].audit += 1

    @precondition(lambda self: self.model.line)
    @rule(number=which, parents=st.lists(which, max_size=2), priority=priorities)
    def edit(self, number: int, parents: list[int], priority: int) -> None:
        number = self.model.line[number % len(self.model.line)]
        one = self.model.jobs[number]
        after = sorted({self._pick(parent) for parent in parents})
        expected: type[Exception] | None = None
        if any(parent == number or self.model.waits_for(parent, number) for parent in after):
            expected = CycleError
        elif any(self.model.fails(parent, IfParentFails.CANCEL) for parent in after):
            expected = ParentFailedError
        with _expecting(expected):
            raw = {"after": after, "priority": priority}
            control.edit(self.database, number, raw, actor="machine")
            one.parents, one.policy, one.priority = tuple(after), IfParentFails.CANCEL, priority
            one.timed = one.not_before is not None and one.not_before > self.now
            one.audit += 1
            self._returned(number)

    @rule(seconds=st.sampled_from([10, 60, 3600, -3600]))
    def let_the_clock_step(self, seconds: int) -> None:
        self.now += seconds

    # --- what must hold after each of them ---

    @invariant()
    def table_and_model_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.database.read() as conn:
            rows = {row.id: row for row in conn.execute(sa.select(job))}
            counts = {row.state: row.n for row in conn.execute(sa.select(state_count))}
            audits = _counted(conn, job_event.c.job_id)
            attempts = _counted(conn, attempt.c.job_id)
        jobs = self.model.jobs
        assert {n: row.state for n, row in rows.items()} == {n: o.state for n, o in jobs.items()}
        assert counts == {s: sum(o.state is s for o in jobs.values()) for s in State}
        assert self._table_order(rows) == self.model.line
        assert {n: rows[n].defer_reason for n in self.model.line} == {
            n: self.model.reason(n) for n in self.model.line
        }
        assert all(rows[n].defer_reason is None for n in jobs if n not in self.model.line)
        assert audits == {n: one.audit for n, one in jobs.items()}
        ended = {n: o.attempts - (o.state is State.RUNNING) for n, o in jobs.items()}
        assert attempts == {n: count for n, count in ended.items() if count}

    # --- the machine's own ---

    def _time(self) -> float:
        return self.now

    def _pick(self, number: int) -> int:
        numbers = sorted(self.model.jobs)
        return numbers[number % len(numbers)]

    def _table_order(self, rows: dict[int, Any]) -> list[int]:
        queued = [row for row in rows.values() if row.state == State.QUEUED]
        return [row.id for row in sorted(queued, key=lambda r: (-r.priority, r.rank, r.id))]

    def _returned(self, number: int) -> None:
        """Back in line: nobody else changes places, and who was never moved stands by its id."""
        with self.database.read() as conn:
            rows = {row.id: row for row in conn.execute(sa.select(job))}
        before = [other for other in self.model.line if other != number]
        self.model.line = self._table_order(rows)
        assert [other for other in self.model.line if other != number] == before
        jobs = self.model.jobs
        peers = [n for n in self.model.line if jobs[n].priority == jobs[number].priority]
        if not any(jobs[n].moved for n in peers):
            assert peers == sorted(peers)


def _counted(conn: sa.Connection, owner: sa.Column[int]) -> dict[int, int]:
    found = conn.execute(sa.select(owner, sa.func.count()).group_by(owner))
    return {row[0]: row[1] for row in found}


@contextlib.contextmanager
def _expecting(error: type[Exception] | None) -> Any:
    """The body must raise exactly this; what it would have changed in the model stays undone."""
    if error is None:
        yield
        return
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
