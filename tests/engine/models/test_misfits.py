"""Folders whose weights and config.json tell of two models, or whose weights are packed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.contract.errors import ConfigError, NightlaneError, RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.model_folder import packed_in
from engine.contract.registry import get_kind, validate
from engine.models import qwen3_vl, tiny
from engine.models.policy import build
from engine.rl.look import look
from engine.stage2.embedded import tiny_vl
from tests.engine.models import zoo

Weights = dict[str, Tensor]


def folder(
    name: str, path: Path, change: Callable[[Weights], Weights] = dict, **config: Any
) -> str:
    """A model folder whose weights or config.json somebody changed."""
    zoo.saved(name, path, tiny.build_tokenizer())
    edit(path, change, **config)
    return str(path)


def edit(path: Path, change: Callable[[Weights], Weights] = dict, **config: Any) -> None:
    weights = change(load_file(path / "model.safetensors"))
    whole = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
    save_file(whole, path / "model.safetensors", metadata={"format": "pt"})
    told = json.loads((path / "config.json").read_bytes()) | config
    (path / "config.json").write_text(json.dumps(told), "utf-8")


def one_more_layer(weights: Weights) -> Weights:
    added = {name.replace(".1.", ".2.", 1): t for name, t in weights.items() if ".1." in name}
    return {**weights, **added}


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("qwen3", "model.layers.2.input_layernorm.weight"),
        ("gpt2", "transformer.h.2.attn.c_attn.weight"),
        ("olmoe", "model.layers.2.input_layernorm.weight"),
        ("mamba", "backbone.layers.2.mixer.A_log"),
        ("bloom", "transformer.h.2.input_layernorm.bias"),
    ],
)
def test_layers_that_the_config_does_not_count_are_refused_by_name(
    tmp_path: Path, name: str, first: str
) -> None:
    """Transformers drops them; at enqueue names tell, without a weight read."""
    base = folder(name, tmp_path / "base", one_more_layer)

    with pytest.raises(RLLoopError, match=rf"does not count \d+ tensors: {first}"):
        build(base, seed=0)
    config = RLRunConfig(base=base)
    kind = get_kind("rl_run").look
    assert kind is not None
    assert kind.asks(config)
    [problem] = look(config).problems
    assert problem.field == "base"
    assert first in problem.problem


@pytest.mark.parametrize(
    ("added", "config"),
    [
        ("model.layers.0.self_attn.rotary_emb.inv_freq", {}),
        ("model.layers.0.self_attn.masked_bias", {}),
        ("v_head.summary.weight", {}),
        ("score.weight", {}),
        ("visual.blocks.0.attn.qkv.weight", {}),
        ("mtp.layers.0.mlp.up_proj.weight", {}),
        ("model.layers.2.self_attn.q_proj.weight", {"num_nextn_predict_layers": 1}),
        ("model.layers.2.eh_proj.weight", {"num_nextn_predict_layers": 1}),
    ],
)
def test_tensors_that_a_policy_has_no_use_for_are_no_misfit(
    tmp_path: Path, added: str, config: dict[str, Any]
) -> None:
    """Buffers of older versions, heads of another use, layers that predict further tokens."""
    base = folder("llama", tmp_path / "base", lambda w: {**w, added: torch.ones(4)}, **config)

    build(base, seed=0)

    assert not look(RLRunConfig(base=base)).problems


def test_a_head_that_is_saved_beside_the_embeddings_it_is_tied_to_is_no_misfit(
    tmp_path: Path,
) -> None:
    def with_head(weights: Weights) -> Weights:
        return {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}

    build(folder("qwen3", tmp_path / "base", with_head), seed=0)


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("llama", {"intermediate_size": 48}, r"mlp\.\w+_proj\.weight is .*, and .* asks for"),
        ("qwen3", {"num_key_value_heads": 1}, r"k_proj\.weight is 16 × 32, and .* asks for 8 × 32"),
        ("olmoe", {"num_experts": 2}, r"experts\.\w+ is 4 × .*, and .* asks for 2 × "),
        ("qwen2", {"vocab_size": 120}, r"(embed_tokens|lm_head)\.weight is 96 × 32, .* 120 × 32"),
    ],
)
def test_weights_of_another_shape_are_refused_with_both_shapes(
    tmp_path: Path, name: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(RLLoopError, match=said):
        build(folder(name, tmp_path / "base", **config), seed=0)


def test_a_bias_that_the_config_does_not_ask_for_is_refused(tmp_path: Path) -> None:
    """A layer of the model with one tensor more: answers would not be those of its makers."""
    added = {"model.layers.0.self_attn.q_proj.bias": torch.ones(32)}

    with pytest.raises(RLLoopError, match=r"does not count 1 tensors: .*q_proj\.bias"):
        build(folder("llama", tmp_path / "base", lambda w: {**w, **added}), seed=0)


PACKED: list[tuple[str, dict[str, Any]]] = [
    ("fp8", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}),
    ("gptq", {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}),
    ("awq", {"quantization_config": {"quant_method": "awq", "bits": 4}}),
    ("bitsandbytes", {"quantization_config": {"load_in_4bit": True}}),
    ("compressed-tensors", {"quantization_config": {"quant_method": "compressed-tensors"}}),
    ("mxfp4", {"quantization_config": {"quant_method": "mxfp4"}}),
    ("fp8", {"text_config": {"quantization_config": {"quant_method": "fp8"}}}),
]


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize(("method", "config"), PACKED)
@pytest.mark.parametrize("kind", ["rl_run", "stage2_ab"])
def test_packed_weights_are_refused_at_enqueue_with_their_method(
    tmp_path: Path, kind: str, method: str, config: dict[str, Any]
) -> None:
    base = folder("llama", tmp_path / "base", **config)
    raw = {"base": base} if kind == "rl_run" else {"model": {"path": base}, **STAGE2}

    with pytest.raises(ConfigError) as caught:
        validate(kind, raw)

    field = "base" if kind == "rl_run" else "model.path"
    [problem] = [one for one in caught.value.problems if one.field == field]
    assert f"quantized by {method}" in problem.problem
    assert "name the 16-bit model" in problem.remedy


STAGE2: dict[str, Any] = {
    "custom": {
        "trainer_variant": "stage2_ab_training",
        "extra": {"rollout_matching": {"rollout_backend": "hf"}},
    },
    "stage2_ab": {
        "schedule": {"b_ratio": 0.5},
        "channel_b": {"semantic_desc_gate": {"enabled": False}},
    },
    "data": {"train_jsonl": "embedded:shapes"},
    "training": {"max_steps": 1},
}


def as_type(weights: Weights, dtype: torch.dtype, name: str = "{}.weight") -> Weights:
    """The matrices of the layers in another type, under the names that a tool gives them."""
    return {
        name.format(key.removesuffix(".weight")) if ".mlp." in key else key: (
            tensor.to(dtype) if ".mlp." in key else tensor
        )
        for key, tensor in weights.items()
        if not key.endswith(".bias")
    }


UNSAID: list[tuple[str, Callable[[Weights], Weights], dict[str, Any], str]] = [
    ("fp8", lambda w: as_type(w, torch.float8_e4m3fn), {}, "is F8_E4M3"),
    ("fp8 e5m2", lambda w: as_type(w, torch.float8_e5m2), {}, "is F8_E5M2"),
    ("bitsandbytes 8 bit", lambda w: as_type(w, torch.int8), {}, "is I8"),
    ("bitsandbytes 4 bit", lambda w: as_type(w, torch.uint8), {}, "is U8"),
    ("gptq", lambda w: as_type(w, torch.int32, "{}.qweight"), {}, "qweight is I32"),
    ("llm-compressor", lambda w: as_type(w, torch.int32, "{}.weight_packed"), {}, "packed is I32"),
    ("mxfp4", lambda w: as_type(w, torch.uint8, "{}_blocks"), {}, "_blocks is U8"),
    ("gptq's own file", dict, {"quantize_config.json": {"bits": 4}}, "by GPTQ (quantize_config"),
    (
        "awq's own file",
        dict,
        {"quant_config.json": {"w_bit": 4, "q_group_size": 128}},
        "by AWQ (quant_config.json)",
    ),
    (
        "modelopt",
        lambda w: as_type(w, torch.uint8),
        {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}},
        "by NVFP4 (hf_quant_config.json)",
    ),
    ("a file that is no JSON", dict, {"hf_quant_config.json": None}, "by ModelOpt (hf_quant"),
]


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize(
    ("change", "files", "said"), [case[1:] for case in UNSAID], ids=[case[0] for case in UNSAID]
)
def test_packed_weights_that_config_json_says_nothing_of_are_refused_at_enqueue(
    tmp_path: Path, change: Callable[[Weights], Weights], files: dict[str, Any], said: str
) -> None:
    """By the tool's own file, or by the types of the tensors; at the start too."""
    base = folder("llama", tmp_path / "base", change)
    tiny_vl.save(tmp_path / "vl", 0, hidden=64, layers=2)
    edit(tmp_path / "vl", change)
    for place in (Path(base), tmp_path / "vl"):
        for name, content in files.items():
            (place / name).write_text("{" if content is None else json.dumps(content), "utf-8")

    for kind, raw in (
        ("rl_run", {"base": base}),
        ("stage2_ab", {"model": {"path": str(tmp_path / "vl")}, **STAGE2}),
    ):
        with pytest.raises(ConfigError) as caught:
            validate(kind, raw)
        [told] = [p for p in caught.value.problems if p.field in ("base", "model.path")]
        assert "has weights quantized" in told.problem
        assert said in told.problem
        assert "name the 16-bit model" in told.remedy
    with pytest.raises(RLLoopError, match="has weights quantized"):
        build(base, seed=0)
    with pytest.raises(qwen3_vl.ModelError, match="has weights quantized"):
        load_vl(tmp_path / "vl")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_plain_folder_is_not_taken_for_packed(tmp_path: Path, dtype: torch.dtype) -> None:
    """Masks and tables of whole numbers are no weights; ModelOpt may pack the cache alone."""
    more = {
        "model.layers.0.self_attn.bias": torch.ones(4, 4, dtype=torch.uint8),
        "model.embed_positions.position_ids": torch.zeros(1, 4, dtype=torch.int32),
    }
    base = folder(
        "llama",
        tmp_path / "base",
        lambda w: {name: t.to(dtype) for name, t in w.items()} | more,
        quantization_config=None,
    )
    told = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    (Path(base) / "hf_quant_config.json").write_text(json.dumps(told), "utf-8")

    assert packed_in(Path(base)) is None
    validate("rl_run", {"base": base})


