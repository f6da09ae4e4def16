"""The columns of the table of runs: what one can show, sort, filter and group by.

Some are built in. Beside them every setting is one, by its dotted name or its last part, every
bench that a run was judged on, and the last value of every series. Knows no page.
"""

from __future__ import annotations

import difflib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.known import real
from worker.read.runs.filter import Sort, Value
from worker.read.runs.run import Change, Run

Unit = Literal["points", "percent", "usd", "seconds", "gb", "moment", "plain"]
Source = Literal["table", "setting", "bench", "series"]
_NEAR = 3
"""Names that an error proposes."""


@dataclass(frozen=True)
class Column:
    """One of them."""

    key: str
    about: str
    kind: Sort
    value: Callable[[Run], Value]
    unit: Unit = "plain"
    source: Source = "table"
    change: Callable[[Run], Change | None] | None = None
    """Of a column of differences in points: the difference with its interval."""


def _decided(run: Run) -> Change | None:
    return run.change


def _on(bench: str, run: Run) -> Change | None:
    return run.benches.get(bench)


def _lift(change: Callable[[Run], Change | None], run: Run) -> float | None:
    found = change(run)
    return None if found is None else 100 * found.lift


def _percent(when: Literal["before", "after"], run: Run) -> float | None:
    found = getattr(run.change, when, None)
    return None if found is None else 100 * float(found)


def _figure(name: str, run: Run) -> float | None:
    found = real(run.figures.get(name))
    return None if found is None else float(found)


def _age(run: Run) -> float | None:
    return None if run.finished_at is None else time.time() - run.finished_at


def verdict_word(run: Run) -> str:
    """The verdict of a run that has one, else the state of its job."""
    if run.verdict is None and run.state.value == "succeeded":
        return "no verdict"
    return run.verdict or run.state.value


def _number(key: str, about: str, value: Callable[[Run], Value], unit: Unit = "plain") -> Column:
    return Column(key, about, "number", value, unit)


def _text(key: str, about: str, value: Callable[[Run], Value]) -> Column:
    return Column(key, about, "text", value)


def _attribute(name: str, run: Run) -> float | None:
    found = getattr(run, name)
    return None if found is None else float(found)


_GAIN = partial(_lift, _decided)
BUILT_IN: Mapping[str, Column] = {
    column.key: column
    for column in (
        _number("id", "number of the job", partial(_attribute, "id")),
        _text("name", "what people call it", lambda run: run.name),
        _text("state", "queued, running, succeeded, failed, …", lambda run: run.state.value),
        _text("kind", "rl_run, eval_rerun, …", lambda run: run.kind),
        _text("base", "the model that it began from", lambda run: run.base),
        _text("verdict", "gain, no gain proven, pool only, loss; else its state", verdict_word),
        Column(
            "gain",
            "difference to the base on held-out rows, in points; gain:>3",
            "number",
            _GAIN,
            "points",
            change=_decided,
        ),
        _number("before", "held-out, step 0, in percent", partial(_percent, "before"), "percent"),
        _number("after", "held-out, chosen step, percent", partial(_percent, "after"), "percent"),
        _number("rows", "held-out rows of the verdict", partial(_figure, "report_n")),
        _number("steps", "steps that it has done", partial(_figure, "step")),
        _number("chosen", "step of the chosen checkpoint", partial(_figure, "selected_step")),
        _number("pool", "newest score of training rollouts", partial(_figure, "pool_score")),
        _number("peak", "most memory of its engine, GB", partial(_figure, "peak_gb"), "gb"),
        _number("cost", "US dollars; cost:<2", partial(_attribute, "usd"), "usd"),
        _number(
            "time", "that it held the lane; time:>2h", partial(_attribute, "seconds"), "seconds"
        ),
        _number("age", "since its end; age:<24h", _age, "seconds"),
        _number("ended", "when it ended", partial(_attribute, "finished_at"), "moment"),
        _number("created", "when it was queued", partial(_attribute, "created_at"), "moment"),
        Column("tag", "a word that people gave it; tag:night", "words", lambda run: run.tags),
        _text("note", "what people wrote; note:*clip*, note:none", lambda run: run.note),
        _text("cause", "why it did not succeed, in a word", lambda run: run.cause),
        _text("demo", "yes: model or data are embedded", lambda run: "yes" if run.demo else "no"),
        _number("sweep", "number of its sweep", partial(_attribute, "sweep_id")),
        _number("parent", "job that it was made from", partial(_attribute, "clone_of")),
    )
}


