"""`cockpit inspect-rollout` as a user runs it: the real command line, the real engine process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.contract.sources.ground_truth import GTObject
from engine.stage2.target.payload import render
from tests.engine.stage2.families import byte_level


@pytest.fixture
def rollout_file(tmp_path: Path) -> Path:
    """A rollout that found its one object, under another name, and added an entry of noise."""
    pieces = byte_level()
    pieces._backend.save(str(tmp_path / "tokenizer.json"))
    said = render([GTObject("猫", (0, 0, 100, 90))]).text[:-1] + ', "\\u001b[2J": {}}'
    path = tmp_path / "rollout.json"
    record = {
        "response_token_ids": list(pieces.encode(said)),
        "objects": [{"desc": "black cat", "bbox_2d": [0, 0, 100, 100]}],
    }
    path.write_text(json.dumps(record))
    return path


def cockpit(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def test_a_rollout_is_shown_as_text(rollout_file: Path) -> None:
    """Verdict, entries and the role of each token, on standard output."""
    shown = cockpit("inspect-rollout", rollout_file, "--tokenizer", rollout_file.parent)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("valid rollout: 2 entries, 1 dropped, 1 matched to 1 objects\n")
    assert "object_1: '猫' [0, 0, 100, 90] = object 0 (IoU 0.90)" in shown.stdout
    assert "matched  coord" in shown.stdout


def test_what_the_model_wrote_cannot_move_the_terminals_cursor(rollout_file: Path) -> None:
    """Control codes in a key are spelled out."""
    shown = cockpit("inspect-rollout", rollout_file, "--tokenizer", rollout_file.parent)

    assert "\\x1b[2J: dropped, key_invalid" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_a_rollout_is_shown_as_json(rollout_file: Path) -> None:
    """The same for a program; every token of the file is there, in any locale."""
    shown = cockpit(
        *("inspect-rollout", rollout_file, "--json", "--tokenizer", rollout_file.parent),
        LC_ALL="C",
    )

    assert (shown.returncode, shown.stderr) == (0, "")
    report = json.loads(shown.stdout)
    record = json.loads(rollout_file.read_text())
    assert [row["id"] for row in report["rollout"]] == record["response_token_ids"]
    assert report["entries"][0]["desc"] == "猫"
    assert report["entries"][0]["match"]["object"] == 0


@pytest.mark.parametrize("text", ["", "[1]", "{}", "[" * 100_000, '{"response_token_ids": "1"}'])
def test_a_bad_file_is_one_line_and_exit_2(tmp_path: Path, text: str) -> None:
    """The file, what is wrong with it, what to do; nothing on standard output."""
    path = tmp_path / "rollout.json"
    path.write_text(text)

    shown = cockpit("inspect-rollout", path)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"cockpit: {path}: ")
    assert shown.stderr.count("\n") == 1


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """Also one whose name looks like an option."""
    shown = cockpit("inspect-rollout", "--", "--absent.json")

    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == (
        "cockpit: --absent.json: cannot be read: No such file or directory; "
        "name a file with one JSON object\n"
    )


def test_a_missing_tokenizer_says_how_to_name_one(rollout_file: Path) -> None:
    """Neither in the file nor on the command line; and a folder that holds none."""
    unnamed = cockpit("inspect-rollout", rollout_file)
    empty = cockpit("inspect-rollout", rollout_file, "--tokenizer", rollout_file.parent / "absent")

    assert (unnamed.returncode, empty.returncode) == (2, 2)
    assert unnamed.stderr == (
        f"cockpit: {rollout_file}: names no tokenizer; add it, or give --tokenizer DIR\n"
    )
    assert "absent/tokenizer.json does not exist; name a folder" in empty.stderr
    assert empty.stderr.count("\n") == 1


@pytest.mark.parametrize("library", ["tokenizers", "numpy", "scipy"])
def test_without_the_engine_extra_it_says_what_to_install(
    rollout_file: Path, tmp_path: Path, library: str
) -> None:
    """A cockpit-only install has no tokenizer library; that is one line, not a traceback."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import sys\nsys.modules[{library!r}] = None\n")

    shown = cockpit(
        *("inspect-rollout", rollout_file, "--tokenizer", rollout_file.parent),
        PYTHONPATH=str(site),
    )

    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"cockpit: {library}")
    assert "pip install 'nightlane[engine]'" in shown.stderr
    assert shown.stderr.count("\n") == 1
