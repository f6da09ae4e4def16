"""The run page: how one job goes, what it learnt, whether to believe it, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse

from app import charts
from app.findings import Findings, trace_of
from app.headline import Headline, title
from app.log_tail import read_log_tail
from app.parts import DatabasePart, JobId, SettingsPart
from app.schema import flattened, sections
from app.templating import page
from engine.contract.errors import ConfigError
from engine.contract.kinds import cautions, get_kind
from worker.jobs import views
from worker.jobs.states import State
from worker.jobs.views import JobView

router = APIRouter(prefix="/jobs", include_in_schema=False)


@dataclass(frozen=True)
class Panel:
    """A chart with its sentence."""

    chart: charts.Chart
    summary: str


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
    request: Request, job_id: JobId, database: DatabasePart, settings: SettingsPart
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it."""
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = views.last_change_id(database)
    job = views.get_job(database, job_id)
    metrics = views.metrics(database, job_id, charts.EVERY_SERIES)
    headline = Headline.of(job)
    config = _config_rows(job)
    context = {
        "position": position,
        "job": job,
        "headline": headline,
        "found": Findings.of(job),
        "cautions": _cautions(job),
        "title": title(job, headline),
        "panels": _panels(job, metrics),
        "gates": metrics.get(charts.HELDOUT, []),
        "warmup": metrics.get("warmup/heldout", []),
        "warmup_target": _warmup_target(job),
        "peak_gb": headline.peak_gb or _highest(metrics.get("mem/rss_gb", [])),
        "gap": charts.latest_gap(metrics),
        "chosen": [row for row in config if row.chosen],
        "untouched": [row for row in config if not row.chosen],
        "audit": views.audit(database, job_id),
        "log": read_log_tail(job.run_dir),
        "lease_s": settings.lease_s,
        "State": State,
    }
    return page(request, "run.html", context)


@router.get("/{job_id}/trace.json")
def trace(job_id: JobId, database: DatabasePart) -> FileResponse:
    """The run's trace, for Perfetto or chrome://tracing."""
    path = trace_of(views.get_job(database, job_id))
    if path is None:
        raise HTTPException(404, f"job {job_id} has written no trace; it comes with its first step")
    return FileResponse(path, media_type="application/json", filename=f"trace-job-{job_id}.json")


@router.get("/{job_id}/charts/{name}.json")
def chart_drawing(job_id: JobId, name: str, database: DatabasePart) -> JSONResponse:
    """The columns of one chart."""
    chart = _chart(name)
    selected = Headline.of(views.get_job(database, job_id)).selected_step
    metrics = views.metrics(database, job_id, chart.series)
    return JSONResponse(charts.drawing(chart, metrics, selected))


@router.get("/{job_id}/charts/{name}")
def chart_table(request: Request, job_id: JobId, name: str, database: DatabasePart) -> HTMLResponse:
    """The values of one chart as a table."""
    chart = _chart(name)
    job = views.get_job(database, job_id)
    table = charts.table(chart, views.metrics(database, job_id, chart.series))
    context = {"job": job, "table": table, "title": f"{chart.title} · job {job_id}"}
    return page(request, "chart_table.html", context)


def _chart(name: str) -> charts.Chart:
    try:
        return charts.CHARTS[name]
    except KeyError:
        known = ", ".join(charts.CHARTS)
        raise HTTPException(404, f"{name[:100]!r} is no chart; known: {known}") from None


def _panels(job: JobView, metrics: Mapping[str, charts.Points]) -> list[Panel]:
    found = []
    for chart in charts.CHARTS.values():
        if chart.name == "learning":
            said = f"{charts.summary(chart, metrics)} {_temperatures(job)}".rstrip()
            found.append(Panel(chart, said))
        elif any(metrics.get(name) for name in chart.series):
            found.append(Panel(chart, charts.summary(chart, metrics)))
    return found


def _temperatures(job: JobView) -> str:
    """Two scores sampled at different temperatures cannot be read as one line."""
    pool, heldout = job.config.get("temp"), job.config.get("heldout_temp")
    if pool is None or heldout is None or pool == heldout:
        return ""
    return f"Pool is sampled at temperature {pool}, held-out at {heldout}."


def _highest(points: charts.Points) -> float | None:
    return max((value for _, value in points), default=None)


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
        schema = get_kind(kind).config.model_json_schema()
    except ConfigError:
        return {}
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
