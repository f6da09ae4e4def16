"""The verifier pool: killed workers are replaced, order is kept, nothing outlives the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.rewards.judgement import Reason
from engine.rewards.workers.pool import Pool, PoolError, Question
from tests.deadline import eventually

ROOT = Path(__file__).resolve().parents[4]
HANGS = Question("regex", "a" * 40 + "b", "(a+)+$")
"""Backtracks for longer than anybody waits."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(workers=2, wall_s=0.3) as pool:
        pool.load("regex")
        yield pool


def _eventually_dead(pid: int) -> None:
    eventually(lambda: "Z" in Path(f"/proc/{pid}/stat").read_text("utf-8"), "killed", 10)


def _eventually_gone(pid: int | str) -> None:
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "gone", 10)


def _matches(text: str) -> Question:
    return Question("regex", text, r"(\d+)$")


@pytest.mark.requirement("EX-10")
def test_a_hung_comparison_is_a_timeout_and_its_worker_is_killed_and_replaced(pool: Pool) -> None:
    """The computation itself ends; cancelling the wait would leave it running."""
    pool.ask([_matches("1"), _matches("2")])
    before, killed = set(pool.pids), pool.killed

    verdict = pool.ask([HANGS])[0]

    assert (verdict.reward, verdict.reason) == (0.0, Reason.TIMEOUT)
    assert pool.killed == killed + 1
    gone = before - set(pool.pids)
    assert len(gone) == 1
    assert not Path(f"/proc/{gone.pop()}").exists()
    assert pool.ask([_matches("5")])[0].answer == "5"


@pytest.mark.requirement("EX-10")
def test_answers_come_in_the_order_of_the_questions_around_hung_ones(pool: Pool) -> None:
    """A slow answer does not move the others."""
    questions = [HANGS if i in {0, 3} else _matches(f"x{i}") for i in range(12)]

    verdicts = pool.ask(questions)

    assert [v.answer for v in verdicts] == [None if i in {0, 3} else str(i) for i in range(12)]
    assert {v.reason for v in verdicts} == {Reason.TIMEOUT, Reason.CORRECT}


@pytest.mark.requirement("EX-10")
def test_many_hung_inputs_leave_as_many_workers_and_no_zombie(pool: Pool) -> None:
    """Workers are not used up, and the dead are reaped."""
    pool.ask([HANGS] * 6)

    assert len(pool.pids) <= 2
    verdicts = pool.ask([_matches(str(i)) for i in range(20)])
    assert [v.answer for v in verdicts] == [str(i) for i in range(20)]
    states = [Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in pool.pids]
    assert "Z" not in states


def test_a_worker_that_dies_costs_one_question_and_no_other(pool: Pool) -> None:
    """Killed while idle, it is replaced without anybody noticing."""
    pool.ask([_matches("1"), _matches("2")])
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
        _eventually_dead(pid)

    assert [v.answer for v in pool.ask([_matches("7"), _matches("8")])] == ["7", "8"]


def test_a_memory_bomb_is_a_crash_not_a_dead_machine() -> None:
    """The address space of a worker is limited."""
    with Pool(workers=1, wall_s=20, memory_mb=400) as pool:
        pool.load("regex")
        bomb = Question("regex", "a", '{"pattern": "a", "x": "' + "y" * 10 + '"}')
        huge = Question("regex", "x" * 30_000_000, "(x)")

        verdict = pool.ask([huge])[0]

        assert (verdict.reward, verdict.reason) == (0.0, Reason.CRASH)
        assert pool.ask([bomb])[0].reward == 1.0


def test_a_verifier_that_raises_is_a_crash_with_its_worker_alive(pool: Pool) -> None:
    """A broken row costs its own reward."""
    pool.ask([_matches("1")])
    pids = set(pool.pids)

    verdict = pool.ask([Question("regex", "a", "(")])[0]

    assert (verdict.reward, verdict.reason) == (0.0, Reason.CRASH)
    assert set(pool.pids) == pids


def test_a_verifier_that_cannot_run_is_refused_before_the_run() -> None:
    """Its problem is named when it is loaded, not a thousand verdicts later."""
    with Pool(workers=1) as pool, pytest.raises(PoolError, match="no_such"):
        pool.load("no_such")


def test_workers_never_load_torch() -> None:
    """A worker is small; the engine's libraries are not its own."""
    code = (
        "import sys, importlib, pkgutil, engine.rewards.workers.fork_server\n"
        "import engine.rewards.verifiers as v\n"
        "for m in pkgutil.iter_modules(v.__path__):\n"
        "    module = importlib.import_module(f'engine.rewards.verifiers.{m.name}')\n"
        "    getattr(module, 'POOLED', False) and module.verify(*module.WARM_UP)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "[]"


@pytest.mark.requirement("EX-10")
def test_workers_end_when_their_engine_is_killed() -> None:
    """SIGKILL of the engine leaves neither nursery nor a hung worker."""
    script = (
        "import threading, time\n"
        "from engine.rewards.workers.pool import Pool, Question\n"
        "pool = Pool(workers=1, wall_s=60)\n"
        "pool.load('regex')\n"
        "hangs = [Question('regex', 'a' * 40 + 'b', '(a+)+$')]\n"
        "threading.Thread(target=pool.ask, args=(hangs,)).start()\n"
        "while not pool.pids: time.sleep(0.01)\n"
        "print(pool._nursery.pid, pool.pids[0], flush=True)\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
    assert engine.stdout is not None
    pids = engine.stdout.readline().split()
    assert len(pids) == 2

    engine.kill()
    engine.wait()
    engine.stdout.close()

    for pid in pids:
        _eventually_gone(pid.decode())


@pytest.mark.requirement("EX-10")
def test_a_worker_whose_parent_died_before_the_kernel_was_asked_ends_itself() -> None:
    """Else it would judge what hangs for ever, and nobody would know of it."""
    worker = (
        "import os\n"
        "from engine.rewards.workers.fork_server import die_with_parent\n"
        "die_with_parent(os.getppid())\n"
        "print('goes on', flush=True)\n"
        "die_with_parent(os.getpid())\n"
        "print('outlives')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", worker], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, "goes on\n")


def test_closing_ends_every_process() -> None:
    """Nothing of the pool is left, and closing twice is no error."""
    pool = Pool(workers=2)
    pool.load("regex")
    pool.ask([_matches("1"), _matches("2")])
    pids = [*pool.pids, pool._nursery.pid]

    pool.close()
    pool.close()

    for pid in pids:
        _eventually_gone(pid)
