"""Whatever is read is bounded before it is read: in bytes, line length, depth and kind of file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.documents import (
    MAX_DEPTH,
    MAX_JSON_BYTES,
    MAX_LINE,
    MAX_ROWS_BYTES,
    UnreadableError,
    lines,
    parse_json,
    read_file,
    read_json,
    read_text,
)
from engine.contract.envelope import ModelShape
from engine.contract.errors import ConfigError
from engine.contract.registry import cautions, kinds, validate
from engine.contract.rl.prompting import has_chat_template
from engine.contract.run_dir import InputFile, RunDir, RunDirError

pytestmark = pytest.mark.requirement("AP-06")
READERS: tuple[Callable[[Path], Any], ...] = (
    read_file,
    read_text,
    read_json,
    InputFile.of,
    lambda path: list(lines(path)),
)
STAGE2 = yaml.safe_load((Path(__file__).parents[2] / "examples" / "stage2_ab.yaml").read_text())


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A file of each kind that has no end, or that somebody else has to write."""
    pipe, link, loose = tmp_path / "pipe", tmp_path / "link", tmp_path / "socket"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(loose))
        yield {
            "a pipe": pipe,
            "a link to one": link,
            "a socket": loose,
            "a device": Path("/dev/zero"),
            "a terminal": Path("/dev/tty"),
        }


@pytest.mark.parametrize("read", READERS)
def test_only_regular_files_are_read(odd: dict[str, Path], read: Callable[[Path], Any]) -> None:
    """At once: nobody waits for whoever writes into a pipe."""
    for path in odd.values():
        with pytest.raises(UnreadableError, match="and no regular file"):
            read(path)


