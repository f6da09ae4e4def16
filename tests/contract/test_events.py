"""events.jsonl: numbered, append-only, and whole after any crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.events import EventLog, EventReader, usable
from engine.run.recorder import GateKey, recorded_gates


def test_numbering_goes_on_over_attempts(tmp_path: Path) -> None:
    """seq counts over the life of the run; the attempt is told apart by its number."""
    path = tmp_path / "events.jsonl"
    first = EventLog(path, attempt=1)
    first.write("note", text="a")
    first.close()

    second = EventLog(path, attempt=2)
    second.write("note", text="b")
    second.close()

    events = [event for event, _ in EventReader(path).read()]
    assert [(event["seq"], event["attempt"]) for event in events] == [(1, 1), (2, 2)]


@given(cut=st.integers(min_value=1, max_value=200))
def test_a_torn_last_line_is_no_event_and_is_cut_off_by_the_next_attempt(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A writer killed inside a write leaves every earlier event readable."""
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    log = EventLog(path, attempt=1)
    log.write("note", text="whole")
    log.write("note", text="x" * 200)
    log.close()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])

    log = EventLog(path, attempt=2)
    log.write("note", text="after")
    log.close()

    events = [event for event, _ in EventReader(path).read()]
    assert [(event["seq"], event["text"]) for event in events] == [(1, "whole"), (2, "after")]


def test_a_reader_stops_before_a_line_that_is_still_being_written(tmp_path: Path) -> None:
    """Half a line is read on the next look, not lost and not guessed."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"seq":1,"type":"note"}\n{"seq":2,"ty')
    reader = EventReader(path)

    before = [event["seq"] for event, _ in reader.read()]
    with path.open("ab") as stream:
        stream.write(b'pe":"note"}\n')
    after = [event["seq"] for event, _ in reader.read()]

    assert (before, after) == ([1], [2])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_json_does_not_know_is_written_as_null(tmp_path: Path, number: float) -> None:
    """A diverged run must not write a file that no reader can parse."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, attempt=1)

    log.write("metric", step=1, values={"train/loss": number, "train/kl": 0.5})
    log.close()

    assert json.loads(path.read_text())["values"] == {"train/loss": None, "train/kl": 0.5}


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    """The worker may look before the engine has written anything."""
    assert list(EventReader(tmp_path / "events.jsonl").read()) == []


def test_half_a_character_costs_no_event(tmp_path: Path) -> None:
    """A model can say what no file can hold; the run goes on, and so does its reader."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, attempt=1)
    log.write("note", text="a\ud800b")
    log.close()
    with path.open("ab") as stream:
        stream.write(b'{"seq":2,"attempt":1,"type":"note","text":"\\ud83d\\ude00 \\ud800"}\n')

    events = [event for event, _ in EventReader(path).read()]

    assert [event["text"] for event in events] == ["a?b", "😀 \ufffd"]


def test_a_line_in_the_midst_that_is_no_event_is_told_and_passed(tmp_path: Path) -> None:
    """At the end it may be a write that is not over; behind it the writer has gone on."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"seq":1,"attempt":1,"type":"note"}\nno event\n')
    reader = EventReader(path)

    before = [event["type"] for event, _ in reader.read()]
    with path.open("ab") as stream:
        stream.write(b'{"seq":2,"attempt":1,"type":"gate"}\n')
    after = [event["type"] for event, _ in reader.read()]

    assert (before, after) == (["note"], ["unreadable", "gate"])
    assert reader.offset == path.stat().st_size


def test_a_resumed_run_passes_over_an_event_that_nobody_can_use(tmp_path: Path) -> None:
    """Its earlier gates are known all the same."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, attempt=1)
    log.write("started", resumed_from=None)
    log.write("gate", split="select", step=0, score=0.5, n=10, ci95=[0.4, 0.6])
    log.close()
    with path.open("a", encoding="utf-8") as file:
        file.write('{"seq": 3, "attempt": 1, "type": "gate", "step": "two", "ci95": 0.05}\n')
        file.write('{"seq": 4, "attempt": 1}\n')

    assert [event["seq"] for event in usable(path)] == [1, 2]
    assert recorded_gates(path, last_step=4) == {GateKey("select", 0): 0.5}
