"""One attempt as a kind's entry sees it: what to do, when to stop, and the one way to say things.

Knows the run directory and the process it lives in; not what trains.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.events import SIGN_OF_LIFE_S, EventLog, ends
from engine.contract.registry import get_kind, validate
from engine.contract.run_dir import (
    AttemptDir,
    InputFile,
    JobFile,
    RunDir,
    RunDirError,
    write_json,
    write_once,
)
from engine.run.checkpoint import Checkpoint
from engine.run.memory import PeakMeter, available_gb, rss_gb
from engine.run.pace import current_part


@dataclass(frozen=True)
class Attempt:
    """Handed to a kind's entry as its only argument."""

    run: RunDir
    dir: AttemptDir
    job: JobFile
    config: BaseModel
    """The job's config, validated by its kind."""
    events: EventLog

    @cached_property
    def peaks(self) -> PeakMeter:
        """The most memory that this attempt held, over all and by phase."""
        return PeakMeter()

    # --- what it says ---

    def progress(self, **fields: Any) -> None:
        """Live fields of the run (`engine.contract.events.Progress`)."""
        self.events.write("progress", **fields)

    def still_works(self) -> None:
        """Called wherever work goes on; what has written nothing for long says that it lives, and
        how far its phase is. Early: the next call may come late.
        """
        if self.events.idle_s >= SIGN_OF_LIFE_S / 2:
            part = current_part()
            self.progress(**({} if part is None else {"part": part.as_dict()}))

    def progress_with_memory(self, fields: Mapping[str, Any]) -> None:
        """The same, with how much memory the process has and the machine still could give."""
        mem = {
            "rss_gb": round(rss_gb(), 3),
            "peak_gb": round(self.peaks.peak_gb, 3),
            "available_gb": round(available_gb(), 3),
        }
        self.progress(**fields, mem=mem)

    def metric(self, step: int, values: Mapping[str, float]) -> None:
        """Series by name."""
        self.events.write("metric", step=step, values=dict(values))

    def note(self, code: str, text: str) -> None:
        """Worth knowing."""
        self.events.write("note", level="info", code=code, text=text)

    def warn(self, code: str, text: str) -> None:
        """A person should look at it."""
        self.events.write("note", level="warning", code=code, text=text)

    def begin(
        self,
        resumed: Checkpoint | None,
        *,
        but: Collection[str] = (),
        writes: bool = True,
        **fields: Any,
    ) -> None:
        """Settle the inputs, and say from where the run goes on; None: from the beginning.

        `but`: files that are proven in another way; `fields`: live fields of the first progress.
        Only who `writes` freezes the inputs. Raises ConfigError when a run would go on with other
        files than it began with.
        """
        if resumed is not None:
            self.require_inputs(but=but)
        elif writes:
            self.freeze_inputs(but=but)
            for of_weights_that_are_gone in (self.run.report, self.run.proof):
                of_weights_that_are_gone.unlink(missing_ok=True)
        step = None if resumed is None else resumed.step
        self.events.write("started", resumed_from=step)
        self.progress(phase="lane-bringup", step=step or 0, **fields)

    @contextmanager
    def warming_up(self) -> Iterator[None]:
        """The phase of the warm-up, with its share of memory."""
        self.progress(phase="warmup", step=0)
        self.peaks.begin()
        yield
        self.peaks.end("warmup")

    def stopped_before(self, resumed: Checkpoint | None) -> Sequence[int]:
        """Steps after which earlier attempts were stopped, from the run card, as far as this one
        goes on from them.
        """
        if resumed is None:
            return []
        try:
            trials = read_json_object(self.run.lineage)["trials"]
            stops = [int(trial["step"]) for trial in trials if trial["kind"] == "aborted"]
        except FileNotFoundError:
            return []
        except (OSError, LookupError, TypeError, ValueError):
            text = "lineage.json cannot be read; the run card is made anew from events.jsonl"
            self.warn("LINEAGE_REBUILT", text)
            results = (e["result"] for e in ends(self.run.events) if e.get("status") == "aborted")
            stops = [one["steps"] for one in results if isinstance(one.get("steps"), int)]
        return [step for step in stops if step <= resumed.step]

    # --- what day it is ---

    def now(self) -> datetime:
        """What a run takes for the present in every attempt: the moment at which it first asked.

        Local time without a zone, as a chat template wants it. Else a run over midnight would
        compare its gates under two prompts.
        """
        return self._now.replace(tzinfo=None)

    @cached_property
    def _now(self) -> datetime:
        return datetime.fromisoformat(write_once(self.run.today, _told_now)["today"])

    # --- when it must stop ---

    def orphaned(self) -> bool:
        """Whether the supervisor that started this process is no longer its parent."""
        supervisor = self.job.supervisor_pid
        return supervisor is not None and os.getppid() != supervisor

    def should_abort(self) -> bool:
        """Whether the sentinel stands or nobody supervises any more. Two system calls."""
        return self.dir.abort.exists() or self.orphaned()

    # --- what it reads ---

    @cached_property
    def inputs(self) -> Mapping[str, str]:
        """Path → SHA-256 of every file that the kind reads, what no loader reads left out."""
        paths = get_kind(self.job.kind).inputs(self.config)
        told = {one.path: one for one in self.job.inputs}
        return {str(p): self._hash(p, told.get(str(p))) for p in paths if not _idle(p)}

    def _hash(self, path: Path, told: InputFile | None) -> str:
        """As job.json says, unless the file was written since: an attempt may be run again."""
        now = path.stat()
        if (
            told is not None
            and told.size == now.st_size
            and now.st_mtime_ns < self.dir.job_file.stat().st_mtime_ns
        ):
            return told.sha256
        return InputFile.of(path).sha256

    def content(self, place: str | None) -> str | None:
        """A name for what stands at a path of the config: the same for the same files elsewhere.

        What is no file or folder here (an embedded model, a hub id) is a name by itself.
        """
        if place is None:
            return None
        found = sorted(
            [Path(path).name, digest]
            for path, digest in self.inputs.items()
            if place in {path, str(Path(path).parent)}
        )
        return hashlib.sha256(json.dumps(found).encode()).hexdigest() if found else place

    def freeze_inputs(self, *, but: Collection[str] = ()) -> None:
        """Write down what a run reads as it begins; what is in `but` is proven in another way."""
        write_json(self.run.inputs, {"files": self._held(but)})

    def require_inputs(self, *, but: Collection[str] = ()) -> None:
        """Raises ConfigError when a run would go on with other files than it began with."""
        try:
            began = dict(read_json_object(self.run.inputs)["files"])
        except FileNotFoundError:
            return  # begun before there was such a file
        except (OSError, LookupError, TypeError, ValueError):
            began = self._told_at_first(but)
        now = self._held(but)
        changed = [path for path in sorted({*began, *now}) if began.get(path) != now.get(path)]
        if not changed:
            return
        first = changed[0]
        problem = "is not what this run began with"
        if first not in now:
            problem = "is gone since this run began"
        elif first not in began:
            problem = "was not there when this run began"
        more = f" (and {len(changed) - 1} more files)" if len(changed) > 1 else ""
        remedy = (
            "put things back as they were, or run it again from the beginning: "
            f"cockpit retry {self.job.job_id} --fresh"
        )
        raise ConfigError([ConfigProblem("inputs", first, problem + more, remedy)])

    def _told_at_first(self, but: Collection[str]) -> dict[str, str]:
        """What the first attempt was told of its files, where inputs.json is damaged."""
        try:
            told = self.run.attempt(1).read_job().inputs
        except RunDirError:
            told = []
        if not told and self.inputs:
            problem = "cannot be read, and the job.json of attempt 1 does not tell the files either"
            remedy = f"run it again from the beginning: cockpit retry {self.job.job_id} --fresh"
            path = str(self.run.inputs)
            raise ConfigError([ConfigProblem("inputs", path, problem, remedy)])
        self.warn("INPUTS_REBUILT", "inputs.json cannot be read; the first job.json stands in")
        held = {one.path: one.sha256 for one in told if not _idle(Path(one.path))}
        return {path: digest for path, digest in held.items() if path not in but}

    def _held(self, but: Collection[str]) -> dict[str, str]:
        return {path: digest for path, digest in self.inputs.items() if path not in but}


def _told_now() -> dict[str, str]:
    return {"today": datetime.now().astimezone().isoformat(timespec="seconds")}


def _idle(path: Path) -> bool:
    """Beside a model, and never part of it: notes, and what tools leave hidden."""
    return path.name.startswith(".") or path.suffix == ".md"


def read_newest_job(run: RunDir) -> tuple[AttemptDir, JobFile]:
    """The newest attempt and its job.json. Raises RunDirError when there is none."""
    number = run.latest_attempt()
    if number == 0:
        raise RunDirError(
            f"{run.root} holds no attempts/NNN/job.json; name a run directory made by a drain"
        )
    directory = run.attempt(number)
    return directory, directory.read_job()


def open_attempt(run: RunDir, directory: AttemptDir, job: JobFile, events: EventLog) -> Attempt:
    """Raises ConfigError when the job's kind does not accept its config on this machine."""
    Path(job.cache_dir).mkdir(parents=True, exist_ok=True)
    return Attempt(run, directory, job, validate(job.kind, job.config), events)
