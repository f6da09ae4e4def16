"""What every test run enforces: known requirement rows, listed skips, a record of what passed."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# Before torch is imported, here and in every child: the models are tiny, and threads that wait for
# each other on a busy machine make them ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run. New ones: pytest --hypothesis-profile explore
settings.register_profile("explore", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--requirements-json",
        metavar="FILE",
        help="write {row: {test: outcome}} for the tests marked with a requirement; with `=`, or "
        "pytest takes a file that exists for the tests to run",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A run in the background inherits SIGINT as ignored, and so would every child that a test
    # sends one to; Ctrl-C is what is tested, not where the tests were started from.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Proof(config), "nightlane-proof")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """A mark that names no row is a typing error that would prove nothing."""
    with (ROOT / "docs/requirements.toml").open("rb") as stream:
        known = {row["id"] for row in tomllib.load(stream)["row"]}
    for item in items:
        for mark in item.iter_markers("requirement"):
            unknown = set(mark.args) - known
            if unknown or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: no requirement row {sorted(unknown)}")
            item.user_properties += [("requirement", row) for row in mark.args]


class _Proof:
    """Collects outcomes (also from xdist's workers) and judges skips at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.rows: dict[str, dict[str, str]] = {}
        self.skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)
        if report.when == "call" or report.outcome != "passed":
            for name, row in report.user_properties:
                if name == "requirement":
                    self.rows.setdefault(str(row), {})[report.nodeid] = report.outcome

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        target: Any = self.config.getoption("--requirements-json")
        if target:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).write_text(json.dumps(self.rows, indent=1, sort_keys=True))
        if self.skipped - _allowed_skips() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for nodeid in sorted(self.skipped - _allowed_skips()):
            terminalreporter.write_line(
                f"SKIPPED without leave: {nodeid}; make it run, or list it in "
                "tests/allowed_skips.txt with the reason",
                red=True,
            )


def _allowed_skips() -> set[str]:
    """Node ids of tests/allowed_skips.txt; `#` begins the reason."""
    lines = (ROOT / "tests/allowed_skips.txt").read_text("utf-8").splitlines()
    return {line.split("#", 1)[0].strip() for line in lines} - {""}


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads the developer's settings, data directory or lane locks."""
    monkeypatch.setenv("NIGHTLANE_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.setenv("NIGHTLANE_DATA_DIR", str(tmp_path_factory.mktemp("data")))
    monkeypatch.setenv("NIGHTLANE_LANE", "test")
    for name in ("NIGHTLANE_DATABASE_URL", "NIGHTLANE_KINDS_PATH", "NIGHTLANE_REWARD_MODULES"):
        monkeypatch.delenv(name, raising=False)
