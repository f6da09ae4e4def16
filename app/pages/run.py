"""The run page: how one job goes, what it learnt, whether to believe it, and how it ended.

Each tab is an address of its own, and only what it shows is read.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse

from app.charts.charts import MOST_OUTLINE_ROWS
from app.charts.drawings import AxisName
from app.charts.panels import HELDOUT
from app.forms.schema import flattened, sections
from app.pages import run_charts
from app.pages.machine import attempts_of, calm_of, decisions_of, summary_of, table_of
from app.pages.run_figures import Figures
from app.pages.run_head import RunHead
from app.text import benches, scores, scoring, seeds
from app.text.findings import Findings, trace_of
from app.text.headline import Headline, title
from app.text.passk import PassK
from app.text.requant import Quantized
from app.web.dependencies import NO_NUL, DatabaseDep, JobId, SettingsDep, StepRange
from app.web.event_log import TYPES, read_events
from app.web.log_reader import may_hold_an_error, read_log
from app.web.repro import repro_of
from app.web.templating import page
from engine.contract.errors import ConfigError
from engine.contract.events import PHASES
from engine.contract.known import real
from engine.contract.registry import cautions, get_kind
from engine.contract.run_dir import RunDir
from engine.contract.trace import strict_json
from worker.db.connection import Database
from worker.memory.trace import LOG as MEMORY_LOG
from worker.queue.pruning import pruned_by
from worker.queue.states import State
from worker.read import feed, jobs, series
from worker.read.benches import benches_of, parts
from worker.read.evaluations import evaluations_of
from worker.read.follow_ups import requant_of_job
from worker.read.groups import group_of
from worker.read.jobs import JobView
from worker.read.machine import machine_now
from worker.read.scores.leaderboard import scores_of_job
from worker.settings import WorkerSettings

router = APIRouter(prefix="/jobs", include_in_schema=False)

SMOOTHINGS = ("0", "0.5", "0.8", "0.9", "0.95", "0.99")
MOST_AUDIT = 100
NOT_SET = "not set"


class Tab(enum.StrEnum):
    """The parts of the page."""

    CHARTS = "charts"
    SAMPLES = "samples"
    LOG = "log"
    MEMORY = "memory"
    CONFIG = "config"
    EVENTS = "events"
    REPRO = "repro"


class Wanted(StepRange):
    """What the address asks for."""

    tab: Tab = Tab.CHARTS
    find: str = Field("", max_length=200, pattern=NO_NUL)
    """Words in the names of series, or in the log."""
    attempt: int | None = Field(None, ge=1, le=10**6)
    at: int | None = Field(None, ge=0, le=2**62)
    """A byte of the log."""
    jump: Literal["error"] | None = None
    before: int | None = Field(None, ge=0, le=2**62)
    """A byte of the events."""
    type: str | None = Field(None, max_length=40)
    """Only events of this type."""
    axis: AxisName = "step"
    scale: Literal["linear", "log"] = "linear"
    smooth: run_charts.Smoothing = "0"
    show: list[str] = Field([], max_length=50)
    """Series that stand open in the list of all of them."""

    @property
    def whole(self) -> bool:
        """Whether the charts show the run from its beginning to its end."""
        return self.first is None and self.last is None

    @property
    def shown(self) -> list[tuple[str, str | int]]:
        """What the charts show, as fields of an address; what is usual is left out."""
        usual = {"axis": "step", "scale": "linear", "smooth": "0", "from": None, "to": None}
        told = {"axis": self.axis, "scale": self.scale, "smooth": self.smooth}
        known: dict[str, str | int | None] = {**told, "from": self.first, "to": self.last}
        fields = [(n, v) for n, v in known.items() if v is not None and v != usual[n]]
        return [*fields, *(("show", name) for name in self.show)]


@dataclass(frozen=True)
class ConfigRow:
    """One setting of the run beside its default."""

    name: str
    value: Any
    default: Any = None
    has_default: bool = False

    @property
    def chosen(self) -> bool:
        """Somebody gave it another value than its default."""
        return not self.has_default or self.value != self.default


@router.get("/{job_id}")
def run(
    request: Request,
    job_id: JobId,
    database: DatabaseDep,
    *,
    settings: SettingsDep,
    wanted: Annotated[Wanted, Query()],
) -> Response:
    """One tab of the page, or with `?part=live` what changes on it."""
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    job = jobs.get_job(database, job_id)
    if wanted.tab is Tab.SAMPLES:
        return RedirectResponse(_address(job_id, Tab.SAMPLES), HTTPStatus.SEE_OTHER)
    headline, now = Headline.of(job), time.time()
    context = {
        "position": position,
        "now": now,
        "job": job,
        "headline": headline,
        "head": RunHead(job, headline, now, settings.lease_s),
        "seeds": seeds.on_run(group_of(database, job_id), job_id),
        "title": title(job, headline),
        "wanted": wanted,
        "tabs": [(tab.value, _address(job_id, tab)) for tab in Tab],
        "query": urlencode(
            [pair for pair in request.query_params.multi_items() if pair[0] != "part"]
            + [("part", "live")]
        ),
        "lease_s": settings.lease_s,
        "State": State,
        "first_error": _first_error(job),
        "pruned_by": pruned_by(database, job_id) if job.pruned_at else None,
        **_LOADERS[wanted.tab](Asked(database, settings, job, wanted)),
    }
    return page(request, "run.html", context)


def _first_error(job: JobView) -> bool:
    """Of a job that ended otherwise than wished, whether its log has one to go to."""
    ended_badly = job.state.final and (job.cause or job.error) and job.attempt
    return bool(ended_badly) and may_hold_an_error(RunDir(job.run_dir).attempt(job.attempt).log)


def _address(job_id: int, tab: Tab) -> str:
    if tab is Tab.SAMPLES:
        return f"/jobs/{job_id}/samples"
    return f"/jobs/{job_id}" + ("" if tab is Tab.CHARTS else f"?tab={tab}")


class Asked(NamedTuple):
    """What a tab is made from."""

    database: Database
    settings: WorkerSettings
    job: JobView
    wanted: Wanted


def _charts(asked: Asked) -> dict[str, Any]:
    known = series.summaries(asked.database, asked.job.id)
    gap = run_charts.latest_gap(asked.database, asked.job.id, known)
    headline, memory = Headline.of(asked.job), known.get("mem/rss_gb")
    panels = run_charts.panels(asked.job, known, gap, _remark(asked.job))
    steps = series.Steps(asked.wanted.first, asked.wanted.last)
    lines = benches_of(asked.job.result, asked.job.config, known)
    scored = scores_of_job(asked.database, asked.job.id)
    found = Findings.of(asked.job)
    figures = Figures(
        job=asked.job,
        headline=headline,
        found=found,
        scoring=scoring.Scoring.of(asked.job, scored),
        passk=PassK.of(asked.job),
        quantized=Quantized.of(asked.job),
        gates=known.get(HELDOUT),
        warmup=known.get("warmup/heldout"),
        warmup_target=_warmup_target(asked.job),
        gap=gap,
        peak_gb=headline.peak_gb or (memory.high if memory else None),
    )
    return {
        "found": found,
        "figures": figures.all(),
        "scoring_words": scoring,
        "evaluations": evaluations_of(asked.database, asked.job.id),
        "passk": figures.passk,
        "quantized": figures.quantized,
        "requant": requant_of_job(asked.database, asked.job),
        "cautions": _cautions(asked.job),
        "panels": panels,
        # Called by a whole page: who asks for a live part runs scripts.
        "outline": partial(run_charts.outline, asked.database, asked.job, steps),
        "listed": run_charts.listed(asked.job, known, asked.wanted.find),
        "smoothings": SMOOTHINGS,
        "benches": lines,
        "bench_panels": run_charts.of_benches(lines, known),
        "bench_words": benches,
        "scores": scored,
        "score_words": scores,
    }


def _log(asked: Asked) -> dict[str, Any]:
    log = read_log(
        asked.job.run_dir,
        asked.wanted.attempt,
        asked.wanted.at,
        find=asked.wanted.find,
        first_error=asked.wanted.jump == "error",
    )
    search = {"jump": asked.wanted.jump} if asked.wanted.jump else {"find": asked.wanted.find}
    number = log.attempt if log else 0
    return {
        "log": log,
        "file": RunDir(asked.job.run_dir).attempt(asked.wanted.attempt or asked.job.attempt).log,
        "search": urlencode({"tab": "log", "attempt": number, **search}),
        "any_error": log is not None and may_hold_an_error(log.path),
    }


def _memory(asked: Asked) -> dict[str, Any]:
    memory = attempts_of(asked.job)
    limits = machine_now(asked.settings).limits
    trace = asked.job.result.get("mem_trace")
    return {
        "memory": any(attempt.history.n for attempt in memory),
        "log": RunDir(asked.job.run_dir).attempt(asked.job.attempt).root / MEMORY_LOG,
        "summary": summary_of(memory, limits),
        "outline": partial(table_of, memory, limits, MOST_OUTLINE_ROWS),
        "calm": calm_of(memory, limits),
        "decided": [found for attempt in memory for found in decisions_of(attempt)][::-1],
        "phases": _phases(trace),
    }


def _phases(trace: Any) -> list[tuple[str, float]]:
    """(phase, the most memory in use within it), in the order a run meets them first."""
    used = trace.get("phase_used_gb") if isinstance(trace, Mapping) else None
    pairs = used.items() if isinstance(used, Mapping) else ()
    known = [(str(phase), real(gb)) for phase, gb in pairs]
    found = [(phase, gb) for phase, gb in known if gb is not None]
    return sorted(found, key=lambda pair: PHASES.index(pair[0]) if pair[0] in PHASES else -1)


def _config(asked: Asked) -> dict[str, Any]:
    rows = _config_rows(asked.job)
    parent = _parent(asked)
    return {
        "chosen": [row for row in rows if row.chosen],
        "untouched": [row for row in rows if not row.chosen],
        "parent": parent,
        "changed": _changed(parent, asked.job) if parent else [],
        "cautions": _cautions(asked.job),
    }


def _changed(parent: JobView, job: JobView) -> list[tuple[str, Any, Any]]:
    """(setting, parent's value, this job's value) where they differ."""
    before, now = dict(_leaves(parent.config)), dict(_leaves(job.config))
    names = sorted({*before, *now})
    return [
        (name, before.get(name, NOT_SET), now.get(name, NOT_SET))
        for name in names
        if before.get(name, NOT_SET) != now.get(name, NOT_SET)
    ]


def _events(asked: Asked) -> dict[str, Any]:
    audit = jobs.audit(asked.database, asked.job.id)[::-1]
    return {
        "audit": audit[:MOST_AUDIT],
        "audit_n": len(audit),
        "file": RunDir(asked.job.run_dir).events,
        "events": read_events(asked.job.run_dir, asked.wanted.before, asked.wanted.type),
        "types": TYPES,
    }


def _repro(asked: Asked) -> dict[str, Any]:
    return {"repro": repro_of(asked.job), "parent": _parent(asked)}


def _parent(asked: Asked) -> JobView | None:
    """The job that it began from."""
    return jobs.get_job(asked.database, asked.job.clone_of) if asked.job.clone_of else None


_LOADERS = {
    Tab.CHARTS: _charts,
    Tab.LOG: _log,
    Tab.MEMORY: _memory,
    Tab.CONFIG: _config,
    Tab.EVENTS: _events,
    Tab.REPRO: _repro,
}


@router.get("/{job_id}/trace.json")
def trace(job_id: JobId, database: DatabaseDep) -> StreamingResponse:
    """The run's trace as it is now, for Perfetto, chrome://tracing or any reader of JSON."""
    path = trace_of(jobs.get_job(database, job_id))
    if path is None:
        raise HTTPException(404, f"job {job_id} has written no trace; it comes with its first step")
    saved_as = {"Content-Disposition": f'attachment; filename="trace-job-{job_id}.json"'}
    return StreamingResponse(strict_json(path), media_type="application/json", headers=saved_as)


