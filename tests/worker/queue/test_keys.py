"""The same request under the same key is answered by the same job."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.queue.refusals import KeyReusedError
from worker.queue.submission import Submission, submission
from worker.queue.submit import Submitted, submit
from worker.queue.sweeps import submit_sweep
from worker.queue.tried import canonical_hash
from worker.read import jobs

pytestmark = pytest.mark.requirement("JB-03")


def wanted(**changed: Any) -> Submission:
    return submission({"kind": "tally", "config": {"steps": 2}, **changed})


def test_a_repeated_request_gets_the_first_job_also_when_that_is_over(db: Database) -> None:
    """Nothing is written, and nothing is judged again: its finished result is no obstacle."""
    first = submit(db, wanted(), actor="test", key="k-1")
    with by_hand(db) as hand:
        hand.run()

    again = submit(db, wanted(), actor="test", key="k-1")

    assert (first, again) == (Submitted(1, repeated=False), Submitted(1, repeated=True))
    assert len(jobs.list_jobs(db)) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"config": {"steps": 3}},
        {"name": "other"},
        {"priority": 1},
        {"not_before": "+1h"},
        {"clone_of": 1},
    ],
)
def test_a_key_with_another_request_is_refused(db: Database, changed: dict[str, Any]) -> None:
    """It names the job that the key belongs to; nothing is written."""
    submit(db, wanted(), actor="test", key="k-1")

    with pytest.raises(KeyReusedError, match="the key 'k-1' was used for job 1 with another"):
        submit(db, wanted(**changed), actor="test", key="k-1")

    assert len(jobs.list_jobs(db)) == 1


def test_a_key_that_was_used_before_what_a_job_began_from_counted_still_answers() -> None:
    """The hashes that stand in the table were made of everything else."""
    others = {name: getattr(wanted(), name) for name in Submission.model_fields}
    del others["clone_of"]

    assert wanted().body_hash() == canonical_hash(others)


def test_other_keys_and_no_key_make_jobs_of_their_own(db: Database) -> None:
    """A key is a promise about one request, not about its content."""
    forced = wanted(force=True)
    made = [submit(db, forced, actor="test", key=key).job_id for key in ("a", "b", None, None)]

    assert made == [1, 2, 3, 4]


def test_a_refused_request_leaves_its_key_free(db: Database) -> None:
    """The corrected request may come under the same key."""
    with pytest.raises(ConfigError):
        submit(db, wanted(config={"stepz": 2}), actor="test", key="k-1")

    assert submit(db, wanted(), actor="test", key="k-1") == Submitted(1, repeated=False)


def test_of_many_equal_requests_at_once_one_makes_a_job(db: Database) -> None:
    """A caller that lost its answer may ask as often as it likes."""
    found: list[Submitted] = []
    start = threading.Barrier(6)

    def caller() -> None:
        start.wait()
        found.append(submit(db, wanted(), actor="test", key="k-1"))

    threads = [threading.Thread(target=caller) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {one.job_id for one in found} == {1}
    assert sorted(one.repeated for one in found) == [False] + [True] * 5


def test_a_sweep_is_answered_as_a_whole(db: Database) -> None:
    """And its key is no key of a single job."""
    lists = {"steps": [1, 2]}
    first = submit_sweep(db, wanted(sweep=lists), actor="test", key="k-1")

    again = submit_sweep(db, wanted(sweep=lists), actor="test", key="k-1")

    assert again == first._replace(repeated=True)
    with pytest.raises(KeyReusedError, match="was used for sweep 1"):
        submit(db, wanted(), actor="test", key="k-1")


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "schlüssel"])
def test_what_no_header_can_carry_is_no_key(db: Database, key: str) -> None:
    """Said in one line, with what to use."""
    with pytest.raises(ConfigError, match="key: must be 1 to 200 printable ASCII characters"):
        submit(db, wanted(), actor="test", key=key)
