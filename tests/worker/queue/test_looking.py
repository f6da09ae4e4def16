"""What only a user's module can tell is asked of a bounded child process, once for each answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.contract.errors import ConfigError
from engine.contract.look import Looked
from engine.contract.registry import get_kind
from tests.deadline import eventually
from worker.db.connection import Database
from worker.queue import looking
from worker.queue.looking import cautions, look, seen
from worker.queue.submission import submission
from worker.queue.submit import enqueue
from worker.queue.sweeps import checked_candidates

FINE = "def paid(completions, **columns):\n    return [1.0 for _ in completions]\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Writes the user's module; a child finds it, this process never imports it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "their_rewards")
    monkeypatch.setattr(looking, "_kept", type(looking._kept)())

    def write(source: str) -> Path:
        path = tmp_path / "their_rewards.py"
        path.write_text(source, "utf-8")
        return path

    yield write
    assert "their_rewards" not in sys.modules, "the user's module entered this process"


def _config(**more: object) -> dict[str, object]:
    return {"base": "embedded:qwen3-tiny", "verifier": "their_rewards:paid", **more}


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """One entry a child process that was started."""
    started: list[Path] = []
    real = looking._answer

    def counted(question: bytes) -> bytes | None:
        started.append(Path())
        return real(question)

    monkeypatch.setattr(looking, "_answer", counted)
    return started


@pytest.mark.requirement("RL-17")
def test_a_module_that_cannot_be_imported_refuses_the_job_at_enqueue(
    db: Database, module: Callable[[str], Path]
) -> None:
    """With the last line of its traceback, and nothing is queued."""
    module("import no_such_library\n")

    with pytest.raises(ConfigError, match="No module named 'no_such_library'"):
        enqueue(db, "rl_run", _config(), actor="test")


def test_the_same_question_is_asked_once(
    db: Database, module: Callable[[str], Path], processes: list[Path]
) -> None:
    """Of all points of a sweep over other settings, and of the job that is sent again."""
    module(FINE)
    wanted = submission({"kind": "rl_run", "config": _config(), "sweep": {"seed": [1, 2, 3, 4]}})

    assert len(checked_candidates(wanted)) == 4
    enqueue(db, "rl_run", _config(), actor="test")

    assert len(processes) == 1


def test_a_changed_module_is_looked_at_anew(
    db: Database, module: Callable[[str], Path], processes: list[Path]
) -> None:
    """The answer rests on its file."""
    path = module(FINE)
    enqueue(db, "rl_run", _config(), actor="test")

    module("import no_such_library\n" + FINE)
    os.utime(path, ns=(1, 1))

    with pytest.raises(ConfigError, match="no_such_library"):
        enqueue(db, "rl_run", _config(seed=1), actor="test")
    assert len(processes) == 2


def test_a_module_that_was_refused_is_looked_at_again_when_it_is_sent_again(
    db: Database, module: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was missing cannot be seen to change."""
    monkeypatch.setattr(looking, "REFUSED_S", 0.0)
    with pytest.raises(ConfigError, match="No module named"):
        enqueue(db, "rl_run", _config(), actor="test")

    module(FINE)

    assert enqueue(db, "rl_run", _config(), actor="test") > 0


def test_a_built_in_verifier_asks_nothing(db: Database, processes: list[Path]) -> None:
    """Thousands of jobs must not cost thousands of processes."""
    enqueue(db, "rl_run", {"base": "embedded:qwen3-tiny"}, actor="test")

    assert not processes


def test_what_hangs_is_killed_with_all_it_started_and_the_job_is_cautioned(
    module: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may work all the same, so it is no refusal."""
    monkeypatch.setattr(looking, "LIMIT_S", 3.0)
    pid = tmp_path / "pid"
    module(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    kind = get_kind("rl_run")
    config = kind.config.model_validate(_config())

    found = look(kind, config)

    assert not found.problems
    assert "no answer within 3 s" in found.cautions[0].problem
    # Nobody here is its parent: when the signal has arrived, only its end tells.
    eventually(lambda: _ended(int(pid.read_text())), "what it started is killed too")
    assert found.cautions[0] in cautions("rl_run", _config()), "every door shows it"


def _ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os\nos._exit(3)\n", "ended inside the import"),
        ("import os\nos.kill(os.getppid(), 11)\n", "ended without an answer"),
        ("x = bytearray(20 << 30)\n", "MemoryError"),
    ],
)
def test_a_child_that_dies_leaves_a_caution(
    module: Callable[[str], Path], source: str, said: str
) -> None:
    """A crash, a kill, a memory that is full."""
    module(source)
    kind = get_kind("rl_run")

    found = look(kind, kind.config.model_validate(_config()))

    assert not found.problems
    assert said in found.cautions[0].problem


def test_what_the_module_prints_is_no_part_of_the_answer(module: Callable[[str], Path]) -> None:
    """A progress bar at import would else look like a crash."""
    module("import os, sys\nprint('hello')\nos.write(1, b'{}\\n')\n" + FINE)
    kind = get_kind("rl_run")

    found = look(kind, kind.config.model_validate(_config()))

    assert not found.problems
    assert not found.cautions


def test_a_page_that_checks_what_is_typed_starts_no_process(
    module: Callable[[str], Path], processes: list[Path]
) -> None:
    """It shows what is known."""
    module("import no_such_library\n")
    kind = get_kind("rl_run")
    config = kind.config.model_validate(_config())
    assert seen(kind, config) == Looked()
    assert not processes

    look(kind, config)

    assert "no_such_library" in seen(kind, config).problems[0].problem


def test_an_answer_survives_being_written() -> None:
    """Through a pipe, as one line."""
    found = Looked.unknown("no\nanswer")

    assert Looked.read(found.written()) == found
    assert found.written().count(b"\n") == 1
