"""What is said of a sweep before it is sent, whatever the order in which it was written."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from app.forms import job_check
from app.forms.job_check import LOOKED_AT, walk
from tests.app.night import CONFIG, night, queue
from tests.app.pages.test_new_job_page import words
from worker.db.connection import Database
from worker.schedule.governor import Memory

NOT_FOUND = "some/model-that-nobody-has"
"""A base of which nobody can tell how much memory it takes."""
AXES = st.dictionaries(
    st.sampled_from(["a", "b.c", "d"]),
    st.lists(
        st.one_of(
            st.integers(-99, 99),
            st.sampled_from(["x", "y", None, True, 0.5, 10**400, float("nan"), float("inf")]),
        ),
        min_size=1,
        max_size=8,
        unique_by=repr,
    ),
    min_size=1,
    max_size=3,
)


def said_of(client: TestClient, sweep: Mapping[str, Sequence[Any]]) -> str:
    text = yaml.safe_dump(CONFIG | {"sweep": sweep}, sort_keys=False)
    answer = client.post("/new/check", data={"kind": "rl_run", "yaml": text})
    assert answer.status_code == 200
    return words(answer.text)


def verdict(said: str) -> str:
    found = re.search(r"[✓✕][^.]*? now|Nobody can tell whether all of them fit", said)
    assert found, said
    return found[0]


def leave(monkeypatch: pytest.MonkeyPatch, room_gb: float) -> None:
    """A machine with so much to take, whatever else runs on this one."""
    memory = Memory(free_gb=room_gb + 1, total_gb=room_gb + 1, floor_gb=1.0)
    monkeypatch.setattr(job_check, "memory_of", lambda _: memory)


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """Every statement that goes through SQLAlchemy."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.requirement("UI-06")
@given(axes=AXES, seed=st.integers(0, 9))
def test_what_is_looked_at_does_not_depend_on_the_order_and_meets_every_value(
    axes: dict[str, list[Any]], seed: int
) -> None:
    """Each point once; of a small sweep every one. The largest of a need that grows with each
    setting on its own is among them.
    """
    shuffled = {name: axes[name][:] for name in random.Random(seed).sample([*axes], len(axes))}
    for values in shuffled.values():
        random.Random(seed).shuffle(values)
    weight = {(name, repr(value)): hash_of(name, value) for name in axes for value in axes[name]}

    def needs(point: Mapping[str, Any]) -> float:
        return sum(weight[name, repr(value)] for name, value in point.items())

    def looked(order: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []

        def look(point: Mapping[str, Any]) -> float:
            found.append(dict(point))
            return needs(point)

        stand_for_all = walk(order, look)
        assert 0 < stand_for_all <= len(found)
        return found

    one, other = looked(axes), looked(shuffled)

    keys = [sorted((name, repr(value)) for name, value in point.items()) for point in one]
    assert sorted(keys) == sorted(
        sorted((name, repr(value)) for name, value in point.items()) for point in other
    )
    assert len({str(key) for key in keys}) == len(keys)
    jobs = math.prod(len(values) for values in axes.values())
    assert len(one) == jobs if jobs <= LOOKED_AT else len(one) <= 2 * sum(map(len, axes.values()))
    for name, values in axes.items():
        assert {repr(point[name]) for point in one} == {repr(value) for value in values}
    most = sum(max(weight[name, repr(value)] for value in axes[name]) for name in axes)
    assert max(map(needs, one)) == pytest.approx(most)


def hash_of(name: str, value: Any) -> float:
    """A need that follows no order of the values."""
    return random.Random(f"{name}={value!r}").random()


@pytest.mark.requirement("UI-06")
@pytest.mark.parametrize("backwards", [False, True])
def test_one_point_that_does_not_fit_is_told_wherever_it_stands(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """The largest value comes last or first, in the axis that is written last or first."""
    leave(monkeypatch, 0.6)
    axes = {"max_new_tokens": [16, 24, 32, 512], "seed": [*range(15)]}
    if backwards:
        axes = {name: values[::-1] for name, values in reversed(axes.items())}

    said = said_of(client, axes)

    assert "A sweep of 60 jobs." in said
    assert re.search(r"✕ \d+ of \d+ that were looked at do(es)? not fit now", said), said
    assert "If they were next now, not all would start: " in said
    assert "OOM_ENVELOPE" in said
    assert "Looked at 30 of them: every value of every setting is among them" in said


@pytest.mark.requirement("UI-06")
def test_a_small_sweep_counts_the_jobs_that_do_not_fit(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside those that do."""
    leave(monkeypatch, 0.6)

    assert verdict(said_of(client, {"max_new_tokens": [512, 16]})) == "✕ 1 of 2 does not fit now"
    assert verdict(said_of(client, {"max_new_tokens": [24, 16]})) == "✓ All of them fit now"


@pytest.mark.requirement("UI-06")
def test_a_need_that_nobody_knows_is_not_taken_for_none(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of which nobody can tell is not said to fit with the others; one too large is a no."""
    known, unknown = CONFIG["base"], NOT_FOUND

    for bases in ([known, unknown], [unknown, known]):
        said = said_of(client, {"base": bases})
        assert verdict(said) == "Nobody can tell whether all of them fit"
        assert "this kind names no memory beforehand" in said
        assert "most that was found 0.5 GB" in said

    leave(monkeypatch, 0.4)
    for bases in ([known, unknown], [unknown, known]):
        assert verdict(said_of(client, {"base": bases})) == "✕ 1 of 2 does not fit now"


@pytest.mark.requirement("EX-21")
def test_a_value_in_the_middle_of_a_sweep_is_cautioned_for(client: TestClient) -> None:
    """Not the first point alone."""
    said = said_of(client, {"lr": [1e-5, 5e-5, 6e-5], "kl_coef": [0.001]})

    assert said.count("with kl_coef=0.001 is what collapsed") == 1


def test_what_all_points_are_judged_by_is_read_once(
    client: TestClient, db: Database, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page asks again with every beat: a further job costs its own look-ups alone."""
    leave(monkeypatch, 8.0)
    queue(db)
    with night(db) as lane:
        lane.start().finish()
    counts = []
    for jobs in (2, 100):
        asked.clear()
        assert f"A sweep of {jobs} jobs." in said_of(client, {"seed": list(range(jobs))})
        counts.append(len(asked))

    assert counts[1] - counts[0] <= 2 * 98  # the same experiment before, and whether it was tried
