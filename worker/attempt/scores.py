"""From events to table `eval_score`: what checkpoints scored on benches.

A `score` event says it all. A `gate` event of a training run says its numbers, and the job's config
what they are of. Written in the transaction that writes the metric rows; later steps that a resumed
attempt measures anew are taken back with those. Knows no page.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from engine.contract.events import Event, fault
from engine.contract.known import pair, real, whole
from engine.contract.registry import kinds
from engine.contract.scores import BenchScore, score_of
from engine.contract.sources.benches import OWN
from worker.db.metrics import LONGEST_NAME
from worker.db.tables import eval_score, job

_MAX = 2**31 - 1
"""The largest whole number of a column on every database."""
_HELDOUT = ("select", "report")
_ROWS = (
    "data",
    "heldout_frac",
    "select_frac",
    "verifier",
    "rewards",
    "success_threshold",
    "heldout_temp",
    "max_new_tokens",
    "prompting",
    "sampling",
    "custom",
    "global_max_length",
)
"""Settings that decide which rows a gate asks, how, and what counts as right."""
_ORDER = frozenset(
    {
        "curriculum",
        "curriculum_file",
        "difficulty_field",
        "easy_values",
        "difficulty_bands",
        "mix_order",
    }
)
"""Settings of `data` that only say in which order training rows are drawn."""


class ScoredJob(NamedTuple):
    """What a gate's score takes from its job."""

    id: int
    kind: str
    config: Mapping[str, Any]
    data_hash: str | None


def read_score(event: Event) -> BenchScore | None:
    """Of a `score` event; None where no table can hold it."""
    score = score_of(event.get("score"))
    return score if score is not None and _fits(score, event.get("step")) else None


def gate_score(event: Event, of: ScoredJob) -> BenchScore | None:
    """A gate as a score of the run's checkpoint; None where it has no score, n or interval.

    Its bench is `own` for the run's own held-out rows, `own/SOURCE` for a source of a mixture, else
    the bench's name. The `select` rows picked the checkpoint, and so did those of their sources.
    """
    step, split, n = whole(event.get("step")), event.get("split"), whole(event.get("n"))
    score, (low, high) = real(event.get("score")), pair(event.get("ci95"))
    if step is None or n is None or score is None or low is None or high is None:
        return None
    if not isinstance(split, str):
        return None
    told = _bench(split, of.config)
    values = _mapping(event.get("values"))
    temp = real(event.get("temp"))
    found = BenchScore(
        checkpoint="base" if step == 0 and not of.config.get("warmup") else f"step {step}",
        base=_base(of),
        run=of.id,
        step=step,
        bench=told.name,
        split=split,
        shots=whole(told.config.get("shots")) or 0,
        filter=told.verifier,
        metric=_metric(of.config),
        n=n,
        score=score,
        low=low,
        high=high,
        truncated=real(values.get("truncated")),
        unparsed=real(values.get("unparsed")),
        formats={k: float(v) for k, v in values.items() if _is_format(k) and real(v) is not None},
        picked=told.picked,
        runner="gate",
        temp=0.0 if temp is None else temp,
        max_new_tokens=whole(told.config.get("max_new_tokens"))
        or whole(of.config.get("max_new_tokens")),
        chat_template=_mapping(of.config.get("prompting")).get("skip_chat_template") is False,
        bench_hash=_gate_hash(split, told.config, of),
    )
    return found if _fits(found, step) else None


class _Bench(NamedTuple):
    """What a gate's split stands for."""

    name: str
    config: Mapping[str, Any]
    """Of a bench beside the own rows; else empty."""
    verifier: str
    picked: bool


def _bench(split: str, config: Mapping[str, Any]) -> _Bench:
    benches = {str(one.get("name")): one for one in _mappings(config.get("heldout"))}
    sources = {
        str(one.get("name")): one for one in _mappings(_mapping(config.get("data")).get("mix"))
    }
    decider = config.get("decide") or OWN
    name = decider if split in _HELDOUT else split
    if split in sources:
        said = _verifier(sources[split], config)
        return _Bench(f"{OWN}/{split}", {}, said, decider == OWN)
    bench = benches.get(name, {})
    return _Bench(name, bench, _verifier(bench, config), split == "select")


