"""One attempt from claim to settlement: prepare its directory, run the engine, follow, settle.

The only writer of a running job. Every write carries the attempt's fence; when one of them
changes no row, somebody took the lane over, and this supervisor kills its engine and stops.
Knows no other job and no policy.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import select, update

from engine.contract.documents import opened
from engine.contract.ends import SERVER_LOST
from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from engine.contract.events import Event, usable
from engine.contract.paths import broken_link
from engine.contract.registry import get_kind, make_smaller, validate
from engine.contract.run_dir import Abort, AbortReason, InputFile, JobFile, RunDir, write_json
from worker.attempt.disk import full_disk
from worker.attempt.earlier import in_a_row
from worker.attempt.ingest import Ingest, UnreadableEventsError
from worker.attempt.provenance import note_provenance
from worker.attempt.runner.base import Engine, EngineStartError, Exit, Runner
from worker.attempt.settlement import (
    CANNOT_BEGIN,
    TRIES,
    Ending,
    Verdict,
    cannot_begin,
    full_error,
    no_run_directory,
    settle,
    settle_unreadable,
)
from worker.attempt.silence import PATIENCE, Silence
from worker.attempt.writing import Settled, actor, write_verdict
from worker.db.connection import DatabaseError
from worker.db.dialects import Unreadable
from worker.db.numbers import set_aside
from worker.db.tables import job
from worker.lane.lease import BEAT_PATIENCE_S, Lease, LeaseLostError
from worker.memory.guard import WatchdogError
from worker.memory.trace import note_on_lineage
from worker.queue.evaluations import tell_of
from worker.queue.states import State, note
from worker.queue.submit import Claim
from worker.screen import lines_on_screen

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_CHUNK = 4 * 1024 * 1024
_LOG_TAIL = 64 * 1024


class RunDirectoryError(NightlaneError):
    """The machine could not give an attempt its directory; the job is not to blame."""

    retryable = True


class Supervisor:
    """Runs one claimed attempt."""

    def __init__(
        self,
        lease: Lease,
        claim: Claim,
        runner: Runner,
        stop: Callable[[], bool],
        brake: Callable[[], Abort | None] = lambda: None,
    ) -> None:
        """`runner`: where the engine runs. `stop`: whether the drain was asked to end; then the
        engine checkpoints. `brake`: asked all the time; its request ends the attempt likewise.
        """
        self._lease = lease
        self._db = lease.db
        self._settings = settings = lease.db.settings
        self._claim = claim
        self._runner = runner
        self._stop = stop
        self._brake = brake
        self._run = RunDir(self._settings.runs_dir / str(claim.job_id))
        self._attempt = self._run.attempt(claim.attempt)
        self._asked: Abort | None = None
        """The stop request that the engine was told of, or would have been on a disk with room."""
        self._gave_up = False
        """The database was away for too long: the attempt ends at a checkpoint."""
        self._request_due = 0.0
        self._overdue = False
        """The engine was killed: it did not end in time after a stop request."""
        self._silence = Silence(settings.silence_s, settings.silence_least_s)

    def run(self) -> Settled:
        """Raises LeaseLostError when the lane was taken over; and, the job queued again, what
        keeps every job from running: RunDirectoryError, WatchdogError, EngineStartError.
        """
        try:
            self._prepare()
        except ConfigError as error:
            why = "its config does not hold any more"
            return self._settle(Verdict(State.FAILED, why, "CONFIG", str(error)))
        except (LeaseLostError, DatabaseError):
            raise
        except OSError as error:
            if not full_error(error) and self._others_can_begin():
                return self._cannot_begin(_in_words(error, self._run.root))
            self._settle(no_run_directory(error, time.time()))
            what = broken_link(self._attempt.root) or f"{self._attempt.root}: {error.strerror}"
            raise RunDirectoryError(
                f"{what}; make room or set NIGHTLANE_DATA_DIR, job {self._claim.job_id} is queued"
            ) from error
        except Exception as error:  # noqa: BLE001 - whatever a row or a kind holds, the queue goes on
            _LOG.exception("job %d", self._claim.job_id)
            return self._cannot_begin(f"{type(error).__name__}: {error}"[:500])
        try:
            return self._settle(settle(self._supervise(), time.time()))
        except UnreadableEventsError as error:
            return self._settle(settle_unreadable(error))
        except (WatchdogError, EngineStartError) as error:
            why = str(error)
            self._settle(Verdict(State.QUEUED, why, later=True, ended=why))
            raise

    # --- before ---

    def _prepare(self) -> None:
        """The attempt's directory: what the engine is told, and no request of an earlier life."""
        kind = get_kind(self._claim.kind)
        config = self._validated()
        self._find_room()
        if self._run.latest_attempt() >= self._claim.attempt:
            self._set_aside()
        self._attempt.root.mkdir(parents=True, exist_ok=True)
        self._attempt.file_away_abort()
        tell_of(self._db, self._claim.job_id)
        job_file = JobFile(
            job_id=self._claim.job_id,
            kind=self._claim.kind,
            config=config.model_dump(mode="json"),
            seed=getattr(config, "seed", 0),
            attempt=self._claim.attempt,
            fence=self._claim.fence,
            inputs=self._inputs(config),
            cache_dir=str(self._settings.cache_dir),
            serving=self._settings.serving if kind.serves(config) else None,
            supervisor_pid=os.getpid(),
        )
        write_json(self._attempt.job_file, job_file.model_dump(mode="json"))
        note_provenance(self._attempt)

    def _others_can_begin(self) -> bool:
        """Whether it is this job's directory alone that cannot be made."""
        try:
            with tempfile.TemporaryDirectory(prefix=".probe-", dir=self._settings.runs_dir):
                return True
        except OSError:
            return False

    def _cannot_begin(self, what: str) -> Settled:
        """Put aside for a while, or for good; the drain goes on with the next job."""
        before = in_a_row(self._db, self._claim.job_id, CANNOT_BEGIN, TRIES)
        return self._settle(cannot_begin(what, before, time.time()))

    def _find_room(self) -> None:
        """No engine is started that could only crash. Raises OSError."""
        runs = self._settings.runs_dir
        runs.mkdir(parents=True, exist_ok=True)
        if full_disk(runs):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(runs))

    def _validated(self) -> BaseModel:
        """To read a long corpus can take longer than a lease lasts: the heart beats on.

        Raises ConfigError, also for a row whose config is none.
        """
        config: Any = self._claim.config
        if not isinstance(config, dict) or isinstance(config, Unreadable):
            problem = "cannot be read in the job's row"
            why = config.why if isinstance(config, Unreadable) else f"it is {config!r}"
            remedy = f"the row is damaged ({why}); enqueue the job again"
            raise ConfigError([ConfigProblem("config", None, problem, remedy)])
        with ThreadPoolExecutor(1, "validate") as pool:
            found = pool.submit(validate, self._claim.kind, self._claim.config)
            while not wait([found], self._settings.poll_s).done:
                self._lease.keep()
        return found.result()

    def _set_aside(self) -> None:
        """Another database's job had this number: its checkpoints are not this one's."""
        place = set_aside(self._run)
        why = f"the run directory of an earlier job of this number was moved to {place}"
        _LOG.warning("job %s: %s", self._claim.job_id, why)
        with self._db.write_tx() as conn:
            mine = select(job.c.fence).where(job.c.id == self._claim.job_id)
            if conn.execute(mine).scalar_one() != self._claim.fence:
                raise self._lease.lost()
            note(conn, self._claim.job_id, State.RUNNING, actor=actor(), why=why)

    def _inputs(self, config: BaseModel) -> list[InputFile]:
        """Every input by size and hash. Models are large: the heart beats on between chunks."""
        inputs = []
        for path in get_kind(self._claim.kind).inputs(config):
            try:
                inputs.append(self._input(path))
            except OSError as error:
                problem = f"cannot be read: {error.strerror}"
                raise ConfigError(
                    [ConfigProblem("inputs", str(path), problem, "make it readable, enqueue again")]
                ) from error
        return inputs

    def _input(self, path: Path) -> InputFile:
        digest, size = hashlib.sha256(), 0
        with opened(path) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                self._lease.keep()
        return InputFile(path=str(path), size=size, sha256=digest.hexdigest())

    # --- during ---

    def _supervise(self) -> Ending:
        """Run the engine to its end, whichever; nothing that it started is left."""
        # Before the start: the new engine may cut off and write anew what a power cut tore.
        try:
            self._silence.learn(usable(self._run.events))
            ingest = Ingest(self._lease, self._claim.job_id, self._run, self._silence.heard)
        except OSError as error:
            raise UnreadableEventsError(self._run.events, error) from error
        engine = self._runner.start(self._run, self._claim.attempt)
        try:
            self._record(engine)
            exit_ = self._follow(engine, ingest)
        finally:
            engine.kill()
            note_on_lineage(self._run)
        most = self._settings.max_attempts
        return Ending(
            exit_status=exit_.status,
            abort=self._attempt.read_abort() or self._asked,
            finished=self._own(ingest.finished),
            last_words=last_line(self._attempt.log),
            oom_deferred=self._oom_deferred(),
            overdue=self._overdue,
            guarded=exit_.killed,
            make_smaller=make_smaller(self._claim.kind),
            full_disk=exit_.full_disk,
            servers_lost=in_a_row(self._db, self._claim.job_id, SERVER_LOST, most),
            max_attempts=most,
        )

    def _record(self, engine: Engine) -> None:
        """Who the engine is, so that a takeover can find it.

        A stop that was asked for before the attempt's directory stood gets its sentinel here;
        whoever asks later finds job.json, and writes it.
        """
        with self._db.write_tx() as conn:
            mine = update(job).where(
                job.c.id == self._claim.job_id, job.c.fence == self._claim.fence
            )
            named = mine.values(engine=engine.identity).returning(job.c.stop_requested)
            row = conn.execute(named).one_or_none()
        if row is None:
            raise self._lease.lost()
        if row.stop_requested:
            self._ask_to_stop(engine, Abort(reason=AbortReason(row.stop_requested)))

    def _follow(self, engine: Engine, ingest: Ingest) -> Exit:
        asked_at: float | None = None
        while (exit_ := self._look(engine, ingest)) is None:
            if asked_at is None and self._asked:
                asked_at = time.monotonic()
            if asked_at and time.monotonic() - asked_at > self._settings.abort_grace_s:
                engine.kill()
                self._overdue = True
            time.sleep(self._settings.poll_s)
        self._fetch()
        ingest.silent_since = None
        ingest.pull()
        self._insist(ingest.flush)
        return exit_

    def _look(self, engine: Engine, ingest: Ingest) -> Exit | None:
        """Take in what is new, pass on what was asked, and see whether it ended."""
        self._fetch()
        self._silence.look()
        self._report(engine, ingest)
        self._ask_to_stop(engine, self._attempt.read_abort())
        if self._stop() or self._gave_up:
            self._ask_to_stop(engine, Abort(reason=AbortReason.SIGTERM))
        return engine.follow(ingest.result.get("phase"), ingest.result.get("step"))

    def _fetch(self) -> None:
        self._runner.fetch(self._run, self._claim.attempt)

    def _report(self, engine: Engine, ingest: Ingest) -> None:
        """Keep row and lease up to date, as long as the database lets us."""
        if self._gave_up:
            return
        try:
            ingest.pull()
            self._lease.keep()
            self._ask_to_stop(engine, self._requested())
            self._ask_to_stop(engine, self._brake())
            self._end_silence(engine, ingest)
        except DatabaseError as error:
            _LOG.error("%s (job %d is asked to stop)", error, self._claim.job_id)
            self._gave_up = True

    def _requested(self) -> Abort | None:
        """What a person asked for in the database, looked at with each heartbeat: on a full disk
        there is no sentinel.
        """
        now = time.monotonic()
        if self._asked is not None or now < self._request_due:
            return None
        self._request_due = now + self._settings.heartbeat_s
        asked = select(job.c.stop_requested).where(job.c.id == self._claim.job_id)
        with contextlib.suppress(DatabaseError), self._db.read() as conn:
            reason = conn.execute(asked).scalar_one()
            return Abort(reason=AbortReason(reason)) if reason else None
        return None

    def _end_silence(self, engine: Engine, ingest: Ingest) -> None:
        """Say that no event comes any more; later, ask an engine to stop that may not hear it."""
        silent = self._silence.found()
        if silent is None:
            ingest.silent_since = None
            return
        if ingest.silent_since is None:
            ingest.silent_since = time.time() - silent.seconds
            self._note_silence(f"{silent}; it is ended after {PATIENCE * silent.limit_s:.0f} s")
        if silent.overdue and self._asked is None:
            self._note_silence(f"{silent}: asked to stop, to resume from its last checkpoint")
            self._ask_to_stop(engine, Abort(reason=AbortReason.SILENT))

    def _note_silence(self, why: str) -> None:
        """For the audit; the log says it too, where the database cannot be written."""
        _LOG.warning("job %d: %s", self._claim.job_id, why)
        with contextlib.suppress(DatabaseError), self._db.write_tx(patience_s=BEAT_PATIENCE_S) as c:
            mine = select(job.c.fence).where(job.c.id == self._claim.job_id)
            if c.execute(mine).scalar_one() != self._claim.fence:
                raise self._lease.lost()
            note(c, self._claim.job_id, State.RUNNING, actor=actor(), why=f"SILENT: {why}")

    def _ask_to_stop(self, engine: Engine, request: Abort | None) -> None:
        """The first request counts."""
        if request is not None and self._asked is None:
            self._asked = request
            try:
                engine.ask_to_stop(request)
            except OSError as error:
                _LOG.warning("%s: no sentinel: %s", self._attempt.abort, error.strerror)

    # --- after ---

    def _own(self, finished: Event | None) -> Event | None:
        """Not the end of an earlier attempt, read late."""
        own = finished is not None and finished["attempt"] == self._claim.attempt
        return finished if own else None

    def _oom_deferred(self) -> int:
        statement = select(job.c.oom_deferred).where(job.c.id == self._claim.job_id)
        with self._db.read() as conn:
            return int(conn.execute(statement).scalar_one())

    def _settle(self, verdict: Verdict) -> Settled:
        return self._insist(
            lambda: write_verdict(self._lease, self._claim.job_id, self._claim.attempt, verdict)
        )

    def _insist(self, write: Callable[[], _T]) -> _T:
        """A write that ends the attempt waits for the database, but not against a stop request.

        Raises DatabaseError; then a rescue finishes what this could not write.
        """
        while True:
            try:
                return write()
            except DatabaseError as error:
                if self._stop() or self._gave_up:
                    raise
                self._lease.outage.bear(error)
            time.sleep(self._settings.poll_s)


def _in_words(error: OSError, place: Path) -> str:
    """Which file, and what to do; an error without a path is of the place."""
    named = Path(error.filename or place)
    in_the_way = (path for path in named.parents if path.exists() and not path.is_dir())
    if (file := next(in_the_way, None)) is not None:
        return f"{file} is a file where a directory must be; move it away"
    what = error.strerror or type(error).__name__
    return f"{named}: {what}; move it away or make it writable for this user"


def last_line(log: Path) -> str:
    """What a process said last, without looking at more than the end of its log."""
    try:
        with opened(log) as stream:
            stream.seek(max(0, log.stat().st_size - _LOG_TAIL))
            text = stream.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    lines = lines_on_screen(text)
    return lines[-1].strip()[:500] if lines else ""
