"""A quantized folder is refused when it is enqueued, with the quantization's name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.quantized import quantization
from engine.contract.registry import validate

SAID: list[tuple[dict[str, Any], str]] = [
    ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq, 4 bit"),
    ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq, 4 bit"),
    (
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        "bitsandbytes, 4 bit",
    ),
    ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
    ({"quantization_config": {"load_in_8bit": True}}, "load_in_8bit"),
    ({"compression_config": {"format": "pack-quantized"}}, "pack-quantized"),
    ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "fp8"),
    ({"quantization": {"group_size": 64, "bits": 4}}, "4 bit"),
]


def folder_of(
    folder: Path, config: dict[str, Any], dtype: str = "F32", name: str = "w.weight"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({name: {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, 0]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


@pytest.mark.parametrize(("config", "said"), SAID)
def test_both_kinds_refuse_what_config_json_calls_quantized(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    """Field, folder, the method, and what to name in its place."""
    folder = folder_of(tmp_path / "model", config)

    custom = {"trainer_variant": "stage2_ab_training"}
    ab = {"schedule": {"b_ratio": 0.5}, "channel_b": {"semantic_desc_gate": {"enabled": False}}}
    for kind, raw, field in (
        ("rl_run", {"base": str(folder)}, "base"),
        (
            "stage2_ab",
            {"model": {"path": str(folder)}, "stage2_ab": ab, "custom": custom},
            "model.path",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            validate(kind, raw)
        [line] = [p.line() for p in caught.value.problems if p.field == field]
        assert f"{field}: is quantized (" in line
        assert said in line
        assert str(folder) in line
        assert "16 or 32 bit" in line


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}, "NVFP4"),
        ("quantize_config.json", {"bits": 4, "group_size": 128}, "4 bit"),
        ("quant_config.json", {"w_bit": 4, "version": "GEMM"}, "4 bit"),
    ],
)
def test_files_that_tools_leave_beside_it_say_it_too(
    tmp_path: Path, file: str, content: dict[str, Any], said: str
) -> None:
    """config.json of an older GPTQ, AWQ or ModelOpt folder says nothing."""
    folder = folder_of(tmp_path, {})
    (folder / file).write_text(json.dumps(content))

    assert said in (quantization(folder) or "")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("F8_E4M3", "a.weight"), ("I32", "a.qweight"), ("U8", "a.weight_packed"), ("I8", "a.weight")],
)
def test_weights_of_eight_bit_are_seen_though_nothing_says_so(
    tmp_path: Path, dtype: str, name: str
) -> None:
    """By the type in the header."""
    assert quantization(folder_of(tmp_path, {}, dtype, name)) == f"{name} is of type {dtype}"


@pytest.mark.parametrize(
    ("dtype", "name"), [("BF16", "a.weight"), ("F64", "a.weight"), ("U8", "h.0.attn.bias")]
)
def test_a_plain_folder_is_not_called_quantized(tmp_path: Path, dtype: str, name: str) -> None:
    """Old GPT-2 folders keep a mask of bytes; null says that there is none."""
    folder = folder_of(tmp_path, {"quantization_config": None}, dtype, name)

    assert quantization(folder) is None
