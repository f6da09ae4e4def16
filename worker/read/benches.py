"""What a run was judged on, a line each: own held-out rows, sources of its mixture, benches.

From the run's result as its engine wrote it; while that is still to come, from its gates. A part
that is missing or of another type reads as not known. Knows no sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.known import pair, real, whole
from worker.read.jobs import JobView
from worker.read.samples.files import SPLIT_NAME, Split, rollout_files
from worker.read.series import Summary

Kind = Literal["own", "source", "bench"]
OWN: Literal["own"] = "own"
_LOOK_AT = 3
"""Ids of rows that a line keeps, of either side."""


class BenchLine(BaseModel):
    """One line of the table. Scores and shares are parts of one."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    label: str
    """Its name, of a bench with its shots."""
    kind: Kind
    """The run's own held-out rows, a source of its mixture, or a bench beside them."""
    decides: bool = False
    """It picks the checkpoint, and the run's verdict is its own."""
    split: str
    """The name under which the completions behind its numbers are found."""
    n: int | None = None
    different: int | None = None
    before: float | None = None
    """By step 0."""
    after: float | None = None
    """By the picked step."""
    step: int | None = None
    """While there is no verdict: the gate that `after` is of."""
    after_low: float | None = None
    after_high: float | None = None
    """While there is no verdict: the 95 % interval of `after`."""
    lift: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % interval of `lift`."""
    gained: int | None = None
    lost: int | None = None
    """Rows that only the picked step solves, and those that only step 0 does."""
    verdict: str | None = None
    reason: str | None = None
    """What belongs behind the verdict: no transfer, format only, why there is none."""
    shares: dict[str, tuple[float | None, float | None]] = {}
    """By name, before and after: truncated, unparsed, `format/boxed`; `/right` and `/wrong` are
    those among solved rows and among the others."""
    look_gained: list[str] = []
    look_lost: list[str] = []
    """Ids of some of the rows that changed."""


def benches_of(
    result: Mapping[str, Any], config: Mapping[str, Any], gates: Mapping[str, Summary] | None = None
) -> list[BenchLine]:
    """The lines of a run with benches or a mixture. `gates`: its series, where no report is yet."""
    shots = {name: whole(one.get("shots")) or 0 for name, one in _benches(config)}
    found = [_line(one, shots) for one in _mappings(result.get("benches"))]
    lines = [line for line in found if line is not None]
    own = Split.REPORT if any(line.decides and line.kind == OWN for line in lines) else OWN
    lines = [
        one.model_copy(update={"split": own}) if one.kind == "source" else one for one in lines
    ]
    return lines or list(_so_far(config, gates or {}, shots))


def names_of(config: Mapping[str, Any]) -> list[str]:
    """The names of a run's held-out rows beside select and report."""
    own = [OWN] if _decider(config) != OWN else []
    return own + [name for name, _ in _benches(config) if name != _decider(config)]


def check_split(job: JobView, split: str | None) -> None:
    """Raises ConfigError where a run has no such held-out rows, nor will have any."""
    names = [*map(str, Split), *names_of(job.config)]
    if split is None or split in names or split in rollout_files(job.run_dir):
        return
    known = f"use one of: {', '.join(names)}"
    raise ConfigError([ConfigProblem("split", split, f"is no split of job {job.id}", known)])


def losses(lines: Sequence[BenchLine]) -> list[BenchLine]:
    """Those that were lost, though they do not decide."""
    return [line for line in lines if line.verdict == "loss" and not line.decides]


def parts(lines: Sequence[BenchLine]) -> list[BenchLine]:
    """The sources of a mixture: what an average over them must stand beside."""
    return [line for line in lines if line.kind == "source"]


def _line(said: Mapping[str, Any], shots: Mapping[str, int]) -> BenchLine | None:
    name, kind = said.get("name"), said.get("kind")
    if not isinstance(name, str) or not re.fullmatch(SPLIT_NAME, name):
        return None
    if kind not in get_args(Kind):
        return None
    low, high = pair(said.get("ci95"))
    look_at = said.get("look_at")
    looked = look_at if isinstance(look_at, Mapping) else {}
    label = _text(said.get("label")) or _labelled(name, shots)
    return BenchLine(
        name=name,
        label=label,
        kind=kind,
        decides=said.get("decides") is True,
        split=Split.REPORT if said.get("decides") is True else name,
        n=whole(said.get("n")),
        different=whole(said.get("different")),
        before=real(said.get("before")),
        after=real(said.get("after")),
        lift=real(said.get("lift")),
        low=low,
        high=high,
        gained=whole(said.get("gained")),
        lost=whole(said.get("lost")),
        verdict=_text(said.get("verdict")),
        reason=_text(said.get("reason")),
        shares=_shares(said.get("shares_before"), said.get("shares_after")),
        look_gained=_texts(looked.get("gained")),
        look_lost=_texts(looked.get("lost")),
    )


def _so_far(
    config: Mapping[str, Any], gates: Mapping[str, Summary], shots: Mapping[str, int]
) -> Iterator[BenchLine]:
    """The same names with what their gates have shown, and no verdict."""
    decider, sources = _decider(config), _sources(config)
    if not sources and not shots:
        return
    kinds: dict[str, Kind] = dict.fromkeys([decider, *sources, *names_of(config)], "bench")
    kinds |= dict.fromkeys(sources, "source")
    kinds[OWN] = "own"
    for name, kind in kinds.items():
        split = str(Split.SELECT) if name == decider else name
        own = Split.SELECT if decider == OWN else OWN
        yield BenchLine(
            split=own if kind == "source" else split,
            name=name,
            label=_labelled(name, shots),
            kind=kind,
            decides=name == decider,
            **_gated(f"heldout/{split}", gates),
        )


def _gated(series: str, gates: Mapping[str, Summary]) -> dict[str, Any]:
    score = gates.get(series)
    if score is None:
        return {}
    low, high = (gates.get(f"{series}/{side}") for side in ("low", "high"))
    more = {
        name.removeprefix(f"{series}/"): (one.first, one.last)
        for name, one in gates.items()
        if name.startswith(f"{series}/") and _is_share(name.removeprefix(f"{series}/"))
    }
    return {
        "before": score.first,
        "after": score.last,
        "step": score.last_step,
        "after_low": low.last if low else None,
        "after_high": high.last if high else None,
        "shares": more,
    }


def _is_share(name: str) -> bool:
    return name.partition("/")[0] in {"truncated", "unparsed", "format"}


def _shares(before: Any, after: Any) -> dict[str, tuple[float | None, float | None]]:
    first, last = (one if isinstance(one, Mapping) else {} for one in (before, after))
    return {
        name: (real(first.get(name)), real(last.get(name)))
        for name in dict.fromkeys([*first, *last])
        if isinstance(name, str) and _is_share(name)
    }


def _labelled(name: str, shots: Mapping[str, int]) -> str:
    return f"{name} ({shots[name]}-shot)" if shots.get(name) else name


def _decider(config: Mapping[str, Any]) -> str:
    return _text(config.get("decide")) or OWN


def _sources(config: Mapping[str, Any]) -> list[str]:
    data = config.get("data")
    mix = data.get("mix") if isinstance(data, Mapping) else None
    return [name for one in _mappings(mix) if (name := _text(one.get("name"))) is not None]


def _benches(config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    every = [(_text(one.get("name")), one) for one in _mappings(config.get("heldout"))]
    return [(name, one) for name, one in every if name is not None]


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    found = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    return found[:_LOOK_AT]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
