"""The token microscope: a rollout file as a table and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.contract.sources.ground_truth import GTObject
from engine.stage2.inspect import inspect_rollout
from engine.stage2.target.payload import render
from tests.engine.stage2.families import byte_level

CAT = {"desc": "black cat", "bbox_2d": [0, 0, 100, 100]}
DOG = {"desc": "dog", "bbox_2d": [200, 200, 300, 300]}


@pytest.fixture
def rollout_file(tmp_path: Path) -> Path:
    pieces = byte_level()
    pieces._backend.save(str(tmp_path / "tokenizer.json"))
    said = [GTObject("cat", (0, 0, 100, 90)), GTObject("bus", (700, 0, 800, 9))]
    text = render(said).text[:-1] + ', "object_3": {"desc": "x"}, "object_4": {"des'
    record = {
        "tokenizer": str(tmp_path),
        "prompt_token_ids": [1, 2],
        "response_token_ids": list(pieces.encode(text)),
        "objects": [CAT, DOG],
    }
    path = tmp_path / "rollout.json"
    path.write_text(json.dumps(record))
    return path


def changed(path: Path, **change: Any) -> None:
    record = json.loads(path.read_text()) | change
    path.write_text(json.dumps({k: v for k, v in record.items() if v != "remove"}))


def test_json_names_every_tokens_role_weight_match_and_drop(
    rollout_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the page draws."""
    assert inspect_rollout.main([str(rollout_file), "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["invalid"], report["truncated"]) == (False, True)
    assert [entry["drop"] for entry in report["entries"]] == [None, None, "missing_geom"]
    assert report["entries"][0]["match"] == {"object": 0, "iou": 0.9, "desc_accepted": False}
    assert report["entries"][1]["match"] is None
    assert [one["matched"] for one in report["objects"]] == [True, False]
    record = json.loads(rollout_file.read_text())
    assert [row["id"] for row in report["rollout"]] == record["response_token_ids"]
    sources = [row["source"] for row in report["rollout"]]
    assert [s for i, s in enumerate(sources) if sources[i - 1] != s and s != "prefix"] == [
        *("matched", "FP", "dropped", "cut")
    ]
    targets = [row["target_bin"] for row in report["b2"] if row["target_bin"] is not None]
    assert targets == CAT["bbox_2d"]
    assert {row["ce_weight"] for row in report["b3"]} == {0.0, 1.0}
    assert report["metrics"]["stage2_ab/channel_b/strict_drop/reason/missing_geom"] == 1


def test_the_table_is_for_reading(rollout_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdict first, then entries, then each sequence."""
    assert inspect_rollout.main([str(rollout_file)]) == 0

    text = capsys.readouterr().out
    assert text.startswith("valid rollout, truncated: 3 entries, 1 dropped, 1 matched to 2 objects")
    assert "object_1: 'cat' [0, 0, 100, 90] = object 0 (IoU 0.90)" in text
    assert "object_2: 'bus' [700, 0, 800, 9] false positive" in text
    assert "object_3: dropped, missing_geom" in text
    assert '"<|coord_90|>"' in text
    assert "-> 100" in text


def test_an_invalid_rollout_is_shown_as_cut_off(
    rollout_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no entry, no B2, and a whole B3."""
    changed(rollout_file, response_token_ids=list(byte_level().encode("a cat")))

    assert inspect_rollout.main([str(rollout_file), "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["invalid"], report["b2"]) == (True, None)
    assert {row["source"] for row in report["rollout"]} == {"cut"}
    assert len(report["b3"]) > 20
    assert inspect_rollout.main([str(rollout_file)]) == 0
    assert capsys.readouterr().out.startswith("invalid rollout: 0 entries")


def test_a_config_sets_weights_and_rules(
    rollout_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same config as the run's."""
    config = {
        "custom": {"trainer_variant": "stage2_ab_training"},
        "stage2_ab": {
            "schedule": {"b_ratio": 1.0},
            "desc_ce_weight": 0.5,
            "channel_b": {
                "desc_ce_weight_matched": 0.25,
                "drop_invalid_struct_ce_multiplier": 2,
                "semantic_desc_gate": {"enabled": False},
            },
        },
    }
    changed(rollout_file, config=config)

    assert inspect_rollout.main([str(rollout_file), "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert {row["ce_weight"] for row in report["b3"]} == {0.0, 0.25, 0.5, 2.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": "remove"}, "names no tokenizer"),
        ({"tokenizer": 5}, "tokenizer is not a text"),
        ({"tokenizer": "/does/not/exist"}, "does not exist; name a folder"),
        ({"response_token_ids": "remove"}, "has no response_token_ids"),
        ({"response_token_ids": ["a"]}, "not a list of whole numbers"),
        ({"prompt_token_ids": 5}, "not a list of whole numbers"),
        ({"objects": "remove"}, "objects is not a list"),
        ({"objects": [{"desc": "x"}]}, "must hold bbox_2d"),
        ({"config": {"custom": {"trainer_variant": "rollout_matching_sft"}}}, "only that variant"),
        ({"config": 5}, "config"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_2(
    rollout_file: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    """File, what is wrong, what to do."""
    changed(rollout_file, **change)

    assert inspect_rollout.main([str(rollout_file)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{rollout_file}: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_what_is_no_json_object_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Also a file that does not exist, and a tokenizer that is none."""
    path = tmp_path / "x.json"
    path.write_text(text)
    (tmp_path / "tokenizer.json").write_text("{}")

    assert inspect_rollout.main([str(path)]) == 2
    assert inspect_rollout.main([str(tmp_path / "absent.json")]) == 2
    path.write_text('{"response_token_ids": []}')
    assert inspect_rollout.main([str(path), "--tokenizer", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 3


def test_it_runs_as_a_module_without_torch(rollout_file: Path) -> None:
    """Quick enough for a terminal: neither torch nor transformers is loaded."""
    code = (
        "import sys\nfrom engine.stage2.inspect import inspect_rollout\n"
        f"assert inspect_rollout.main([{str(rollout_file)!r}]) == 0\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
