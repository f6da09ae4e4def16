"""Whatever is asked of the queue, it is done or explained by field, and never half done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.contract.errors import ConfigError, NightlaneError
from worker.db.connection import Database
from worker.queue import control, order
from worker.queue.states import State
from worker.queue.submission import submission
from worker.queue.submit import enqueue, submit
from worker.read import feed, jobs

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"priority": 101}, "priority: input should be less than or equal to 100 (got 101)"),
        ({"priority": -101}, "priority: input should be greater than or equal to -100"),
        ({"priority": 10**30}, "priority: input should be less than or equal to 100"),
        ({"priority": True}, "priority: takes a whole number, and this is read as"),
        ({"priority": "5"}, "priority: takes a whole number, and this is read as"),
        ({"not_before": 1.0}, "not_before: is long past"),
        ({"not_before": True}, "not_before: is no time"),
        ({"not_before": [1]}, "not_before: is no time"),
        ({"not_before": float("nan")}, "not_before: is no time"),
        ({"not_before": 10**400}, "not_before: is no time"),
        ({"after": [0]}, "after.0: input should be greater than or equal to 1"),
        ({"after": [2**31]}, "after.0: input should be less than or equal to 2147483647"),
        ({"after": ["1"]}, "after.0: takes a whole number, and this is read as"),
        ({"after": [1] * 101}, "after: list should have at most 100 items"),
        ({"after": [7]}, "after: is no job (got 7); name jobs that exist"),
        (
            {"if_parent_fails": "panic"},
            "if_parent_fails: input should be 'cancel', 'run' or 'wait'",
        ),
        ({"tags": [""]}, "tags: holds ''"),
        ({"tags": ["a\x1b[2J"]}, "tags: holds"),
        ({"tags": ["x" * 41]}, "tags: holds"),
        ({"tags": [str(n) for n in range(21)]}, "tags: list should have at most 20 items"),
        ({"name": " "}, "name: must have 1 to 120 characters"),
        ({"name": "\u200b\u2060"}, "name: has no visible character (got"),
        ({"name": "\u0301"}, "name: has no visible character (got"),
        ({"name": "a\x1b[2Jb"}, "name: holds a control character (got 'a\\x1b[2Jb')"),
        ({"name": "a\nb"}, "name: holds a control character (got"),
        ({"name": "a\u2028b"}, "name: holds a control character (got"),
        ({"name": "a\0b"}, "name: holds a null byte (got 'a\\x00b'); leave that character out"),
        ({"config": {"reads": "a\0b"}}, "config.reads: holds a null byte (got 'a\\x00b')"),
        ({"force": "yes"}, "force: takes true or false, and this is read as"),
        ({"prioritty": 3}, "prioritty: is not a setting; did you mean priority?"),
        ({"config": {"pace": "x" * 10_000_000}}, "config: is too large for a config (got '100000"),
    ],
)
@pytest.mark.requirement("JB-05")
def test_what_cannot_be_a_job_is_refused_by_name(
    db: Database, raw: dict[str, Any], words: str
) -> None:
    """Field, value and remedy; nothing is written."""
    with pytest.raises(ConfigError) as refusal:
        submit(db, submission({"kind": "tally", **raw}), actor="test")

    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 600
    assert feed.last_change_id(db) == 0


@pytest.mark.parametrize("name", ["🌙", "👩‍🔬 run", "الليلة", "הלילה \u200f1", "夜", "–", "a\\b"])
def test_a_name_may_be_in_any_script(db: Database, name: str) -> None:
    """What joins or turns visible characters belongs to them."""
    number = enqueue(db, "tally", {}, actor="test", name=name)

    assert jobs.get_job(db, number).name == name


def refused(verb: Callable[[], object]) -> str | None:
    """How the queue explained its refusal; None when it did what was asked."""
    try:
        verb()
    except NightlaneError as error:
        return str(error)
    return None


FIELDS = st.sampled_from(
    ["kind", "config", "name", "priority", "not_before", "after", "if_parent_fails", "tags"]
)


@given(raw=st.dictionaries(FIELDS | st.text(max_size=6), TREES, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
def test_no_request_breaks_the_door(db: Database, raw: dict[str, Any]) -> None:
    """A job, or an error that explains itself; the counters always say what the table says."""
    before = jobs.counts(db)[State.QUEUED]

    refusal = refused(
        lambda: submit(
            db, submission({"kind": "tally", "config": {}, "force": True, **raw}), actor="test"
        )
    )

    assert refusal != ""
    assert jobs.counts(db)[State.QUEUED] == before + (refusal is None)


@given(
    raw=st.dictionaries(
        st.sampled_from(["priority", "not_before", "after", "if_parent_fails", "tags", "before"]),
        TREES,
        max_size=3,
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
def test_no_change_and_no_move_breaks_the_door(db: Database, raw: dict[str, Any]) -> None:
    """The job stays queued, and what was refused changed nothing."""
    number = enqueue(db, "tally", {}, actor="test", force=True)
    before = jobs.get_job(db, number)
    for verb in (control.edit, order.move):
        assert refused(partial(verb, db, number, raw, actor="test")) != ""
    after = jobs.get_job(db, number)
    assert after.state is State.QUEUED
    assert after.config == before.config
    control.cancel(db, number, actor="test")