@router.get("/{job_id}/passk/{name}")
def passk_file(
    job_id: JobId, name: Literal["passk.jsonl", "curriculum.txt"], database: DatabaseDep
) -> FileResponse:
    """Each row of a pass@k job, or the ids of those worth training on."""
    path = Path(jobs.get_job(database, job_id).run_dir) / name
    if not path.is_file():
        problem = f"job {job_id} has no {name}; a pass@k job writes it at its end"
        raise HTTPException(404, problem)
    return FileResponse(path, media_type="text/plain; charset=utf-8")


def _remark(job: JobView) -> str:
    """What else one must know to read the first chart."""
    lines = benches_of({}, job.config)
    decider = next((line for line in lines if line.decides), None)
    said = ""
    if decider is not None and decider.kind == "bench":
        said = f"Held-out are rows of the bench {decider.label}, which decides."
    elif parts(lines):
        said = "Held-out is the mean of its sources by weight; each has a chart of its own below."
    return " ".join(filter(None, (said, _temperatures(job))))


def _temperatures(job: JobView) -> str:
    """Two scores sampled at different temperatures cannot be read as one line."""
    pool, heldout = job.config.get("temp"), job.config.get("heldout_temp")
    if pool is None or heldout is None or pool == heldout:
        return ""
    return f"Pool is sampled at temperature {pool}, held-out at {heldout}."


