"""The proof tooling itself: rows, marks and skips."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tools.seeds_vllm import judge

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("requirements", ROOT / "tools/requirements.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_says_what_would_break_it() -> None:
    """A row is an id, our words, a break and a state."""
    with (ROOT / "docs/requirements.toml").open("rb") as stream:
        rows = tomllib.load(stream)["row"]

    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["text"] and row["breaks"] for row in rows)
    assert {row["state"] for row in rows} <= {"open", "finished"}


def test_a_finished_row_needs_a_passing_test_and_no_failing_one(tool: ModuleType) -> None:
    """A claim without a proof is reported by name."""
    rows = [{"id": name, "text": name, "state": "finished"} for name in ("A", "B", "C")]
    outcomes = {"A": {"t1": "passed"}, "B": {"t2": "passed", "t3": "failed"}}

    lines, unproven = tool.table(rows, outcomes)

    assert unproven == ["B", "C"]
    assert lines[-1] == "1 of 3 rows proven"


def test_an_open_row_is_not_counted_even_with_a_passing_test(tool: ModuleType) -> None:
    """Work in progress claims nothing."""
    lines, unproven = tool.table(
        [{"id": "A", "text": "a", "state": "open"}], {"A": {"t": "passed"}}
    )

    assert unproven == []
    assert lines[-1] == "0 of 1 rows proven"


def test_outcomes_of_several_runs_count_together(tool: ModuleType, tmp_path: Path) -> None:
    """A row that only the second run proves is proven; what fails in one is failed, whatever the
    other says; what was skipped in one and passed in the other has passed."""
    runs = [
        {"A": {"t1": "passed", "t2": "skipped"}, "B": {"t3": "passed"}},
        {"A": {"t2": "passed"}, "B": {"t3": "failed"}, "C": {"t4": "passed"}},
    ]
    files = [tmp_path / f"{number}.json" for number in range(2)]
    for file, run in zip(files, runs, strict=True):
        file.write_text(json.dumps(run))

    assert (
        tool.read(files)
        == tool.read(files[::-1])
        == {
            "A": {"t1": "passed", "t2": "passed"},
            "B": {"t3": "failed"},
            "C": {"t4": "passed"},
        }
    )


def test_seeds_with_vllm_are_held_against_a_prediction_interval_of_their_mean() -> None:
    """Of five runs without: mean ± t₄ · s · √(1/5 + 1/3); computed by hand here."""
    hf = [0.10, 0.20, 0.30, 0.20, 0.20]  # mean 0.2, s = √(0.02 / 4)
    width = 2.776 * 0.005**0.5 * (1 / 5 + 1 / 3) ** 0.5

    found = judge(hf, [0.2 + width - 0.001] * 3)

    assert found.half_width == pytest.approx(width, rel=1e-3)
    assert found.inside
    assert not judge(hf, [0.2 + width + 0.001] * 3).inside
    assert not judge(hf, [0.2 - width - 0.001] * 3).inside


def test_the_bench_for_a_gpu_refuses_where_there_is_none() -> None:
    """In one line, with what to do instead, before it builds anything."""
    command = [sys.executable, "-m", "bench.gpu"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("bench-gpu: torch sees no CUDA device here; run it where one is, or")


def _run_little_project(
    folder: Path, test: str, allowed: str = "", *options: str
) -> subprocess.CompletedProcess[str]:
    """A project of one test under this conftest."""
    tests = folder / "tests"
    (folder / "docs").mkdir()
    tests.mkdir()
    (tests / "conftest.py").write_bytes((ROOT / "tests/conftest.py").read_bytes())
    (folder / "docs/requirements.toml").write_text('[[row]]\nid = "A-01"\n')
    (tests / "allowed_skips.txt").write_text(allowed)
    (tests / "test_x.py").write_text(f"import pytest\n\n{test}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("allowed", "status"), [("# none\n", 1), ("tests/test_x.py::test_x  # no GPU here\n", 0)]
)
def test_a_skip_that_nobody_allowed_fails_the_run(
    tmp_path: Path, allowed: str, status: int
) -> None:
    """A green run means that every test ran, or stands on the list with its reason."""
    done = _run_little_project(tmp_path, "def test_x(): pytest.skip('no GPU')", allowed)

    assert done.returncode == status
    assert ("SKIPPED without leave: tests/test_x.py::test_x" in done.stdout) == bool(status)


def test_a_mark_without_a_row_is_an_error(tmp_path: Path) -> None:
    """A mistyped id would prove nothing and look as if it did."""
    test = "@pytest.mark.requirement('A-10')\ndef test_x(): pass"

    done = _run_little_project(tmp_path, test)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no requirement row ['A-10']" in done.stdout + done.stderr


def test_outcomes_are_written_again_by_a_second_run(tmp_path: Path) -> None:
    """CI runs in a checkout that may hold the outcomes of an earlier run."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    old = tmp_path / "outcomes.json"
    old.write_text("{}")
    test = "@pytest.mark.requirement('A-01')\ndef test_x(): pass"

    done = _run_little_project(tmp_path, test, "", f"--requirements-json={old}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(old.read_text()) == {"A-01": {"tests/test_x.py::test_x": "passed"}}
