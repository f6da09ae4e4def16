"""A job that this machine has no room for: said when it is queued, at every door."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.conftest import Said
from worker.read import room

Cockpit = Callable[..., Said]
SIZES = {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 8192,
    "vocab_size": 49152,
}


def config(tmp_path: Path, parameters: float, **settings: Any) -> dict[str, Any]:
    """A run on a model folder whose files say that it has so many parameters."""
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SIZES))
    header = json.dumps({"all": {"dtype": "F32", "shape": [int(parameters)]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"prompt": f"{i}?", "answer": "1"}) + "\n" for i in range(400))
    )
    data = {"source": str(rows)}
    return {"base": str(folder), "tuning": "full", "data": data, "force_headroom": True} | settings


def said(client: TestClient, cockpit: Cockpit, tmp_path: Path, raw: dict[str, Any]) -> list[str]:
    """What each door says of it: REST, its sweeps, the command line, the form."""
    body = {"kind": "rl_run", "config": raw, "force": True}
    found = [client.post("/api/v1/jobs", json=body)]
    found.append(client.post("/api/v1/sweeps", json=body | {"sweep": {"lr": [1e-6, 2e-6]}}))
    texts = [" ".join(map(str, one.json()["cautions"])) for one in found]
    file = tmp_path / "run.json"
    file.write_text(json.dumps(raw))
    return [*texts, cockpit("enqueue", "rl_run", str(file), "--force").err]


@pytest.mark.requirement("LN-04")
def test_what_cannot_fit_into_the_machine_is_said_with_figures_and_the_setting_that_helps(
    client: TestClient, cockpit: Cockpit, tmp_path: Path
) -> None:
    """900 billion parameters: 18 TB, on whatever box this is."""
    for text in said(client, cockpit, tmp_path, config(tmp_path, 9e11, save_every=1000)):
        assert "needs about 180" in text
        assert "optimizer 7200.0" in text
        assert "this machine gives a run" in text
        assert "lower tuning" in text


@pytest.mark.requirement("LN-04")
def test_a_disk_that_the_checkpoints_fill_is_said(
    client: TestClient, cockpit: Cockpit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.7 billion, all of them trained: 20.4 GB a checkpoint, six at once, 60 GB free."""
    monkeypatch.setattr(room, "free_gb", lambda _: 60.0)
    for text in said(client, cockpit, tmp_path, config(tmp_path, 1.7e9, max_steps=240)):
        assert "a checkpoint is 20.4 GB, 6 are kept at once (122 GB), and 60 GB are free" in text


def test_terabytes_that_are_written_and_thrown_away_are_said(
    client: TestClient, cockpit: Cockpit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fit, and are 4.9 TB in a night."""
    monkeypatch.setattr(room, "free_gb", lambda _: 500.0)
    for text in said(client, cockpit, tmp_path, config(tmp_path, 1.7e9, max_steps=240)):
        assert "writes 4.9 TB: a checkpoint is 20.4 GB, and 241 are written" in text


def test_a_run_that_has_room_is_not_bothered(
    client: TestClient, cockpit: Cockpit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million parameters."""
    monkeypatch.setattr(room, "free_gb", lambda _: 500.0)
    for text in said(client, cockpit, tmp_path, config(tmp_path, 1e6)):
        assert "GB" not in text
