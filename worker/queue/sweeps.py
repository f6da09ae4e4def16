"""Sweeps: one config with lists becomes a job for every combination, all of them or none.

The number of combinations is known before anything is expanded, and bounded. Each point passes
through the one validation path. Knows no door.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic_core import to_json
from sqlalchemy import Connection, insert, select

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.registry import sweep_cautions
from worker.clock.moments import start_time
from worker.db.connection import Database
from worker.db.tables import job, sweep
from worker.db.zone import lane_zone
from worker.queue import keys
from worker.queue.keys import Owner
from worker.queue.looking import cautions
from worker.queue.places import in_place
from worker.queue.submission import MAX_NAME, Submission, checked_key
from worker.queue.submit import Candidate, candidate, insert_job, refuse_tried, terms_of
from worker.queue.tried import canonical_hash

MAX_JOBS = 500
"""Jobs of one sweep."""
MAX_AXES = 20
_PROBLEMS_SHOWN = 20


class SweepSubmitted(NamedTuple):
    """The answer to a request."""

    sweep_id: int
    job_ids: list[int]
    repeated: bool
    """The key was known: these are the jobs that the first request made."""


def submit_sweep(
    db: Database, wanted: Submission, *, actor: str, key: str | None = None
) -> SweepSubmitted:
    """Queue a job for every combination of the values in `wanted.sweep`.

    Raises ConfigError with the problems of every point, AlreadyTriedError naming the point,
    ParentFailedError, KeyReusedError; nothing is written then.
    """
    wanted = in_place(wanted, db.settings.runs_dir)
    body_hash = wanted.body_hash()
    if checked_key(key) is not None:
        with db.read() as conn:
            before = _before(conn, str(key), body_hash)
        if before is not None:
            return before
    candidates = checked_candidates(wanted)
    not_before = start_time(wanted.not_before, time.time(), partial(lane_zone, db))
    with db.write_tx() as conn:
        if key is not None and (before := _before(conn, key, body_hash)) is not None:
            return before
        terms = terms_of(conn, wanted, not_before)
        if not wanted.force:
            for found in candidates:
                refuse_tried(conn, found.same, point_words(found.sweep_point or {}))
        sweep_id = _insert_sweep(conn, wanted, actor)
        why = f"point of sweep {sweep_id}"
        job_ids = [
            insert_job(conn, found._replace(sweep_id=sweep_id), wanted, terms, actor=actor, why=why)
            for found in candidates
        ]
        if key is not None:
            keys.remember(conn, key, body_hash, Owner(None, sweep_id))
    return SweepSubmitted(sweep_id, job_ids, repeated=False)


def checked_axes(wanted: Submission) -> Mapping[str, Sequence[Any]]:
    """The axes of a sweep that can be expanded. Raises ConfigError without expanding anything."""
    axes = wanted.sweep or {}
    if not 0 < len(axes) <= MAX_AXES:
        raise _problem("sweep", len(axes), f"must have 1 to {MAX_AXES} settings", "name settings")
    for name, values in axes.items():
        where = f"sweep.{name}"
        if not all(name.split(".")):
            raise _problem(where, None, "is no setting's name", "write it like warmup.lr")
        if not values:
            raise _problem(where, None, "has no values", "give at least one")
        if len({to_json(value, fallback=str) for value in values}) < len(values):
            raise _problem(where, None, "has a value twice", "give each value once")
    size = math.prod(len(values) for values in axes.values())
    if size > MAX_JOBS:
        shown = size if size < 10**12 else "more than 10^12"
        raise _problem(
            "sweep", shown, f"has more than {MAX_JOBS} combinations", "give fewer values"
        )
    return axes


def checked_candidates(wanted: Submission) -> list[Candidate]:
    """Every job of a sweep. Raises ConfigError with the problems of every point, and for two
    points that make the same job.
    """
    candidates = list(_candidates(wanted, checked_axes(wanted)))
    point_of: dict[str, str] = {}
    for found in candidates:
        config, point = canonical_hash(found.config), point_words(found.sweep_point or {})
        # Settings that cannot change the result make no other experiment: those are refused too.
        for same in {config} if wanted.force else {config, found.same.config}:
            if same in point_of:
                problem = f"makes the same job at {point_of[same]} and at {point}"
                raise _problem("sweep", None, problem, "give each value once")
            point_of[same] = point
    return candidates


def cautions_of(wanted: Submission) -> Sequence[ConfigProblem]:
    """What a sweep that can be queued had better not say: each of its values, and its axes.

    What several values are cautioned for is said once, with the first of them.
    """
    axes = checked_axes(wanted)
    configs = [config_at(wanted.config, point) for point in spread(axes)]
    found: dict[tuple[str, str], ConfigProblem] = {}
    for config in configs:
        for one in cautions(wanted.kind, config):
            found.setdefault((one.field, one.problem), one)
    return [*found.values(), *sweep_cautions(wanted.kind, configs[0], axes)]


def points(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination; the last axis changes fastest.

    >>> list(points({"lr": [1, 2], "seed": [0]}))
    [{'lr': 1, 'seed': 0}, {'lr': 2, 'seed': 0}]
    """
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def spread(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Combinations in which every value of every axis stands, each about equally often.

    As many as the longest axis has values, from all least values to all greatest. In which order
    axes and values were given counts for nothing, but for the order of a combination's settings.

    >>> spread({"lr": [3, 1, 2], "seed": [1, 0]})
    [{'lr': 1, 'seed': 0}, {'lr': 2, 'seed': 0}, {'lr': 3, 'seed': 1}]
    """
    ordered = {name: in_order(values) for name, values in axes.items()}
    most = max((len(values) for values in ordered.values()), default=1)
    return [
        {name: values[at * len(values) // most] for name, values in ordered.items()}
        for at in range(most)
    ]


def in_order(values: Sequence[Any]) -> list[Any]:
    """Numbers by their size, then the rest as JSON writes it.

    >>> in_order(["b", 10, True, 9, "a"])
    [9, 10, 'a', 'b', True]
    """
    return sorted(values, key=_size)


def _size(value: Any) -> tuple[bool, float, bytes]:
    """1 and 1.0 are two values, and no number is not before or behind another one."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, float) and math.isnan(value):
        number = False
    return not number, value if number else 0, to_json(value, fallback=str)


def config_at(raw: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the point's values in their places. Raises ConfigError."""
    config = copy.deepcopy(dict(raw))
    for dotted, value in point.items():
        *path, last = dotted.split(".")
        section: Any = config
        for part in path:
            if section.get(part) is None:
                section[part] = {}
            section = section[part]
            if not isinstance(section, dict):
                raise _problem(
                    f"sweep.{dotted}", None, f"{part} is a value, not a section", "correct the name"
                )
        section[last] = copy.deepcopy(value)
    return config


def _candidates(wanted: Submission, axes: Mapping[str, Sequence[Any]]) -> Iterator[Candidate]:
    problems: list[ConfigProblem] = []
    for point in points(axes):
        name = f"{wanted.name or wanted.kind} {point_words(point)}"
        try:
            found = candidate(wanted.kind, config_at(wanted.config, point), _fitting(name))
        except ConfigError as error:
            problems += [
                ConfigProblem(
                    one.field, one.value, f"{one.problem} at {point_words(point)}", one.remedy
                )
                for one in error.problems
            ]
            if len(problems) >= _PROBLEMS_SHOWN:
                break
            continue
        yield found._replace(sweep_point=point)
    if problems:
        raise ConfigError(problems[:_PROBLEMS_SHOWN])


def point_words(point: Mapping[str, Any]) -> str:
    """Values as YAML says them.

    >>> point_words({"lr": 0.001, "deaf": True, "base": "tiny", "pace": None})
    'lr=0.001 deaf=true base=tiny pace=null'
    """
    return " ".join(f"{name}={_value_words(value)}" for name, value in point.items())


def _value_words(value: Any) -> str:
    return (
        value if isinstance(value, str) and value.isprintable() else json.dumps(value, default=str)
    )


def _fitting(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _insert_sweep(conn: Connection, wanted: Submission, actor: str) -> int:
    row = {
        "kind": wanted.kind,
        "name": wanted.name or wanted.kind,
        "axes": wanted.sweep,
        "created_at": time.time(),
        "created_by": actor,
    }
    made: int = conn.execute(insert(sweep).values(row).returning(sweep.c.id)).scalar_one()
    return made


def _before(conn: Connection, key: str, body_hash: str) -> SweepSubmitted | None:
    owner = keys.owner_of(conn, key, body_hash)
    if owner is None or owner.sweep_id is None:
        return None
    members = select(job.c.id).where(job.c.sweep_id == owner.sweep_id).order_by(job.c.id)
    return SweepSubmitted(owner.sweep_id, list(conn.execute(members).scalars()), repeated=True)


def _problem(field: str, value: Any, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem(field, value, problem, remedy)])
