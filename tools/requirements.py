"""Each row of docs/requirements.toml with the tests that prove it.

Runs the marked tests, or reads the outcomes of earlier runs (`--results FILE …`, as written by
`pytest --requirements-json FILE`). Fails when a row marked finished has no passing test, or a
failing one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

Outcomes = Mapping[str, Mapping[str, str]]
"""Row id → test → passed, failed or skipped."""
_RANK = ("skipped", "passed", "failed")
"""Of several outcomes of a test the last of these counts."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every finished row is proven."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, nargs="+", help="outcomes of earlier runs")
    options = parser.parse_args(argv)
    with (ROOT / "docs/requirements.toml").open("rb") as stream:
        rows = tomllib.load(stream)["row"]
    outcomes = read(options.results) if options.results else run_marked_tests()
    lines, unproven = table(rows, outcomes)
    print("\n".join(lines))
    return 1 if unproven else 0


def read(files: Sequence[Path]) -> Outcomes:
    """All of them as one: a test that several ran counts as failed if it failed in one, and as
    skipped only if none ran it.
    """
    merged: dict[str, dict[str, str]] = {}
    for file in files:
        for row, tests in json.loads(file.read_text()).items():
            for name, outcome in tests.items():
                known = merged.setdefault(row, {})
                known[name] = max(known.get(name, outcome), outcome, key=_RANK.index)
    return merged


def run_marked_tests() -> Outcomes:
    """Run every test that carries a requirement mark."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "requirement"]
        subprocess.run([*command, f"--requirements-json={target}"], cwd=ROOT, check=False)
        loaded: Outcomes = json.loads(target.read_text())
    return loaded


def table(rows: Sequence[Mapping[str, Any]], outcomes: Outcomes) -> tuple[list[str], list[str]]:
    """The printed lines, and the ids of finished rows that are not proven."""
    lines: list[str] = []
    unproven: list[str] = []
    proven = 0
    for row in rows:
        tests = outcomes.get(row["id"], {})
        passed = [name for name, outcome in tests.items() if outcome == "passed"]
        failed = [name for name, outcome in tests.items() if outcome == "failed"]
        good = bool(passed) and not failed
        finished = row["state"] == "finished"
        proven += good and finished
        if finished and not good:
            unproven.append(row["id"])
        mark = "proven" if good and finished else "UNPROVEN" if finished else row["state"]
        lines.append(f"{row['id']}  {mark:<8}  {row['text']}")
        lines += [f"{'':16}{tests[name]:<7} {name}" for name in sorted(tests)]
    lines.append(f"{proven} of {len(rows)} rows proven")
    return lines, unproven


if __name__ == "__main__":
    sys.exit(main())
