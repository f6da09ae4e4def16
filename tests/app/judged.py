"""A real run on a mixture with two benches, made once and taken into a store as a drain does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.events import Event, EventLog
from engine.contract.run_dir import RunDir
from engine.models import tiny
from engine.rl.rl_run import run as rl_run
from engine.run.session import open_attempt, read_newest_job
from tests.app.night import night
from tools.run_outcome import add_attempt, events_of
from worker.attempt.settlement import Verdict
from worker.db.connection import Database
from worker.queue.states import State
from worker.queue.submit import enqueue


class Judged(NamedTuple):
    """What the engine made of it."""

    run: RunDir
    config: dict[str, Any]
    result: dict[str, Any]

    @property
    def events(self) -> list[Event]:
        """In their order."""
        return [one for type_ in ("metric", "gate") for one in events_of(self.run, type_)]

    def taken_into(self, db: Database, *, upto: int | None = None, **more: Any) -> int:
        """The number of a job with its config, events and rows; `upto` a step: it still runs.
        `more` stands in its result instead.
        """
        job_id = enqueue(db, "rl_run", self.config, actor="test", name="mix", force=True)
        with night(db) as lane:
            attempt = lane.start()
            shutil.copytree(self.run.rollouts, attempt.run.rollouts)
            for event in self.events:
                if upto is None or event["step"] <= upto:
                    fields = {k: v for k, v in event.items() if k not in _OF_THE_LOG}
                    attempt.add(event["type"], **fields)
            attempt.write("progress", phase="training", step=upto or 12, max_steps=12)
            if upto is None:
                attempt.write("finished", status="done", result=self.result | more)
                attempt.settle(Verdict(State.SUCCEEDED, "the engine finished"))
        return job_id


_OF_THE_LOG = {"type", "t", "seq", "attempt", "v"}


def judged(folder: Path) -> Judged:
    """Sevens and threes are learnt; what random weights knew of nines is lost."""
    base = folder / "base"
    tiny.build_model(seed=3).save_pretrained(base)
    tiny.build_tokenizer().save_pretrained(base)
    config = {
        "base": str(base),
        "tuning": "full",
        "data": {
            "mix": [
                {"name": "sevens", "source": _rows(folder, "sevens", "7", "="), "weight": 3.0},
                {"name": "threes", "source": _rows(folder, "threes", "3", "+"), "weight": 1.0},
            ]
        },
        "heldout": [
            {"name": "nines", "source": _rows(folder, "nines", "9", "-", 400), "temp": 1.0},
            {"name": "more-sevens", "source": _rows(folder, "more", "7", ">", 60), "every": 2},
        ],
        "group_k": 8,
        "tasks_per_step": 8,
        "lr": 1e-2,
        "max_steps": 12,
        "heldout_every": 2,
        "heldout_frac": 0.5,
        "max_new_tokens": 1,
        "report_min": 10,
        "force_headroom": True,
        "threads": 1,
        "seed": 5,
    }
    run = add_attempt(folder, config)
    directory, job = read_newest_job(run)
    log = EventLog(run.events, job.attempt)
    try:
        result = rl_run(open_attempt(run, directory, job, log))
    finally:
        log.close()
    return Judged(run, config, result)


def _rows(folder: Path, name: str, answer: str, sign: str, n: int = 120) -> str:
    path = folder / f"{name}.jsonl"
    rows = [{"id": f"{sign}{i}", "prompt": f"{i:03d}{sign}", "answer": answer} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)