@pytest.mark.parametrize("read", READERS)
def test_a_link_to_a_regular_file_is_one(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    """As a hub's cache has them; a folder is none, and a file that is missing is missing."""
    (tmp_path / "there").write_text('{"a": 1}\n')
    (tmp_path / "link").symlink_to(tmp_path / "there")

    assert read(tmp_path / "link")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing")


@pytest.mark.parametrize(("read", "most"), [*((one, MAX_JSON_BYTES) for one in READERS[:3]),
                                            (READERS[4], MAX_ROWS_BYTES)])  # fmt: skip
def test_a_file_that_is_too_large_is_refused_from_its_size(
    tmp_path: Path, read: Callable[[Path], Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a byte of it is read: here it has none."""
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, most + 1)
    monkeypatch.setattr("engine.contract.documents.io.TextIOWrapper", None)

    with pytest.raises(UnreadableError, match=r"has .* [MG]B; at most .* are read"):
        read(path)


def test_a_file_that_grows_while_it_is_read_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is asked of what came, too."""
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 100)
    monkeypatch.setattr("os.fstat", lambda _: os.stat_result((0o100644, *[0] * 9)))

    with pytest.raises(UnreadableError, match="has 11 bytes; at most 10 bytes are read"):
        read_file(path, 10)


def test_a_line_is_bounded_and_the_lines_before_it_are_read(tmp_path: Path) -> None:
    """The line is named; blank ones are counted and left out."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf1\r\n\n 3\n"' + b"x" * MAX_LINE)
    found = lines(path)

    assert [next(found), next(found)] == [(1, "1"), (3, " 3")]
    with pytest.raises(UnreadableError, match=r"line 4 has more than 16\.8 MB in it"):
        next(found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**90), 10**90) | st.floats(allow_nan=False,
                                                                           allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)  # fmt: skip


@given(value=json_values)
def test_json_is_read_as_the_library_reads_it(value: Any) -> None:
    """Within the limits nothing is different."""
    assert parse_json(json.dumps(value)) == value


@given(data=st.binary(max_size=60) | st.text('[]{}",:0123456789eE+-.truefalsn\\u ').map(str.encode))
def test_any_bytes_are_a_value_or_unreadable(data: bytes) -> None:
    """Never another error."""
    with contextlib.suppress(UnreadableError):
        parse_json(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 200_000, "is nested more than 100 deep"),
        ('{"a":' * 200_000, "is nested more than 100 deep"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "is nested more than 100 deep"),
        ("1e999", "1e999 is larger than any number that is reckoned with"),
        ("-1" + "0" * 400 + ".5", "is larger than any number"),
        ("9" * 5000, "a whole number has 5000 digits"),
        ('{"a": Infinity}', "Infinity stands in it"),
        ("", "Expecting value at character 1"),
        ("{\n\n", "at line 3, character 1"),
    ],
)
def test_json_beyond_the_limits_is_refused_in_words(text: str, words: str) -> None:
    """Whatever the stack is at that moment."""
    with pytest.raises(UnreadableError) as refused:
        parse_json(text)

    assert words in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_refusal_does_not_hold_the_text(tmp_path: Path) -> None:
    """The library's error has the whole document in it."""
    with pytest.raises(UnreadableError) as refused:
        parse_json("x" * 10_000)

    chain: list[BaseException | None] = [refused.value.__context__, refused.value.__cause__]
    assert chain == [None, None]


def pipe_at(path: Path) -> None:
    os.mkfifo(path)


def deep_at(path: Path) -> None:
    path.write_text("[" * 200_000)


def large_at(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 * 10**9)


def list_at(path: Path) -> None:
    path.write_text("[]")


MODEL_FILES = (
    "config.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "special_tokens_map.json",
    "model-00002.safetensors",
)


@pytest.mark.parametrize("name", [*MODEL_FILES, "adapter_config.json"])
@pytest.mark.parametrize("spoil", [pipe_at, deep_at, large_at, list_at])
def test_no_file_of_a_model_can_hold_a_check_up(
    tmp_path: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    """Of either kind: refused by its name at once, or of no consequence for who enqueues."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    if name.startswith("adapter"):
        (folder / "adapter_config.json").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    spoil(folder / name)
    before = time.monotonic()
    asked = [
        ("rl_run", {"base": str(folder), "tuning": "full"}, "base"),
        ("rl_run", {"base": "org/model", "adapter_init": str(folder)}, "adapter_init"),
        ("stage2_ab", STAGE2 | {"model": {"path": str(folder), "tuning": "full"}}, "model.path"),
    ]
    for kind, raw, field in asked:
        if name.startswith("adapter") != (field == "adapter_init"):
            continue
        told = ""
        try:
            validate(kind, raw)
        except ConfigError as error:
            told = "\n".join(one.line() for one in error.problems if one.field == field)
        wrong = spoil is pipe_at or name.endswith(".json")
        wrong |= spoil is large_at and name.endswith(".jinja")
        assert (name in told) == wrong, told
        config = kinds()[kind].config.model_validate(raw)
        kinds()[kind].inputs(config)
        kinds()[kind].envelope(config)
        cautions(kind, raw)
    ModelShape.of_folder(folder)
    has_chat_template(folder)
    assert time.monotonic() - before < 5


def test_sizes_that_no_machine_reckons_with_are_not_known(tmp_path: Path) -> None:
    """A hundred digits in a config.json are no reason to fall over."""
    sizes = {"num_hidden_layers": 10**90, "num_attention_heads": 2, "vocab_size": 9, "head_dim": 1}

    assert ModelShape.of_config(sizes | {"hidden_size": 10**90}) is None
    assert ModelShape.of_config(sizes | {"hidden_size": -4, "num_hidden_layers": 1}) is None


def test_a_job_file_is_bounded_too(tmp_path: Path) -> None:
    """What the engine is told comes from a disk that can be broken."""
    attempt = RunDir(tmp_path).attempt(1)
    attempt.root.mkdir(parents=True)
    large_at(attempt.job_file)
    with pytest.raises(RunDirError, match=r"job.json has 2 GB; at most 33\.6 MB are read"):
        attempt.read_job()

    pipe_at(attempt.abort)
    assert attempt.read_abort() is not None  # whatever cannot be read still means: stop


MEMORY = """
import gc, os, sys
from pathlib import Path
from engine.contract.errors import ConfigError
from engine.contract.registry import validate

gc.disable()  # what only the collector finds is held for as long as it does not run
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

kind, raw, words = {
    "rl_run": ("rl_run", {"base": "org/model", "data": {"source": sys.argv[2]}}, sys.argv[3]),
}[sys.argv[1]]
before = resident()
for _ in range(7):
    try:
        validate(kind, raw)
    except ConfigError as error:
        assert words in str(error), error
print(resident() - before)
"""


@pytest.mark.parametrize(
    ("size", "words"), [(84_000_000, "line 1 has more than"), (15_000_000, "is not JSON")]
)
def test_refused_data_leaves_nothing_behind_in_the_process(
    tmp_path: Path, size: int, words: str
) -> None:
    """One line of 84 MB, looked at seven times: read or refused, its memory comes back."""
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as stream:
        stream.write(b'{"prompt": "' + b"x" * size)
    os.utime(path, (1, 1))  # so that what is found would be kept
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, "rl_run", str(path), words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60


READ_ELSEWHERE = {
    "engine/contract/golds/rows.py": "the text of a row, which is bounded",
    "engine/contract/look.py": "our own child, bounded",
    "worker/schedule/looks.py": "sixty bytes of our own",
    "app/cli/enqueue.py": "a descriptor that a shell opened, bounded",
    "app/web/assets.py": "our own files",
    "app/web/report_file.py": "our own files",
    "app/web/detached.py": "a log of ours, from its end",
    "app/web/event_log.py": "fields of a line, whose length is bounded",
    "worker/lane/resident.py": "a log of ours, from its end",
    "worker/memory/own.py": "the kernel's",
    "worker/lane/cgroup.py": "the kernel's",
    "worker/lane/process_id.py": "the kernel's",
    "worker/lane/strays.py": "the kernel's",
    "worker/budget/energy.py": "the kernel's",
    "worker/attempt/provenance.py": "our own pins",
    "worker/db/backup.py": "a copy of the database",
    "worker/db/dialects.py": "the database's",
    "worker/read/board.py": "the database's",
    "worker/read/scores/leaderboard.py": "where a page ends, which is bounded, and the database's",
    "worker/read/machine.py": "a bounded line",
    "worker/read/samples/index.py": "a bounded line, whatever its numbers",
    "worker/memory/trace.py": "a bounded line",
    "worker/memory/guard.py": "our own child",
    "worker/memory/sentry.py": "our own parent",
    "worker/report/messenger.py": "our own parent",
    "worker/report/digest.py": "our own child",
    "worker/read/runs/run.py": "the database's",
    "app/cli/sign_in.py": "our own address, in a file of this user's alone",
    "app/web/peer.py": "the kernel's",
}
"""Files that read something without the one reader, and what it is."""


def test_nobody_reads_a_file_around_the_reader() -> None:
    """What a user, a model or a broken disk may have written is opened in one place."""
    root = Path(__file__).parents[2]
    around = re.compile(r"json\.loads?\(|\.read_(?:text|bytes)\(|\.open\(\"r|yaml\.load|open\(enc")
    rooms = ("engine/contract", "engine/data", "worker", "app")
    found = {
        str(path.relative_to(root))
        for room in rooms
        for path in (root / room).rglob("*.py")
        if around.search(path.read_text("utf-8"))
    }

    assert found - {"engine/contract/documents.py"} == set(READ_ELSEWHERE)


@pytest.mark.parametrize("text", ["[" * 200_000, "{", "1e999"])
def test_json_inside_a_setting_is_bounded_too(text: str) -> None:
    """Transformers takes a mapping as text there."""
    raw = STAGE2 | {"training": {"max_steps": 2, "lr_scheduler_kwargs": text}}

    with pytest.raises(ConfigError, match=r"training\.lr_scheduler_kwargs"):
        validate("stage2_ab", raw)
