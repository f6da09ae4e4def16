"""However a served run ends, of its vLLM nothing is left: no process, socket, memory or file."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.contract.documents import dump_yaml
from engine.contract.events import EventReader
from engine.contract.run_dir import RunDir
from engine.contract.serving import GUARDIAN
from engine.models import tiny
from engine.sampling.vllm.sync.adapter import MEMORY
from tests.acceptance.conftest import Cockpit
from tests.deadline import eventually
from tests.engine.conftest import sevens_file
from tests.engine.sampling.vllm.conftest import VLLM

__all__ = ["sevens_file"]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
UP_S = 400
"""A start on a busy machine, with the imports of an engine before it."""


@dataclass(frozen=True)
class Traces:
    """What a drain has running below it, and what these processes made."""

    processes: list[psutil.Process]
    ports: set[int]
    files: set[Path]

    @classmethod
    def of(cls, drain: int, temporary: Path) -> Traces:
        """`temporary`: what TMPDIR is for all of them."""
        below = psutil.Process(drain).children(recursive=True)
        ports = {port for one in below for port in _listening(one.net_connections("inet"))}
        mapped = {Path(part.path) for one in below for part in one.memory_maps()}
        files = {one for one in mapped if one.is_relative_to(MEMORY)}
        engines = {one.pid for one in below}
        files |= {
            one for one in MEMORY.glob("nightlane-*") if int(one.name.split("-")[2]) in engines
        }
        return cls(below, ports, files | _made_in(temporary))

    def left(self) -> list[object]:
        """What of it is still there."""
        alive = [one for one in self.processes if one.is_running() and not _zombie(one)]
        still_open = _listening(psutil.net_connections("inet")) & self.ports
        return [*alive, *still_open, *(file for file in self.files if file.exists())]


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files with a short name, as a Unix socket wants it."""
    with tempfile.TemporaryDirectory(prefix="nl-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def run(
    cockpit: Cockpit, sevens_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunDir:
    """Enqueued, of more steps than anybody waits for."""
    base, recipe = tmp_path / "base", tmp_path / "run.yaml"
    tiny.build_model(3, head_dim=32).save_pretrained(base)
    tiny.build_tokenizer().save_pretrained(base)
    asked: dict[str, Any] = {
        "base": str(base),
        "tuning": "lora",
        "data": {"source": str(sevens_file)},
        "rollout_backend": "vllm",
        "vllm": {"server": {"launch": {"replicas": 1}}},
        "max_steps": 5000,
        "heldout_frac": 0.5,
        "report_min": 10,
        "max_new_tokens": 1,
        "save_every": 1,
        "tasks_per_step": 4,
        "group_k": 4,
        "force_headroom": True,
        "guard": {"collapse": False},
        "threads": 1,
    }
    recipe.write_text(dump_yaml(asked))
    monkeypatch.setenv("NIGHTLANE_SERVE_CMD", VLLM)
    done = cockpit("enqueue", "rl_run", str(recipe))
    assert done.returncode == 0, done.stderr
    return RunDir(cockpit.data_dir / "runs" / "1")


@pytest.mark.requirement("RL-09", "RM-02")
def test_nothing_is_left_of_a_server_however_its_run_ends(
    cockpit: Cockpit, run: RunDir, temporary: Path
) -> None:
    """SIGKILL of the engine, of its supervisor, of the server; then a cancel."""
    drain = cockpit.start("drain")
    traces = _running(run, drain, temporary)
    _one(traces, "-m engine").kill()
    _gone(traces, "after SIGKILL of the engine")
    drain.communicate(timeout=120)
    assert cockpit("retry", "1").returncode == 0

    drain = cockpit.start("drain")
    traces = _running(run, drain, temporary)
    drain.kill()
    drain.communicate()
    _gone(traces, "after SIGKILL of the supervisor")

    drain = cockpit.start("drain")
    traces = _running(run, drain, temporary)
    guardian = _one(traces, GUARDIAN)
    served = [guardian, *guardian.children(recursive=True)]
    _one(traces, "--max-num-seqs", but=GUARDIAN).kill()
    gone = Traces(served, set(), {f for f in traces.files if f.name.startswith("psm_")})
    _gone(gone, "after SIGKILL of the server")

    traces = _running(run, drain, temporary)
    done = cockpit("cancel", "1")
    assert done.returncode == 0, done.stderr
    drain.communicate(timeout=120)
    _gone(traces, "after a cancel")
    assert not _made_in(temporary)


def _running(run: RunDir, drain: subprocess.Popen[str], temporary: Path) -> Traces:
    """Once a step more than now is done, by a server that is up."""
    seen = _steps(run)

    def on() -> bool:
        assert drain.poll() is None, drain.communicate()
        return _steps(run) > seen + 1

    eventually(on, f"a step after {seen}", within_s=UP_S)
    return Traces.of(drain.pid, temporary)


def _steps(run: RunDir) -> int:
    """How many were finished, in all attempts together."""
    if not run.events.exists():
        return 0
    told = (event for event, _ in EventReader(run.events).read() if event["type"] == "metric")
    return sum("time/step_s" in event["values"] for event in told)


def _gone(traces: Traces, what: str) -> None:
    assert len(traces.processes) > 3, traces
    with suppress(AssertionError):
        eventually(lambda: not traces.left(), what, within_s=60)
    assert traces.left() == [], what


def _made_in(temporary: Path) -> set[Path]:
    """Without torch's cache, which is for the next one too."""
    return {one for one in temporary.iterdir() if not one.name.startswith("torchinductor_")}


def _listening(connections: Iterable[Any]) -> set[int]:
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


def _one(traces: Traces, words: str, *, but: str = "\0") -> psutil.Process:
    [found] = [one for one in traces.processes if _has(one, words) and not _has(one, but)]
    return found


def _has(process: psutil.Process, words: str) -> bool:
    return words in " ".join(process.cmdline())


def _zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
