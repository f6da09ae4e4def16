"""How long the command line takes to answer, beside an interpreter that does nothing.

`make bench-startup`; figures are seconds, best and median of several runs side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMANDS: Mapping[str, Sequence[str]] = {
    "python -c pass": ["-c", "pass"],
    "cockpit --help": ["-m", "app.cli", "--help"],
    "cockpit jobs": ["-m", "app.cli", "jobs"],
    "cockpit show 1": ["-m", "app.cli", "show", "1"],
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; with `--json FILE` write the same figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(argv)
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NIGHTLANE_DATA_DIR": folder}
        for command in COMMANDS.values():  # the first run pays for the database and caches
            _run(command, environment)
        for _ in range(options.runs):
            for name, command in COMMANDS.items():
                seconds[name].append(_run(command, environment))
    floor = statistics.median(seconds["python -c pass"])
    figures = {
        name: {
            "best_s": round(min(times), 3),
            "median_s": round(statistics.median(times), 3),
            "times_python": round(statistics.median(times) / floor, 1),
        }
        for name, times in seconds.items()
    }
    print(f"{'command':<18}{'best s':>8}{'median s':>10}{'× python':>10}")
    for name, row in figures.items():
        print(f"{name:<18}{row['best_s']:>8}{row['median_s']:>10}{row['times_python']:>10}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def _run(command: Sequence[str], environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=False)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