def _cautions(job: JobView) -> list[str]:
    """What its config had better not say. A job of a kind or a time gone by has none."""
    try:
        return [caution.line() for caution in cautions(job.kind, job.config)]
    except (ConfigError, ValidationError):
        return []


def _warmup_target(job: JobView) -> float | None:
    """The accuracy that ends the warm-up, for kinds that have one."""
    warmup = job.config.get("warmup")
    names = ("target_heldout", "target_f1")
    found = [warmup[name] for name in names if name in warmup] if warmup else []
    target = found[0] if found else None
    return target if isinstance(target, float) else None


def _config_rows(job: JobView) -> list[ConfigRow]:
    defaults = _defaults(job.kind)
    return [
        ConfigRow(name, value, defaults.get(name), name in defaults)
        for name, value in _leaves(job.config)
    ]


def _defaults(kind: str) -> Mapping[str, Any]:
    """Empty for a kind that is not registered any more: then every setting was chosen."""
    try:
        return _defaults_of(get_kind(kind).config)
    except ConfigError:
        return {}


@lru_cache(maxsize=32)
def _defaults_of(config: type[BaseModel]) -> Mapping[str, Any]:
    """Kept: making the schema takes longer than the rest of the page."""
    schema = config.model_json_schema()
    absent = {section.name: None for section in sections(schema) if section.optional}
    leaves = flattened(schema)
    return absent | {leaf.name: leaf.default for leaf in leaves if not leaf.required}


def _leaves(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found
