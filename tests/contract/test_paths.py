"""Paths in a config: where they are, or in one line why they cannot be anywhere."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from engine.contract.documents import parse_yaml
from engine.contract.errors import ConfigError
from engine.contract.paths import located
from engine.contract.registry import validate

STAGE2 = parse_yaml((Path(__file__).parents[2] / "examples" / "stage2_ab.yaml").read_text())
RL = {"base": "embedded:qwen3-tiny"}
FIELDS = [
    ("rl_run", RL, "base"),
    ("rl_run", RL, "adapter_init"),
    ("rl_run", RL, "data.source"),
    ("stage2_ab", STAGE2, "model.path"),
    ("stage2_ab", STAGE2, "data.train_jsonl"),
    ("stage2_ab", STAGE2, "data.val_jsonl"),
]


def changed(raw: dict[str, Any], dotted: str, value: str) -> dict[str, Any]:
    made = section = copy.deepcopy(raw)
    *path, last = dotted.split(".")
    for name in path:
        section = section.setdefault(name, {})
    section[last] = value
    return made


@pytest.mark.parametrize(("kind", "raw", "field"), FIELDS)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        (
            "~nobody-has-this-name/model",
            "begins with ~nobody-has-this-name, and this machine knows",
        ),
        ("a" * 5000, "cannot be looked at: File name too long"),
        ("LOOP", "is a link that leads back to itself"),
        ("nul\0byte", "null byte"),
    ],
)
def test_what_nothing_can_be_at_is_refused_by_its_field(
    tmp_path: Path, kind: str, raw: dict[str, Any], field: str, path: str, why: str
) -> None:
    """Never a traceback: the system's own refusals are the sender's mistakes."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)

    with pytest.raises(ConfigError) as caught:
        validate(kind, changed(raw, field, str(loop) if path == "LOOP" else path))

    (line,) = [one.line() for one in caught.value.problems if one.field == field]
    assert why in line


def test_a_path_is_absolute_wherever_it_was_sent_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain runs in another directory than the sender."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")

    assert located("link/file") == located("~/here/file") == tmp_path.resolve() / "here" / "file"