class Columns:
    """All columns that the runs at hand have."""

    def __init__(self, runs: Sequence[Run], series: Iterable[str] = ()) -> None:
        self._runs = runs
        names = dict.fromkeys(
            name for names in {tuple(run.settings) for run in runs} for name in names
        )
        self._settings = names
        self._benches = {name: _bench(name) for name in _by_use(run.benches for run in runs)}
        self._series = {name: _series(name) for name in series}
        self._short = _shortened(names)

    @property
    def benches(self) -> list[Column]:
        """Those that most runs were judged on first."""
        return list(self._benches.values())

    @property
    def all(self) -> list[Column]:
        """Each once, in the order in which one looks for them."""
        settings = [_setting(name, self._runs) for name in self._settings]
        return [*BUILT_IN.values(), *self._benches.values(), *settings, *self._series.values()]

    def has(self, key: str) -> bool:
        """Whether there is such a column, by its whole key."""
        return any(
            key in known for known in (BUILT_IN, self._benches, self._settings, self._series)
        )

    def find(self, key: str) -> Column:
        """By its key, a setting by the last part of its name too. Raises ConfigError."""
        for columns in (BUILT_IN, self._benches, self._series):
            if key in columns:
                return columns[key]
        if (setting := self._short.get(key, key)) in self._settings:
            return _setting(setting, self._runs)
        folded = {name.lower(): name for name in (*BUILT_IN, *self._benches, *self._short)}
        if (same := folded.get(key.lower())) is not None and same != key:
            return self.find(same)
        raise _unknown(key, [*BUILT_IN, *self._benches, *self._short, *self._settings])


def _unknown(key: str, known: Sequence[str]) -> ConfigError:
    near = difflib.get_close_matches(key, known, _NEAR)
    remedy = f"did you mean {', '.join(near)}?" if near else "Tab in the filter lists all columns"
    return ConfigError([ConfigProblem("q", key[:60], "is no column of these runs", remedy)])


def _by_use(benches: Iterable[Mapping[str, Change]]) -> list[str]:
    counted = Counter(name for one in benches for name in one)
    return sorted(counted, key=lambda name: (-counted[name], name))


def _bench(name: str) -> Column:
    change = partial(_on, name)
    about = "difference of the chosen step to step 0, in points"
    return Column(name, about, "number", partial(_lift, change), "points", "bench", change)


def _series(name: str) -> Column:
    return Column(name, "last value", "number", partial(_last, name), source="series")


def _last(name: str, run: Run) -> float | None:
    return run.metrics.get(name)


def _setting(name: str, runs: Sequence[Run]) -> Column:
    """A number where every run that has it has a number or nothing."""
    found = [run.settings.get(name) for run in runs]
    told = [value for value in found if value is not None]
    numbers = bool(told) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in told
    )
    kind: Sort = "number" if numbers else "text"
    value = partial(_setting_number if numbers else _setting_text, name)
    return Column(name, "setting", kind, value, source="setting")


def _setting_number(name: str, run: Run) -> float | None:
    found = real(run.settings.get(name))
    return None if found is None else float(found)


def _setting_text(name: str, run: Run) -> str | None:
    found = run.settings.get(name)
    if found in (None, "", []):
        return None
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return os.path.basename(found) if found.startswith("/") else found  # noqa: PTH119
    return str(found)


def _shortened(names: Iterable[str]) -> dict[str, str]:
    """The last part of each dotted name that no other setting has."""
    last = Counter(name.rpartition(".")[2] for name in names)
    dotted = {name.rpartition(".")[2]: name for name in names if "." in name}
    return {short: name for short, name in dotted.items() if last[short] == 1}
