"""A file that a person names to be written: only a regular file is ever replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.contract.outputs import write_output

WRITE = "import sys; from pathlib import Path; from engine.contract.outputs import write_output\n"


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    """Also one of a link, and one whose file is not there yet."""
    (tmp_path / "there").mkdir()
    real, link, far = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "far"
    link.symlink_to(real)
    far.symlink_to(link)

    assert [write_output(path, ["one ", "two"]) for path in (link, far)] == [2, 2]

    assert (link.is_symlink(), far.is_symlink(), real.read_text()) == (True, True, "one two")


def test_a_pipe_and_a_device_are_written_to(tmp_path: Path) -> None:
    """As root too: no device is replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()

    write_output(pipe, ["through ", "it"])
    write_output(Path("/dev/null"), ["away"])

    reader.join(30)
    assert read == ["through it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("to_file", [True, False])
def test_standard_output_is_a_stream(tmp_path: Path, name: str, to_file: bool) -> None:
    """Piped, or sent to a file by the shell: what stood before stays before it."""
    code = f"{WRITE}print('before'); write_output(Path({name!r}), ['é\\n']); print('after')"
    target = tmp_path / "out"
    with target.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=stream if to_file else subprocess.PIPE,
            check=True,
            timeout=60,
        )

    told = target.read_bytes() if to_file else done.stdout
    assert told.decode() == "before\né\nafter\n"


def test_a_file_is_whole_or_as_it_was_and_keeps_its_mode(tmp_path: Path) -> None:
    """Nothing is left beside it either."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)

    def broken() -> Iterator[str]:
        yield "half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_output(path, broken())
    assert path.read_text() == "old"
    assert write_output(path, []) == 0
    assert path.read_text() == "old"
    write_output(path, ["new"])

    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """It stays what it is."""
    with pytest.raises(IsADirectoryError):
        write_output(tmp_path, ["x"])
    with pytest.raises(FileNotFoundError):
        write_output(tmp_path / "absent" / "file", ["x"])
