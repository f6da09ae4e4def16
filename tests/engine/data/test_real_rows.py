"""GSM8K and MATH as verl publishes them, where a folder of them is at hand: NIGHTLANE_TEST_ROWS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.config import SourceConfig
from engine.data.heldout import load_rows
from engine.data.leaks import settled
from engine.data.rows import load

ROWS = os.environ.get("NIGHTLANE_TEST_ROWS")

pytestmark = pytest.mark.skipif(ROWS is None, reason="NIGHTLANE_TEST_ROWS names no folder")


def _file(name: str) -> str:
    assert ROWS is not None
    return str(Path(ROWS) / f"{name}.parquet")


@pytest.mark.parametrize(
    ("name", "rows"), [("gsm8k/train", 7473), ("gsm8k/test", 1319), ("math/test", 5000)]
)
def test_published_rows_are_read_as_verl_has_them(name: str, rows: int) -> None:
    bench = load(SourceConfig(source=_file(name), bad_rows="drop", dedupe="off"))

    assert len(bench.questions) >= 0.999 * rows
    assert "read as verl rows" in bench.said[0]
    assert all(row.messages and row.answer for row in bench.questions)


def test_a_mixture_of_them_says_which_rows_of_a_bench_it_trains_on(tmp_path: Path) -> None:
    """MATH's test split has a few of its training problems, nearly word for word."""
    math: dict[str, Any] = {"where": "level >= 3", "bad_rows": "drop", "verifier": "minerva_math"}
    config = RLRunConfig.model_validate(
        {
            "data": {
                "mix": [
                    {"name": "gsm8k", "source": _file("gsm8k/train"), "verifier": "gsm8k_any"},
                    {"name": "math", "source": _file("math/train"), **math},
                ]
            },
            "heldout": [
                {"name": "gsm8k_test", "source": _file("gsm8k/test"), "verifier": "gsm8k_any"},
                {"name": "math_test", "source": _file("math/test"), **math},
            ],
        }
    )
    corpus, benches, _ = load_rows(config)

    split = settled(corpus.questions, benches, tmp_path / "split.json", config)

    assert {row.source for row in split.train} == {"gsm8k", "math"}
    assert split.overlap["gsm8k_test"]["leaks"] == 0
    assert 0 < split.overlap["math_test"]["leaks"] < 100
