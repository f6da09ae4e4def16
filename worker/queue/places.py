"""A job's number where a config names a model or a run: it stands for that job's directory.

`base: 7` is what job 7 published, `7@20` its checkpoint of step 20, `run:7` its frozen rows. Every
door that takes a config in passes here. Looks at no job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.contract.run_dir import RunDir
from worker.queue.submission import Submission

_JOB = re.compile(r"(\d{1,10})(?:@(\d{1,10}))?", re.ASCII)
RUN = "run:"


def place_of(named: Any, runs: Path) -> Any:
    """The directory that a number stands for; anything else, a folder of that name too, as it is.

    >>> str(place_of("7@20", Path("/runs"))), place_of("gpt2", Path("/runs"))
    ('/runs/7/checkpoints/step-000020', 'gpt2')
    """
    if isinstance(named, int) and not isinstance(named, bool):
        named = str(named)
    match = _JOB.fullmatch(named) if isinstance(named, str) else None
    if match is None or Path(named).exists():
        return named
    run = RunDir(runs / str(int(match[1])))
    return str(run.root if match[2] is None else run.checkpoint(int(match[2])))


def in_place(wanted: Submission, runs: Path) -> Submission:
    """The same request with directories for numbers."""
    return wanted.model_copy(update={"config": with_places(wanted.config, runs)})


def with_places(config: Mapping[str, Any], runs: Path) -> dict[str, Any]:
    """A config with directories for numbers. A whole number in `checkpoints` is a step."""
    found = dict(config)
    if "base" in found:
        found["base"] = place_of(found["base"], runs)
    if isinstance(found.get("checkpoints"), list):
        found["checkpoints"] = [
            one if isinstance(one, int) else place_of(one, runs) for one in found["checkpoints"]
        ]
    if isinstance(found.get("benches"), list):
        found["benches"] = [_bench(one, runs) for one in found["benches"]]
    if isinstance(found.get("evaluate"), Mapping):
        found["evaluate"] = with_places(found["evaluate"], runs)
    return found


def _bench(said: Any, runs: Path) -> Any:
    if isinstance(said, str) and said.startswith(RUN):
        return RUN + str(place_of(said.removeprefix(RUN), runs))
    if isinstance(said, Mapping) and "run" in said:
        return {**said, "run": place_of(said["run"], runs)}
    return said
