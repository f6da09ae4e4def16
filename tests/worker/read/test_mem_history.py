"""The memory log as a page follows it: read once, thinned, never without its lowest reading."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.memory.trace import LOG, MemoryLog, MemoryPoint, memory_points, point_of
from worker.read import mem_history
from worker.read.mem_history import memory_history

BEGAN = 1_790_000_000.0


def wrote(folder: Path, *readings: tuple[float, float]) -> None:
    """Readings as (second, GB), appended."""
    log = MemoryLog(folder)
    for second, free_gb in readings:
        log.note(BEGAN + second, free_gb, "training")


@pytest.mark.requirement("UI-07")
def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look takes the lines that were written since."""
    seen: list[bytes] = []

    def counted(line: bytes) -> MemoryPoint | None:
        seen.append(line)
        return point_of(line)

    monkeypatch.setattr("worker.read.mem_history.point_of", counted)
    wrote(tmp_path, (0, 9.0), (1, 8.0))
    assert memory_history(tmp_path).n == 2
    wrote(tmp_path, (2, 7.0))
    with (tmp_path / LOG).open("a") as file:
        file.write("[1790000003.0, 6.")  # its writer is inside it

    assert [point.free_gb for point in memory_history(tmp_path).points] == [9, 8, 7]
    with (tmp_path / LOG).open("a") as file:
        file.write('0, "training"]\n')

    assert [point.free_gb for point in memory_history(tmp_path).points] == [9, 8, 7, 6]
    assert len(seen) == 4


@pytest.mark.requirement("UI-07")
def test_another_file_of_that_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Shorter, of another inode, or gone."""
    wrote(tmp_path, (0, 9.0), (1, 8.0))
    assert memory_history(tmp_path).n == 2

    os.truncate(tmp_path / LOG, 0)
    wrote(tmp_path, (2, 7.0))
    assert [point.free_gb for point in memory_history(tmp_path).points] == [7]

    (tmp_path / "other").mkdir()
    wrote(tmp_path / "other", (0, 5.0), (1, 4.0))
    (tmp_path / "other" / LOG).rename(tmp_path / LOG)
    assert [point.free_gb for point in memory_history(tmp_path).points] == [5, 4]

    (tmp_path / LOG).unlink()
    assert memory_history(tmp_path) == (0, ())


@pytest.mark.requirement("UI-07")
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, 60.0]), st.floats(0, 100)), min_size=1),
    st.integers(1, 9),
)
def test_however_long_a_log_is_its_ends_and_extremes_are_kept(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, float]], times: int
) -> None:
    """Of each stretch its first and last reading, of all the lowest and the highest."""
    folder = tmp_path_factory.mktemp("log")
    at, readings = 0.0, []
    for apart, free_gb in steps * times:
        at += apart
        readings.append((at, free_gb))
    wrote(folder, *readings)
    written = [(point.at, point.free_gb) for point in memory_points(folder)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mem_history, "MOST", 8)
        history = memory_history(folder)

    kept = [(point.at, point.free_gb) for point in history.points]
    assert history.n == len(written)
    assert [pair for pair in written if pair in set(kept)] == kept
    assert (kept[0], kept[-1]) == (written[0], written[-1])
    values = [free_gb for _, free_gb in written]
    assert {min(values), max(values)} <= {free_gb for _, free_gb in kept}
    holes = sum(
        after - before > mem_history.APART_S for (before, _), (after, _) in pairwise(written)
    )
    assert len(history.stretches) == holes + 1
    if holes == 0:
        assert len(kept) <= 8 * 2 + 4
