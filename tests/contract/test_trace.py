"""trace.json: whole after any crash, and as Perfetto reads it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.trace import TraceWriter, read_trace, strict_json, time_by_span

PHASES = {"X", "C", "i", "M"}


def as_perfetto_reads_it(path: Path) -> list[dict[str, Any]]:
    """The JSON Array Format: the closing bracket may be left out, and a comma before it."""
    text = path.read_text("utf-8").rstrip()
    events: list[dict[str, Any]] = json.loads(text.removesuffix(",") + "]")
    for event in events:
        assert event["ph"] in PHASES
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] > 1e15  # microseconds since 1970
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
    return events


def written(path: Path, attempt: int = 1) -> None:
    trace = TraceWriter(path, attempt)
    trace.span("sampling", 10.0, 11.5, step=1)
    trace.span("training", 11.5, 11.75, step=1)
    trace.counter("fates", {"used": 8, "wasted": 0, "share": float("nan")})
    trace.mark("INVERSION", step=1, text="“up” and down")
    trace.span("sampling", 12.0, 12.5, step=2)
    trace.close()


@pytest.mark.requirement("EX-16")
def test_a_trace_is_a_legal_array_of_complete_events(tmp_path: Path) -> None:
    """Spans, counters and marks; what is no finite number is left out."""
    path = tmp_path / "trace.json"

    written(path)

    events = as_perfetto_reads_it(path)
    assert [e["ph"] for e in events] == ["M", "X", "X", "C", "i", "X"]
    assert events[1]["dur"] == 1.5e6
    assert events[3]["args"] == {"used": 8, "wasted": 0}
    assert list(read_trace(path)) == events


@pytest.mark.requirement("EX-16")
def test_a_second_attempt_appends_under_its_own_process(tmp_path: Path) -> None:
    """Nothing of the first attempt is written again."""
    path = tmp_path / "trace.json"
    written(path)
    before = path.read_bytes()

    written(path, attempt=2)

    assert path.read_bytes().startswith(before)
    assert {e["pid"] for e in as_perfetto_reads_it(path)} == {1, 2}


@given(cut=st.integers(min_value=1, max_value=300))
def test_a_torn_last_line_is_cut_off_by_the_next_attempt(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """Killed inside a write, the file is whole again as soon as somebody opens it to write."""
    path = tmp_path_factory.mktemp("run") / "trace.json"
    written(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])
    kept = list(read_trace(path))

    written(path, attempt=2)

    events = as_perfetto_reads_it(path)
    assert [e for e in events if e["pid"] == 1] == kept
    assert len([e for e in events if e["pid"] == 2]) == 6


@pytest.mark.requirement("EX-16")
@pytest.mark.parametrize("events", [0, 1, 2, 1_200])
def test_a_trace_is_given_out_as_strict_json(tmp_path: Path, events: int) -> None:
    """Closed, of any length, without the last line that its writer was killed in."""
    path = tmp_path / "trace.json"
    if events:
        trace = TraceWriter(path, 1)
        for step in range(events - 1):
            trace.mark("ALERT", step=step)
        trace.close()
        with path.open("ab") as torn:
            torn.write(b'{"ph":"i","name":"AL')

    given = json.loads(b"".join(strict_json(path)))

    assert len(given) == events
    assert given == list(read_trace(path))


@pytest.mark.requirement("EX-16")
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, [1.0, math.nan]])
def test_what_is_no_finite_number_is_null_in_a_trace(tmp_path: Path, odd: Any) -> None:
    """JSON has no word for it, whoever wrote the line."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    path = tmp_path / "trace.json"
    trace = TraceWriter(path, 1)
    trace.mark("ALERT", value=odd)
    trace.close()
    with path.open("a") as older:
        older.write('{"ph":"i","name":"OLD","args":{"value":' + json.dumps(odd) + "}},\n")

    ours, old = json.loads(b"".join(strict_json(path)), parse_constant=refuse)[1:]

    missing = [1.0, None] if isinstance(odd, list) else None
    assert ours["args"] == old["args"] == {"value": missing}
    assert "NaN" not in path.read_text("utf-8").splitlines()[2]


def test_where_the_time_went_is_summed_by_name(tmp_path: Path) -> None:
    """The longest first; without a trace there is nothing to say."""
    path = tmp_path / "trace.json"
    assert time_by_span(path) == []

    written(path)

    assert [(s.name, s.seconds, s.spans) for s in time_by_span(path)] == [
        ("sampling", 2.0, 2),
        ("training", 0.25, 1),
    ]
