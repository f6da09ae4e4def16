"""What a run came to, without the times: add an attempt to a run directory, read it, compare two.

For `tools/proof.py` and for the tests that kill a run and resume it. Knows the run directory and
the files of a checkpoint; no kind.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from engine.contract.events import Event, EventReader
from engine.contract.registry import validate
from engine.contract.run_dir import JobFile, RunDir
from engine.contract.serving import Serving

_TIME = re.compile(
    r"t|seconds.*|time/.*|finished_at|eta_s|.*_per_s(econd)?|train_runtime|mem/.*|mem|mem_trace"
    r"|peak_gb"
)
"""Names of values that differ each time: what was measured of the machine."""
_DOCUMENTS = {"loop.json", "trainer_state.json", "complete.json", "adapter_config.json"}
"""Files of a checkpoint that hold times, or the place of the run, beside what counts."""
_UNTELLING = {"training_args.bin", "README.md"}
"""Files of a checkpoint that hold its settings and the place of the run: only that they exist."""

_ALWAYS = ("checkpoints", "rollouts", "metrics", "gates", "report", "lineage", "result")


def add_attempt(
    root: Path,
    raw: dict[str, Any],
    *,
    name: str = "run",
    kind: str = "rl_run",
    valid: bool = True,
    supervisor_pid: int | None = None,
    serving: Serving | None = None,
) -> RunDir:
    """Add an attempt to a run directory, as a drain would."""
    run = RunDir(root / name)
    number = run.latest_attempt() + 1
    config = validate(kind, raw).model_dump(mode="json") if valid else raw
    job = JobFile(
        job_id=1,
        kind=kind,
        config=config,
        seed=config.get("seed", 0),
        attempt=number,
        fence=number,
        cache_dir=str(root / "cache"),
        supervisor_pid=supervisor_pid,
        serving=serving,
    )
    path = run.attempt(number).job_file
    path.parent.mkdir(parents=True)
    path.write_text(job.model_dump_json(), "utf-8")
    return run


def events_of(run: RunDir, type_: str | None = None) -> list[Event]:
    """Events of a run, all or of one type."""
    return [e for e, _ in EventReader(run.events).read() if type_ in {None, e["type"]}]


def outcome(run: RunDir, but: Collection[str] = ()) -> dict[str, Any]:
    """All that must not depend on when, where and in how many attempts a run was made.

    JSON as it stands; `but` names more values that do not count. Raises ValueError for a run that
    left nothing to compare.
    """
    found = {
        "checkpoints": {path.name: _folder(path, run) for path in _inside(run.checkpoints)},
        "base": _folder(run.base, run),
        "selected": run.selected.resolve().name,
        "rollouts": {path.name: sha256(path) for path in _files(run.rollouts)},
        "metrics": metrics_of(run),
        "gates": gates_of(run),
        "split": _document(run.split, run),
        "report": _document(run.report, run),
        "lineage": _document(run.lineage, run),
        "result": [_placeless(e["result"], run) for e in events_of(run, "finished")][-1:],
    }
    missing = [name for name in _ALWAYS if not found[name]]
    if missing:
        raise ValueError(f"{run.root} has no {', '.join(missing)}: it did not end")
    kept: dict[str, Any] = without_time(found, but)
    return kept


def differences(found: Any, expected: Any, name: str = "") -> list[str]:
    """What differs, leaf by leaf."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return [
            line
            for key in sorted({*found, *expected})
            for line in differences(
                found.get(key, _NOTHING), expected.get(key, _NOTHING), f"{name}.{key}"
            )
        ]
    if isinstance(found, list) and isinstance(expected, list):
        return list(_differences_of_lists(found, expected, name))
    return [] if found == expected else [f"{name}: {found!r} is not {expected!r}"]


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _differences_of_lists(found: list[Any], expected: list[Any], name: str) -> Iterator[str]:
    """Item by item, or the stretches that were put in, left out or replaced."""
    if len(found) == len(expected) and any(isinstance(one, dict | list) for one in found):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, f"{name}[{index}]")
        return
    ours, theirs = ([json.dumps(one, sort_keys=True) for one in side] for side in (found, expected))
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag != "equal":
            yield f"{name}[{a}]: {found[a:b]!r} is not {expected[c:d]!r}"


def sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def without_time(value: Any, but: Collection[str] = ()) -> Any:
    """A copy without the values that differ each time, and without those named in `but`."""
    if isinstance(value, dict):
        return {
            key: without_time(item, but)
            for key, item in value.items()
            if key not in but and not _TIME.fullmatch(key)
        }
    return [without_time(item, but) for item in value] if isinstance(value, list) else value


def gates_of(run: RunDir) -> list[dict[str, Any]]:
    """Gates that still count, in the order of their steps."""
    kept: list[dict[str, Any]] = []
    for event in events_of(run):
        if event["type"] == "started":
            resumed = event["resumed_from"]
            kept = [e for e in kept if resumed is not None and e["step"] <= resumed]
        elif event["type"] == "gate":
            kept.append({k: v for k, v in event.items() if k not in {"seq", "attempt", "t"}})
    return sorted(kept, key=lambda e: (e["split"], e["step"]))


def metrics_of(run: RunDir) -> dict[str, float]:
    """Values that still count by series and step, as the worker folds them; times left out."""
    found: dict[tuple[str, int], float] = {}
    for event in events_of(run):
        if event["type"] == "started":
            resumed = event["resumed_from"]
            found = {key: v for key, v in found.items() if _counts(*key, resumed)}
        elif event["type"] == "metric":
            found |= {(series, event["step"]): v for series, v in event["values"].items()}
    return {f"{name}@{step}": v for (name, step), v in found.items() if not _TIME.fullmatch(name)}


def _counts(series: str, step: int, resumed: int | None) -> bool:
    """Steps of the warm-up are other steps: they are void when a run begins anew."""
    return resumed is not None and (series.startswith("warmup/") or step <= resumed)


def _folder(folder: Path, run: RunDir) -> dict[str, Any]:
    """Each file below a model or a checkpoint: its hash, or what counts of it."""
    return {str(path.relative_to(folder)): _content(path, run) for path in _files(folder)}


def _content(path: Path, run: RunDir) -> Any:
    if path.name in _UNTELLING:
        return "is there"
    if path.name not in _DOCUMENTS:
        return sha256(path)
    found = _document(path, run)
    if path.name == "complete.json":
        found["files"] = sorted(found["files"])  # hashes of files that hold times
    return found


def _document(path: Path, run: RunDir) -> Any:
    return _placeless(json.loads(path.read_bytes()), run) if path.exists() else None


def _placeless(value: Any, run: RunDir) -> Any:
    """The run may lie elsewhere next time."""
    return json.loads(json.dumps(value).replace(json.dumps(str(run.root))[1:-1], "RUN"))


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
