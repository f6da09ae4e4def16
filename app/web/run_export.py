"""A run as files for other programs: its metrics, scores and completions, and what it is.

Knows no route and no command.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.web import score_file, table_file
from app.web.table_file import Form, Row
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.known import whole
from engine.contract.outputs import require_empty
from worker.db.connection import Database
from worker.read import jobs
from worker.read.jobs import JobView
from worker.read.samples.query import every_sample
from worker.read.samples.rows import Sample
from worker.read.scores.leaderboard import Conditions, every_score

METRICS: Mapping[str, type] = {"series": str, "step": int, "value": float}
SAMPLES: Mapping[str, type] = {
    "split": str,
    "step": int,
    "row": int,
    "id": str,
    "sample": int,
    "prompt": str,
    "completion": str,
    "answer": str,
    "gold": str,
    "reward": float,
    "advantage": float,
    "right": bool,
    "reason": str,
    "detail": str,
    "truncated": bool,
    "tokens": int,
    "mean_logprob": float,
}
ABOUT = "run.json"


def export_run(database: Database, job: JobView, to: Path, form: Form) -> dict[str, int]:
    """Write the folder `to`, which is new or empty: whole or not at all. Rows by file name.

    Raises ConfigError where it cannot be written.
    """
    require_empty("--to", to)
    if form == "parquet":
        table_file.need_pyarrow()
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        found = dict(_written(database, job, part, form))
        if to.exists():
            to.rmdir()
        part.replace(to)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        remedy = "name a folder that can, on a disk with room"
        raise ConfigError([ConfigProblem("--to", str(to), problem, remedy)]) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return found


def _written(
    database: Database, job: JobView, folder: Path, form: Form
) -> Iterator[tuple[str, int]]:
    # What a resume made void is no part of the run.
    samples = every_sample(job.run_dir, whole(job.result.get("step")))
    scores = every_score(database, Conditions(run=job.id))
    tables: Mapping[str, tuple[Iterable[Row], table_file.Columns]] = {
        "metrics": (_metrics(database, job.id), METRICS),
        "scores": (map(score_file.flat, scores), score_file.TYPES),
        "samples": (map(_sample, samples), SAMPLES),
    }
    for name, (rows, columns) in tables.items():
        counted = _Counted(rows)
        with (folder / f"{name}.{form}").open("wb") as stream:
            stream.writelines(table_file.written(counted, columns, form))
        yield f"{name}.{form}", counted.n
    (folder / ABOUT).write_text(json.dumps(_about(job), indent=2, ensure_ascii=False) + "\n")
    yield ABOUT, 1


class _Counted:
    """Rows that are counted as they pass."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.n = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.n += 1
            yield row


def _metrics(database: Database, job_id: int) -> Iterator[Row]:
    for series, points in jobs.metrics(database, job_id).items():
        for step, value in points:
            yield {"series": series, "step": step, "value": value}


def _sample(one: Sample) -> Row:
    told = {name: getattr(one, name) for name in SAMPLES if name != "completion"}
    return told | {"completion": one.text}


def _about(job: JobView) -> dict[str, Any]:
    """All that a page knows of it, without its place on this machine."""
    return job.model_dump(mode="json", exclude={"run_dir", "waits_for", "lane", "heartbeat_at"})