@pytest.mark.requirement("RL-18")
def test_packed_weights_are_refused_at_the_start_too(tmp_path: Path) -> None:
    """Of a hub id nothing is known before."""
    told = {"quant_method": "fp8", "activation_scheme": "dynamic"}

    with pytest.raises(RLLoopError, match="quantized by fp8"):
        build(folder("qwen3", tmp_path / "base", quantization_config=told), seed=0)
    tiny_vl.save(tmp_path / "vl", 0, hidden=64, layers=2)
    edit(tmp_path / "vl", quantization_config=told)
    with pytest.raises(qwen3_vl.ModelError, match="quantized by fp8"):
        load_vl(tmp_path / "vl")


@pytest.mark.requirement("RL-18")
def test_stage_2_refuses_layers_and_shapes_that_its_config_does_not_count(tmp_path: Path) -> None:
    tiny_vl.save(tmp_path / "more", 0, hidden=64, layers=2)
    edit(tmp_path / "more", one_more_language_layer)
    with pytest.raises(NightlaneError, match=r"does not count \d+ tensors: .*layers\.2\."):
        load_vl(tmp_path / "more")

    tiny_vl.save(tmp_path / "other", 0, hidden=64, layers=2)
    told = json.loads((tmp_path / "other" / "config.json").read_bytes())["text_config"]
    edit(tmp_path / "other", text_config=told | {"intermediate_size": 16})
    with pytest.raises(NightlaneError, match=r"mlp\.\w+_proj\.weight is .* asks for"):
        load_vl(tmp_path / "other")


def one_more_language_layer(weights: Weights) -> Weights:
    added = {n.replace("layers.1.", "layers.2."): t for n, t in weights.items() if "layers.1." in n}
    return {**weights, **added}


def load_vl(path: Path) -> None:
    qwen3_vl.load(str(path), dtype="auto", attn_implementation="sdpa")
