"""What a check found, as data for programs and in lines for a terminal.

Asked by `POST /api/v1/jobs/check` and `cockpit enqueue --dry-run`, which refuse what the queue
would refuse. Knows no route and no command.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from app.forms.job_check import MEMORY_WORDS, TIME_WORDS, Check, check
from app.text import wording
from engine.contract.errors import ConfigError
from worker.clock.moments import start_time
from worker.db.connection import Database
from worker.db.zone import lane_zone
from worker.queue.places import in_place
from worker.queue.submission import Submission
from worker.queue.submit import Candidate, candidate, terms_of
from worker.queue.sweeps import checked_candidates
from worker.read.jobs import JobView, get_job


class DryRun(NamedTuple):
    """What would be queued, and what is known about it."""

    candidates: Sequence[Candidate]
    """One, or each point of a sweep, with every default written out."""
    check: Check


def dry_run(database: Database, wanted: Submission) -> DryRun:
    """As if it were queued: the same looks and refusals, and no job.

    Raises ConfigError, ParentFailedError. A finished result of the same job stands in the answer.
    """
    wanted = in_place(wanted, database.settings.runs_dir)
    if wanted.sweep is None:
        candidates = [candidate(wanted.kind, wanted.config, wanted.name)]
    else:
        candidates = checked_candidates(wanted)
    not_before = start_time(wanted.not_before, time.time(), partial(lane_zone, database))
    with database.read() as conn:
        terms_of(conn, wanted, not_before)
    found = check(database, wanted, _original(database, wanted))
    if found.problems:  # a file went away in between
        raise ConfigError(found.problems)
    return DryRun(candidates, found)


def _original(database: Database, wanted: Submission) -> JobView | None:
    original = get_job(database, wanted.clone_of) if wanted.clone_of else None
    return original if original and original.kind == wanted.kind else None


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class MemoryNeed(_Answer):
    """Of the job that needs most; GB are 10⁹ bytes."""

    need_gb: float | None
    """null: nothing tells it beforehand."""
    basis: str | None
    """own, same: as that job did · kind: the estimate, corrected by runs of its kind · estimate."""
    room_gb: float | None
    """What a job may take now."""
    free_gb: float | None
    floor_gb: float
    """What must stay free."""
    returns_gb: float | None
    """What comes back from the resident model."""
    parts_gb: dict[str, float] | None
    """The estimate part by part, before any correction."""


class TimeNeed(_Answer):
    """Of all jobs together."""

    seconds: float
    basis: str
    """same: as that job took · kind: as its kind did · tried: at least, it got to no checkpoint in
    less · guess: nothing like it ended here, so much is counted."""
    runs: int
    """Finished runs that it is known from."""


class CostNeed(_Answer):
    """Of all jobs together, known as well as their time is."""

    usd: float
    price_usd_h: float


class DiskNeed(_Answer):
    """Of the checkpoints of all jobs together, as many as each keeps at once."""

    need_gb: float
    free_gb: float | None
    """At the run directories."""


class PutOff(_Answer):
    """Why not all of it would start if it were next now."""

    reason: str
    detail: str | None


class TriedBefore(_Answer):
    """A finished result of the same kind, settings and data: queued again only by `force`."""

    job_id: int
    verdict: str | None


class Changed(_Answer):
    """A setting that is not as in the job that this one began from."""

    setting: str
    before: Any
    after: list[Any]
    """One value, or each that a sweep gives it."""


class Caution(_Answer):
    """What the config had better not say."""

    field: str
    value: Any
    problem: str
    remedy: str
    message: str
    """All of it in one line."""


class PromptExample(_Answer):
    """A prompt as it will be asked."""

    name: str
    """Of its source."""
    row: str
    text: str
    note: str
    """What is not known of it yet; often empty."""
    which: str
    """shortest, median, longest: of the first hundred rows of what trains; empty for a bench."""
    answer: str
    """What its verifier is given; empty where the row has no answer."""


class CheckReport(_Answer):
    """What is known about a job, or all jobs of a sweep, before it is queued."""

    jobs: int
    looked_at: int
    """Points of a sweep whose memory and time were looked at; the others are taken to be alike."""
    fits: bool | None
    """Whether all of them fit now; null: nobody can tell."""
    too_large: int
    """How many of those looked at do not fit now."""
    memory: MemoryNeed
    time: TimeNeed
    cost: CostNeed
    disk: DiskNeed | None
    """null: the kind cannot tell."""
    put_off: PutOff | None
    tried: list[TriedBefore]
    cautions: list[Caution]
    examples: list[PromptExample]
    """One prompt of each source, as far as it is known without the model."""
    differences: list[Changed] | None
    """null: it began from no job of its kind."""

    @classmethod
    def of(cls, found: Check) -> Self:
        """Of a check without problems."""
        most, vaguest, held = found.largest, found.vaguest, found.put_off
        assert most is not None, "a check without problems looked at a job"
        assert vaguest is not None, "the same"
        return cls(
            jobs=found.jobs,
            looked_at=len(found.looked),
            fits=found.fits,
            too_large=found.too_large,
            memory=MemoryNeed(
                need_gb=most.need_gb,
                basis=most.need_by,
                room_gb=most.room_gb,
                free_gb=most.memory.free_gb,
                floor_gb=most.memory.floor_gb,
                returns_gb=most.memory.returns_gb,
                parts_gb=most.parts_gb,
            ),
            time=TimeNeed(seconds=found.seconds, basis=vaguest.expected_by, runs=vaguest.runs),
            cost=CostNeed(usd=found.cost_usd, price_usd_h=most.price_usd_h),
            disk=None
            if found.disk_gb is None
            else DiskNeed(need_gb=found.disk_gb, free_gb=found.disk_free_gb),
            put_off=PutOff(reason=str(held.reason), detail=held.detail) if held else None,
            tried=[
                TriedBefore(job_id=one.tried.job_id, verdict=one.tried.verdict)
                for one in found.tried
                if one.tried
            ],
            cautions=[Caution(**one.as_dict()) for one in found.cautions],
            examples=[PromptExample(**one._asdict()) for one in found.examples],
            differences=None
            if found.differences is None
            else [
                Changed(setting=one.name, before=one.before, after=list(one.after))
                for one in found.differences
            ],
        )

    def lines(self) -> Iterator[str]:
        """In words, one fact a line."""
        if self.jobs > 1:
            looked = "" if self.looked_at == self.jobs else f", {self.looked_at} of them looked at"
            yield f"a sweep of {self.jobs} jobs{looked}"
        yield f"memory: {self._memory()}"
        yield f"time: {self._time()}"
        yield f"cost: {self._cost()}"
        if self.disk is not None:
            free = self.disk.free_gb
            room = f", {wording.gigabytes(free)} free" if free is not None else ""
            yield f"disk: {wording.gigabytes(self.disk.need_gb)} of checkpoints at once{room}"
        if self.put_off:
            whole = "it would be put off" if self.jobs == 1 else "not all would start"
            yield f"if next now, {whole}: {self.put_off.detail} ({self.put_off.reason})"
        for one in self.tried[:_MOST_LINES]:
            said = one.verdict or "it succeeded"
            yield (
                f"already tried: job {one.job_id} has the same kind, settings and data ({said}); "
                "--force queues it all the same"
            )
        for change in (self.differences or ())[:_MOST_LINES]:
            values = ", ".join(wording.setting(value) for value in change.after)
            yield f"changed: {change.setting} from {wording.setting(change.before)} to {values}"

    def _memory(self) -> str:
        known = self.memory
        fits = {True: "fits now", False: "does not fit now", None: "whether it fits: unknown"}
        need = wording.gigabytes(known.need_gb) if known.need_gb is not None else "need unknown"
        most = "at most " if self.jobs > 1 and known.need_gb is not None else ""
        basis = f" ({MEMORY_WORDS[known.basis]})" if known.basis else ""
        room = "free memory unknown"
        if known.room_gb is not None:
            room = f"{wording.gigabytes(known.room_gb)} may be taken now"
        said = fits[self.fits]
        if self.too_large and self.jobs > 1:
            said = f"{self.too_large} of {self.looked_at} looked at do not fit now"
        return f"{most}{need}{basis}, {room}: {said}"

    def _time(self) -> str:
        took = wording.duration(self.time.seconds)
        if self.time.basis == "guess":
            return f"unknown, no run of this kind and model ended here; counted as {took}"
        runs = f", {self.time.runs} {'run' if self.time.runs == 1 else 'runs'}"
        return f"{took} ({TIME_WORDS[self.time.basis]}{runs if self.time.runs else ''})"

    def _cost(self) -> str:
        usd, price = f"${self.cost.usd:.2f}", wording.dollars(self.cost.price_usd_h)
        known = "unknown, counted as " if self.time.basis == "guess" else ""
        return f"{known}{usd}, at {price} an hour"


_MOST_LINES = 20
