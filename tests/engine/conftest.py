"""A real model folder, a corpus it can learn in seconds, and run directories to train in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Event, EventLog
from engine.contract.run_dir import RunDir
from engine.models import tiny
from engine.models.policy import Policy, build
from engine.run.session import Attempt, open_attempt, read_newest_job
from tools.run_outcome import add_attempt, events_of

__all__ = ["add_attempt", "events_of"]

OpenNewest = Callable[[RunDir], Attempt]


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded architecture as a plain Hugging Face folder with random weights."""
    folder = tmp_path_factory.mktemp("base")
    tiny.build_model(seed=3).save_pretrained(folder)
    tiny.build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def sevens_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 questions whose answer is always 7: random weights find it, and learn it, at once."""
    path = tmp_path_factory.mktemp("data") / "sevens.jsonl"
    rows = [{"id": f"q{i}", "prompt": f"{i:03d}=", "answer": "7"} for i in range(120)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture(scope="session")
def base_recipe(base_folder: Path, sevens_file: Path) -> dict[str, Any]:
    """A whole `rl_run` that takes about a second."""
    return {
        "base": str(base_folder),
        "tuning": "full",
        "data": {"source": str(sevens_file)},
        "group_k": 8,
        "tasks_per_step": 8,
        "temp": 1.0,
        "lr": 3e-3,
        "kl_coef": 0.01,
        "max_steps": 6,
        "heldout_every": 2,
        "heldout_frac": 0.5,
        "max_new_tokens": 1,
        "report_min": 10,
        "force_headroom": True,  # random weights solve next to nothing
        "threads": 1,
        "seed": 5,
    }


@pytest.fixture
def recipe(base_recipe: dict[str, Any]) -> dict[str, Any]:
    """The base recipe, for a test to change."""
    return copy.deepcopy(base_recipe)


@pytest.fixture(scope="session")
def eval_recipe(base_folder: Path, sevens_file: Path) -> dict[str, Any]:
    """120 rows answered four times each, in six steps."""
    return {
        "base": str(base_folder),
        "data": {"source": str(sevens_file)},
        "samples": 4,
        "temp": 1.0,
        "max_new_tokens": 1,
        "rollout_batch": 80,
        "seed": 5,
        "threads": 1,
    }


@pytest.fixture(scope="session")
def requant_recipe(base_folder: Path, sevens_file: Path) -> dict[str, Any]:
    """One format, scored on 120 rows."""
    return {
        "base": str(base_folder),
        "formats": ["int8"],
        "bench": {"name": "sevens", "source": str(sevens_file), "verifier": "exact"},
        "max_new_tokens": 1,
        "threads": 1,
    }


@pytest.fixture
def new_attempt(tmp_path: Path) -> Callable[..., RunDir]:
    """`new_attempt(raw, name="a")` under the test's own directory."""
    return partial(add_attempt, tmp_path)


@pytest.fixture
def open_newest() -> Iterator[OpenNewest]:
    """The newest attempt of a run directory, ready to be handed to an entry."""
    with ExitStack() as stack:
        yield lambda run: stack.enter_context(opened(run))


@pytest.fixture
def policy(base_folder: Path) -> Policy:
    """A fresh random-weight policy that a test may train."""
    return build(str(base_folder), seed=0)


@pytest.fixture
def events() -> Callable[..., list[Event]]:
    """`events(run, "gate")`."""
    return events_of


@contextmanager
def opened(run: RunDir) -> Iterator[Attempt]:
    """The newest attempt with its event log open."""
    directory, job = read_newest_job(run)
    events = EventLog(run.events, job.attempt)
    try:
        yield open_attempt(run, directory, job, events)
    finally:
        events.close()
