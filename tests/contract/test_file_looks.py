"""A file is looked at once for as long as it stays as it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.sources import file_looks
from engine.contract.sources.file_looks import once_a_file

Look = Callable[..., str]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file that nobody has changed for a while."""
    path = tmp_path / "rows.jsonl"
    write(path, "one")
    return path


def write(path: Path, text: str, ago_s: float = 60.0) -> None:
    path.write_text(text)
    before = path.stat().st_mtime - ago_s
    os.utime(path, (before, before))


@pytest.fixture
def looks() -> list[tuple[str, str]]:
    """Each look that was taken: at which content, with what."""
    return []


@pytest.fixture
def look(looks: list[tuple[str, str]]) -> Look:
    @once_a_file
    def look(path: Path, wanted: str = "") -> str:
        looks.append((path.read_text(), wanted))
        if wanted == "nothing":
            raise LookupError(wanted)
        return f"{path.read_text()} {wanted}"

    return look


def test_a_file_that_stays_as_it_is_is_looked_at_once(
    corpus: Path, look: Look, looks: list[tuple[str, str]]
) -> None:
    """For each thing that is looked for."""
    assert [look(corpus, wanted) for wanted in "abab"] == ["one a", "one b"] * 2
    assert looks == [("one", "a"), ("one", "b")]


@pytest.mark.parametrize("text", ["two", "longer"])
def test_another_content_is_looked_at(corpus: Path, look: Look, text: str) -> None:
    """Of another length, or changed at another time; also when another file took the name."""
    assert look(corpus) == "one "
    write(corpus, text, ago_s=30)
    assert look(corpus) == f"{text} "
    other = corpus.with_name("other")
    write(other, "new", ago_s=30)
    os.utime(other, ns=(corpus.stat().st_mtime_ns,) * 2)
    other.replace(corpus)
    assert look(corpus) == "new "


def test_a_file_changed_a_moment_ago_is_looked_at_each_time(corpus: Path, look: Look) -> None:
    """Within one tick of its clock two contents of one length look the same from outside."""
    for text in ("two", "six"):
        corpus.write_text(text)
        os.utime(corpus)
        assert look(corpus) == f"{text} "


def test_what_it_raises_is_not_kept(corpus: Path, look: Look, looks: list[tuple[str, str]]) -> None:
    """What was wrong may be another file, which can be there now."""
    for _ in range(2):
        with pytest.raises(LookupError, match="nothing"):
            look(corpus, "nothing")
    with pytest.raises(FileNotFoundError):
        look(corpus.with_name("missing"))

    assert len(looks) == 2


def test_those_who_ask_together_wait_for_one_look(corpus: Path) -> None:
    """Each change of a form begins a check, and the first may still go on."""
    begun, go_on = threading.Event(), threading.Event()
    looks: list[str] = []

    @once_a_file
    def slow(path: Path) -> str:
        looks.append(path.read_text())
        begun.set()
        assert go_on.wait(30)
        return looks[-1]

    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(slow(corpus))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)

    assert (said, looks) == (["one"] * 4, ["one"])


def test_only_the_newest_looks_are_kept(
    corpus: Path, look: Look, looks: list[tuple[str, str]]
) -> None:
    """However many corpora a long-lived server meets."""
    for number in range(file_looks.MOST + 1):
        look(corpus, str(number))
    look(corpus, "1")
    assert len(looks) == file_looks.MOST + 1
    look(corpus, "0")
    assert len(looks) == file_looks.MOST + 2
