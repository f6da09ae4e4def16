"""A model that is not here: said when it is enqueued, and given up at once where it cannot come."""

from __future__ import annotations

import copy
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.contract.errors import ConfigError, RLLoopError
from engine.contract.hub import unreachable
from engine.contract.registry import cautions, validate
from engine.models import policy, qwen3_vl

STAGE2 = yaml.safe_load((Path(__file__).parents[2] / "examples" / "stage2_ab.yaml").read_text())


def asked(kind: str, place: str) -> tuple[dict[str, Any], str]:
    """A config of each kind that names a model, and the setting."""
    if kind == "rl_run":
        return {"base": place}, "base"
    raw = copy.deepcopy(STAGE2)
    raw["model"] = {"path": place, "tuning": "full"}
    return raw, "model.path"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, with one model in it; downloads allowed, no proxy."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--here" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", ["rl_run", "stage2_ab"])
@pytest.mark.parametrize("place", ["models/my-model", "org/away"])
def test_a_model_that_is_not_here_is_said(kind: str, place: str) -> None:
    """A colleague's folder looks like a hub id."""
    raw, field = asked(kind, place)

    said = [one.line() for one in cautions(kind, raw) if one.field == field]

    assert [line.partition(" (got")[0] for line in said] == [
        f"{field}: is no folder here: taken as a hub id, and the run begins with its download"
    ]
    raw, field = asked(kind, "org/here")
    assert [one for one in cautions(kind, raw) if one.field == field] == []


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", ["rl_run", "stage2_ab"])
@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_where_downloads_are_off_it_is_refused(
    kind: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was fetched before is not."""
    monkeypatch.setenv(variable, "yes")
    raw, field = asked(kind, "models/my-model")

    with pytest.raises(ConfigError, match=f"{field}: is no folder here .* {variable} forbids"):
        validate(kind, raw)
    try:
        validate(kind, asked(kind, "org/here")[0])
    except ConfigError as error:
        refused = {one.field for one in error.problems}
    else:
        refused = set()
    assert field not in refused


@pytest.mark.usefixtures("cache")
def test_a_run_does_not_wait_for_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's library would try for most of a minute."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    before = time.monotonic()

    with pytest.raises(RLLoopError, match=r"127\.0\.0\.1 cannot be reached: Connection refused"):
        policy.build("models/my-model", 0)
    with pytest.raises(qwen3_vl.ModelError, match="cannot be reached"):
        qwen3_vl.load("models/my-model", dtype="auto", attn_implementation="sdpa")

    assert time.monotonic() - before < 20
    assert unreachable("org/here") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    assert unreachable("models/my-model") is None


@pytest.mark.parametrize("source", ["rows.jsonl", "embedded:word_problems"])
def test_rows_that_the_embedded_model_cannot_read_are_refused_by_their_setting(
    source: str, tmp_path: Path
) -> None:
    """Setting, value, and which base reads any text."""
    given = str(tmp_path / source) if source.endswith("jsonl") else source
    raw = {"base": "embedded:qwen3-tiny", "tuning": "full", "data": {"source": given}}

    with pytest.raises(ConfigError) as refused:
        validate("rl_run", raw)

    (problem,) = refused.value.problems
    assert (problem.field, given.startswith(str(problem.value)[:60])) == ("data.source", True)
    assert "set base to a model that reads any text" in problem.remedy