def _verifier(bench: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Who judges its rows, by name: its own verifier, its rows' field, or what the run says."""
    if bench.get("verifier"):
        return str(bench["verifier"])
    if bench.get("verifier_field"):
        return f"by {bench['verifier_field']}"
    parts = [one.get("verifier") or one.get("function") for one in _mappings(config.get("rewards"))]
    return "+".join(filter(None, parts)) or str(config.get("verifier") or "own")


def _metric(config: Mapping[str, Any]) -> str:
    """What a gate's score counts: of stage-2 runs what picks their checkpoint."""
    if "custom" not in config:
        return "exact_match"
    named = _mapping(config.get("training")).get("metric_for_best_model")
    return "mAP" if str(named).endswith("detection_map") else "f1"


def _base(of: ScoredJob) -> str:
    """The model that training began from: the setting that the kind names."""
    kind = kinds().get(of.kind)
    value: Any = of.config
    for name in (kind.model if kind and kind.model else "base").split("."):
        value = _mapping(value).get(name)
    return value if isinstance(value, str) and value else of.kind


def _gate_hash(split: str, bench: Mapping[str, Any], of: ScoredJob) -> str | None:
    """Equal where two runs' gates ask the same rows alike; None for a kind that does not say."""
    settings: dict[str, Any] = {name: of.config[name] for name in _ROWS if name in of.config}
    if not settings:
        return None
    data = _mapping(settings.get("data"))
    drawn = data.get("split_seed")
    settings["data"] = {name: value for name, value in data.items() if name not in _ORDER}
    settings["data"]["split_seed"] = of.config.get("seed") if drawn is None else drawn
    return _digest(split, of.config.get("decide"), bench, settings, of.data_hash)


def measure_of(score: BenchScore, job_id: int) -> str:
    """What was measured, on which rows: scores of one measure compare. Rows that nobody hashed
    compare inside one job.
    """
    rows = score.bench_hash or f"job {job_id}"
    what = (score.bench, score.shots, score.filter, score.metric, score.k, score.runner)
    return _digest(*what, rows)


def model_of(score: BenchScore) -> str:
    """Which weights: a step of a run, a format of it, else what was loaded."""
    if score.run is not None and score.format is not None:
        return _digest(score.run, score.step, score.format)
    if score.run is not None:
        return model_of_step(score.run, score.step)
    return _digest(score.path or score.base)


def model_of_step(run: int, step: int) -> str:
    """The weights of a run's checkpoint."""
    return _digest(run, step)


def write_scores(conn: Connection, job_id: int, events: Sequence[Event]) -> None:
    """Store the scores of events in their order; `started` takes back what later steps scored."""
    if not any(event.get("type") in {"score", "gate", "started"} for event in events):
        return
    found = select(job.c.id, job.c.kind, job.c.config, job.c.data_hash).where(job.c.id == job_id)
    of = ScoredJob(*conn.execute(found).one())
    rows: dict[str, dict[str, Any]] = {}
    for event in events:
        if fault(event) is not None:
            continue
        if event["type"] == "started":
            _insert(conn, rows)
            rows = {}
            drop_scores(conn, job_id, behind=event.get("resumed_from"))
        score = gate_score(event, of) if event["type"] == "gate" else None
        score = read_score(event) if event["type"] == "score" else score
        if score is not None:
            row = _row(score, event, job_id)
            rows[row["key"]] = row
    _insert(conn, rows)


def drop_scores(conn: Connection, job_id: int, *, behind: int | None = None) -> None:
    """Forget what a job scored after a step of its own; without one all of it."""
    gone = delete(eval_score).where(eval_score.c.job_id == job_id)
    conn.execute(gone if behind is None else gone.where(eval_score.c.job_step > behind))


def _row(score: BenchScore, event: Event, job_id: int) -> dict[str, Any]:
    columns = {name: getattr(score, name) for name in _COLUMNS}
    what = [score.split, score.run, score.step, score.path, score.runner]
    what += [score.bench, score.shots, score.filter, score.metric, score.k]
    return columns | {
        "job_id": job_id,
        "key": _digest(*what),
        "job_step": event["step"],
        "at": event.get("t"),
        "measure": measure_of(score, job_id),
        "model": model_of(score),
        "body": score.model_dump(mode="json"),
    }


_COLUMNS = tuple(
    name for name in (column.name for column in eval_score.c) if name in BenchScore.model_fields
)


def _insert(conn: Connection, rows: Mapping[str, dict[str, Any]]) -> None:
    if not rows:
        return
    dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(eval_score)
    changed = {name: statement.excluded[name] for name in eval_score.c.keys()}  # noqa: SIM118 - columns, no mapping
    of_row = {"job_id", "key"}
    statement = statement.on_conflict_do_update(
        index_elements=sorted(of_row),
        set_={name: value for name, value in changed.items() if name not in of_row},
    )
    conn.execute(statement, list(rows.values()))


def _fits(score: BenchScore, job_step: Any) -> bool:
    """Whether every database can hold it, and pages can reckon with it."""
    texts = (getattr(score, name) for name in ("checkpoint", "base", "bench", "split", "filter"))
    counts = (job_step, score.step, score.shots, score.k, score.n, score.run or 0)
    known = (score.score, score.low, score.high, score.truncated or 0.0, score.unparsed or 0.0)
    return (
        all(_is_name(text) for text in (*texts, score.metric, *_hashes(score)))
        and all(isinstance(one, int) and 0 <= one <= _MAX for one in counts)
        and all(real(value) is not None for value in known)
        and "\0" not in (score.path or "")
    )


def _hashes(score: BenchScore) -> Collection[str]:
    return [one for one in (score.bench_hash, score.data_hash) if one is not None]


def _is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME and "\0" not in text


def _is_format(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("format/")


def _digest(*parts: Any) -> str:
    said = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (one for one in (value if isinstance(value, list) else ()) if _mapping(one))
