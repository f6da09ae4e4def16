"""Inside ms-swift: `make test-swift`. Without its environment there is little to collect.

NIGHTLANE_TEST_SWIFT names the Python of an environment with ms-swift and a vLLM for the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.stage2.embedded import shapes
from tests.engine.stage2.conftest import AB
from tests.engine.stage2.swift import qwen_ids

REAL = os.environ.get("NIGHTLANE_TEST_SWIFT")
collect_ignore = [] if REAL else ["test_sft.py", "test_rollout_server.py"]

ROOT = Path(__file__).resolve().parents[4]
PLUGIN = ROOT / "engine/stage2/swift/plugin.py"
ASK = [{"role": "user", "content": "<image>Locate every object and answer in JSON."}]
MATCHING = {"custom": {**AB["custom"], "trainer_variant": "rollout_matching_sft"}}

Child = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3-VL with the token ids that ms-swift's template has written into it."""
    return qwen_ids.save(tmp_path_factory.mktemp("qwen"), hidden=32)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """24 drawn pictures of 64 × 64 pixels with their objects in thousandths."""
    folder, style = tmp_path_factory.mktemp("scenes"), shapes.Style(most_objects=2)
    path = shapes.write(folder, "train", shapes.distinct(24, 7, style), style)
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return [row | {"images": [str(folder / row["images"][0])]} for row in rows]


@pytest.fixture(scope="session")
def swift_rows(scenes: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ms-swift's users write them: boxes in pixels, `<bbox>` in the answer, a channel."""
    rows = [
        {
            "messages": [*ASK, {"role": "assistant", "content": "<bbox>" * len(row["objects"])}],
            "images": row["images"],
            "objects": {
                "ref": [one["desc"] for one in row["objects"]],
                "bbox": [[round(k * 64 / 999) for k in one["bbox_2d"]] for one in row["objects"]],
            },
            "channel": "boxes",
        }
        for row in scenes
    ]
    return _written(tmp_path_factory.mktemp("rows") / "swift.jsonl", rows)


@pytest.fixture(scope="session")
def payload_rows(scenes: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the answer as it is to be written, and no turn of the assistant's."""
    rows = [
        {
            "messages": ASK,
            "images": row["images"],
            "assistant_payload": {f"object_{n}": one for n, one in enumerate(row["objects"], 1)},
        }
        for row in scenes
    ]
    return _written(tmp_path_factory.mktemp("rows") / "payload.jsonl", rows)


def _written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """No hub, and caches of its own."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return os.environ | {
        "USE_HF": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": cache,
        "MODELSCOPE_CACHE": cache,
        "PYTHONPATH": str(ROOT),
    }


def arguments(model: Path, rows: Path, output: Path, **more: Any) -> list[str]:
    """Of `swift sft`: four updates of two passes of two rows."""
    given = {
        "model": model,
        "model_type": "qwen3_vl",
        "check_model": "false",
        "dataset": rows,
        "tuner_type": "full",
        "torch_dtype": "float32",
        "attn_impl": "sdpa",
        "max_steps": 4,
        "save_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "output_dir": output,
        "add_version": "false",
        "report_to": "none",
        "seed": 11,
    }
    return [word for name, value in (given | more).items() for word in (f"--{name}", str(value))]


@pytest.fixture
def sft(model: Path, tmp_path: Path, surroundings: dict[str, str]) -> Child:
    """The command itself, with the plugin. Its log is in `stdout`."""

    def run(config: Mapping[str, Any], rows: Path, **more: Any) -> subprocess.CompletedProcess[str]:
        (tmp_path / "stage2.yaml").write_text(yaml.safe_dump(dict(config)))
        return subprocess.run(
            [
                str(Path(REAL or "").with_name("swift")),
                "sft",
                *arguments(model, rows, tmp_path / "out", external_plugins=PLUGIN, **more),
            ],
            env=surroundings | {"NIGHTLANE_STAGE2": str(tmp_path / "stage2.yaml")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )

    return run
