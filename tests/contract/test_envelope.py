"""The memory envelope: arithmetic that agrees with models whose sizes are published."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.contract.envelope import Envelope, ModelShape
from engine.contract.kinds.rl_run import GRPOConfig
from engine.contract.registry import get_kind, validate
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.envelope import stage2_envelope, with_decode_batch

QWEN_7B: dict[str, Any] = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
"""Qwen2.5-7B-Instruct: 7.62 billion parameters on its card."""


def shape() -> ModelShape:
    found = ModelShape.of_config(QWEN_7B)
    assert found is not None
    return found


def model_folder(folder: Path, config: dict[str, Any], tensors: dict[str, list[int]]) -> Path:
    """A folder with config.json and one safetensors file that holds nothing but its header."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps(
        {"__metadata__": {"format": "pt"}}
        | {name: {"dtype": "BF16", "shape": sizes} for name, sizes in tensors.items()}
    ).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def test_parameters_of_a_config_are_those_on_the_models_card() -> None:
    """7.62 billion; biases and norms are the difference."""
    assert shape().parameters == pytest.approx(7.62e9, rel=0.002)


def test_lora_parameters_are_those_that_peft_prints() -> None:
    """40,370,176 trainable parameters at rank 16 on every linear layer of Qwen2.5-7B."""
    assert shape().lora_parameters(16) == 40_370_176


def test_the_kv_cache_of_a_token_is_that_of_its_grouped_heads() -> None:
    """2 x 28 layers x 4 heads x 128: 57,344 bytes in bf16."""
    assert shape().kv_bytes(1, width=2) == 57_344


def test_parameters_are_counted_in_the_files_where_there_are_some(tmp_path: Path) -> None:
    """A pruned model has fewer than its config would give."""
    tensors = {"embed": [10, 4], "layer.weight": [4, 4], "layer.bias": [4]}

    found = ModelShape.of_folder(model_folder(tmp_path / "m", QWEN_7B, tensors))

    assert found is not None
    assert found.parameters == 60


def test_the_language_part_of_a_vision_model_counts() -> None:
    """Its sizes stand one level deeper."""
    found = ModelShape.of_config({"model_type": "qwen3_vl", "text_config": QWEN_7B})

    assert found == shape()


@pytest.mark.parametrize("config", [{}, {"hidden_size": 8}, QWEN_7B | {"num_attention_heads": 0}])
def test_a_config_that_says_too_little_says_nothing(config: dict[str, Any]) -> None:
    """No guess about a model of another kind."""
    assert ModelShape.of_config(config) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"'])
def test_a_folder_that_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    """The envelope is then unknown, and nobody is kept from trying."""
    (tmp_path / "config.json").write_text(text)

    assert ModelShape.of_folder(tmp_path) is None
    assert ModelShape.of_folder(tmp_path / "nowhere") is None


def test_sampling_and_training_take_turns() -> None:
    """The larger of the two counts, on top of what always stays."""
    found = Envelope(
        weights=8, optimizer=2, reference=1, kv_cache=5, gradients=1, logits=1, activations=2,
        runtime=1,
    )  # fmt: skip

    assert found.total == 12 + 5


@pytest.mark.requirement("RL-18")
def test_the_proof_before_step_one_counts_where_it_is_the_most() -> None:
    """A model read twice, while its optimizer has no moments yet."""
    shared: dict[str, float] = {"weights": 8, "reference": 1, "kv_cache": 5, "runtime": 1}

    assert Envelope(**shared, optimizer=1, proof=8).total == 10 + 8
    assert Envelope(**shared, optimizer=16, proof=8).total == 10 + 16 + 5


@pytest.mark.requirement("RL-18")
def test_only_a_model_that_is_read_again_whole_doubles(tmp_path: Path) -> None:
    """An adapter is put on the base that is there."""
    folder = model_folder(tmp_path / "m", QWEN_7B, {"all": [7_600_000_000]})
    kind = get_kind("rl_run")

    full, lora = (
        kind.envelope(kind.config.model_validate({"base": str(folder), "tuning": tuning}))
        for tuning in ("full", "lora")
    )

    assert full is not None
    assert lora is not None
    assert full.proof == pytest.approx(full.weights)
    assert lora.proof < 0.1 * lora.weights


@pytest.mark.requirement("LN-04")
def test_the_embedded_run_needs_what_it_was_measured_to_use() -> None:
    """The demo's five seeds peaked at 0.50 GB each (docs/experiments.md)."""
    config = validate("rl_run", {"base": "embedded:qwen3-tiny", "tuning": "full"})

    found = get_kind("rl_run").envelope(config)

    assert found is not None
    assert found.total == pytest.approx(0.50, abs=0.05)


@pytest.mark.requirement("LN-04")
@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"tuning": "full"}, "optimizer"),
        ({"rollout_batch": 512}, "kv_cache"),
        ({"tasks_per_step": 16}, "activations"),
        ({"group_k": 8}, "activations"),
        ({"max_new_tokens": 4096}, "kv_cache"),
        ({"optim": {"logit_chunk_mib": 4096}}, "logits"),
        ({"kl_coef": 0.1}, "reference"),
    ],
)
def test_every_knob_that_costs_memory_is_seen(
    tmp_path: Path, change: dict[str, Any], part: str
) -> None:
    """More of it, a larger part."""
    folder = model_folder(tmp_path / "m", QWEN_7B, {"all": [7_600_000_000]})
    kind = get_kind("rl_run")
    settings = {"base": str(folder), "kl_coef": 0.0}

    plain, changed = (
        kind.envelope(kind.config.model_validate(settings | more)) for more in ({}, change)
    )

    assert plain is not None
    assert changed is not None
    assert getattr(changed, part) > getattr(plain, part)
    assert changed.total >= plain.total


SMOLLM2: dict[str, Any] = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
"""SmolLM2-135M."""


def rl_envelope_of(folder: Path, prompts: list[str], **settings: Any) -> Envelope:
    data = folder.parent / "rows.jsonl"
    data.write_text("".join(json.dumps({"prompt": p, "answer": "1"}) + "\n" for p in prompts))
    kind = get_kind("rl_run")
    raw = {"base": str(folder), "tuning": "full", "data": {"source": str(data)}, **settings}
    found = kind.envelope(kind.config.model_validate(raw))
    assert found is not None
    return found


@pytest.mark.requirement("LN-04")
def test_rollouts_and_prompts_are_counted_that_there_are(tmp_path: Path) -> None:
    """Four rollouts of forty-byte prompts, whatever a batch could hold: 2.2 GB were measured."""
    folder = model_folder(tmp_path / "m", SMOLLM2, {"all": [134_515_008]})
    prompts = [f"What is {i:03d} plus {i:03d}, and half of it?" for i in range(200)]
    step = {"tasks_per_step": 1, "group_k": 4}

    found = rl_envelope_of(folder, prompts, **step)

    assert 2 < found.total < 5
    assert found == rl_envelope_of(folder, prompts, **step, micro_batch=4)
    assert found.total < rl_envelope_of(folder, prompts, micro_batch=32).total
    assert found.activations < rl_envelope_of(folder, ["x" * 6000] * 200, **step).activations


def test_a_packed_batch_is_no_longer_than_all_of_a_step(tmp_path: Path) -> None:
    """Four short rollouts do not fill a pack of 65,536 tokens."""
    folder = model_folder(tmp_path / "m", SMOLLM2, {"all": [134_515_008]})
    optim = {"batching": "packed", "pack_tokens": 65_536}

    found = rl_envelope_of(folder, ["Why?"] * 100, tasks_per_step=1, optim=optim)

    assert found.total < 5


def test_a_gate_decodes_no_more_than_its_rows(tmp_path: Path) -> None:
    """Forty held-out rows are forty sequences, not `rollout_batch`."""
    folder = model_folder(tmp_path / "m", SMOLLM2, {"all": [134_515_008]})

    few, many = (
        rl_envelope_of(folder, [f"{n:04}?" for n in range(rows)], tasks_per_step=1)
        for rows in (200, 5000)
    )

    assert few.kv_cache == pytest.approx(many.kv_cache * 40 / 256)


@pytest.mark.parametrize(
    ("settings", "each", "written"),
    [
        ({"tuning": "full", "save_every": 1}, 20.4, 241),
        ({"tuning": "full", "save_every": 10, "keep_checkpoints": 1}, 20.4, 49),
        ({"tuning": "lora"}, 20.4 * 9_000_000 / 1.7e9, 241),
    ],
)
def test_the_disk_of_a_run_is_forecast(
    tmp_path: Path, settings: dict[str, Any], each: float, written: int
) -> None:
    """Weights and AdamW's two moments in fp32: 1.7 billion are 20.4 GB, each step anew."""
    folder = model_folder(tmp_path / "m", SMOLLM2, {"all": [1_700_000_000]})
    kind = get_kind("rl_run")
    raw = {"base": str(folder), "max_steps": 240, **settings}

    found = kind.checkpoints(kind.config.model_validate(raw))

    assert found is not None
    assert found.each == pytest.approx(each, rel=0.6 if settings["tuning"] == "lora" else 0.01)
    assert found.written == written
    assert found.most == pytest.approx(found.each * (settings.get("keep_checkpoints", 3) + 3))


@pytest.mark.parametrize(
    ("tuning", "lr"), [(None, 2e-5), ("lora", 2e-5), ("dora", 2e-5), ("full", 1e-6)]
)
def test_each_tuning_has_a_learning_rate_that_learns(tuning: str | None, lr: float) -> None:
    """It stands in the resolved config, and draws no caution of our own; a written one stays."""
    raw: dict[str, Any] = {"base": "Qwen/Qwen3-0.6B"} | ({"tuning": tuning} if tuning else {})
    kind = get_kind("rl_run")

    resolved = kind.config.model_validate(raw).model_dump()

    assert resolved["lr"] == lr
    assert "lr" not in {one.field for one in kind.cautions(kind.config.model_validate(raw))}
    assert kind.config.model_validate(raw | {"lr": 1e-6}).model_dump()["lr"] == 1e-6
    assert GRPOConfig(base="m").lr == 1e-6


def test_gradient_checkpointing_is_seen(tmp_path: Path) -> None:
    """It is what activations cost most."""
    folder = model_folder(tmp_path / "m", QWEN_7B, {"all": [7_600_000_000]})
    kind = get_kind("rl_run")

    whole, recomputed = (
        kind.envelope(
            kind.config.model_validate(
                {"base": str(folder), "optim": {"gradient_checkpointing": on}}
            )
        )
        for on in (False, True)
    )

    assert whole is not None
    assert recomputed is not None
    assert recomputed.activations < whole.activations / 10


def test_a_model_that_is_not_here_yet_has_no_envelope() -> None:
    """A hub id: what it needs is known after its first run."""
    kind = get_kind("rl_run")

    assert kind.envelope(kind.config.model_validate({"base": "Qwen/Qwen3-0.6B"})) is None


STAGE2: dict[str, Any] = {
    "custom": {
        "trainer_variant": "stage2_ab_training",
        "extra": {"rollout_matching": {"rollout_backend": "hf"}},
    },
    "stage2_ab": {
        "schedule": {"b_ratio": 0.5},
        "channel_b": {"semantic_desc_gate": {"enabled": False}},
    },
    "training": {"max_steps": 10, "learning_rate": 2e-5},
    "data": {"train_jsonl": "embedded:shapes"},
    "global_max_length": 12_000,
}


@pytest.mark.requirement("LN-04")
@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"model": {"tuning": "full"}}, "optimizer"),
        ({"model": {"dtype": "float32"}}, "weights"),
        ({"training": {"packing": True}}, "logits"),
        ({"stage2_ab": {"n_softctx_iter": 4}}, "activations"),
        (
            {"custom": {"extra": {"rollout_matching": {"max_new_tokens": 30_000}}}},
            "kv_cache",
        ),
        (
            {
                "data": {"val_jsonl": "embedded:shapes"},
                "training": {"per_device_eval_batch_size": 128},
            },
            "kv_cache",
        ),
    ],
)
def test_a_stage_2_run_sees_its_knobs_too(
    tmp_path: Path, change: dict[str, Any], part: str
) -> None:
    """Tuning, precision, packing, passes, and the length of a rollout."""
    config = {"model_type": "qwen3_vl", "dtype": "bfloat16", "text_config": QWEN_7B}
    folder = model_folder(tmp_path / "m", config, {"all": [8_000_000_000]})
    kind = get_kind("stage2_ab")
    plain = _merged(STAGE2, {"model": {"path": str(folder)}})

    before, after = (
        kind.envelope(kind.config.model_validate(_merged(plain, more))) for more in ({}, change)
    )

    assert before is not None
    assert after is not None
    assert before.weights == pytest.approx(16.0)
    assert getattr(after, part) > getattr(before, part)


def test_a_warm_up_of_an_adapters_run_is_counted_as_the_training_of_a_whole_model(
    tmp_path: Path,
) -> None:
    """Gradients and moments of all weights, before there is an adapter."""
    config = {"model_type": "qwen3_vl", "dtype": "bfloat16", "text_config": QWEN_7B}
    folder = model_folder(tmp_path / "m", config, {"all": [8_000_000_000]})
    val = {"data": {"val_jsonl": "embedded:shapes"}}
    plain = _merged(STAGE2, {"model": {"path": str(folder), "tuning": "lora"}} | val)

    before, after = (
        stage2_envelope(Stage2Config.model_validate(_merged(plain, more)))
        for more in ({}, {"warmup": {"target_f1": 0.3}})
    )

    assert before is not None
    assert after is not None
    assert after.proof >= 3 * after.weights > before.proof
    assert after.total > before.total


def test_a_decode_call_holds_as_many_answers_as_have_room_where_learning_has_its_own(
    tmp_path: Path,
) -> None:
    """Unless somebody says how many; never fewer than two, and longer answers are fewer."""
    config = {"model_type": "qwen3_vl", "dtype": "bfloat16", "text_config": QWEN_7B}
    folder = model_folder(tmp_path / "m", config, {"all": [8_000_000_000]})

    def resolved(**rollouts: Any) -> Stage2Config:
        hf = {"rollout_backend": "hf"} | rollouts
        more = {"model": {"path": str(folder)}, "custom": {"extra": {"rollout_matching": hf}}}
        return with_decode_batch(Stage2Config.model_validate(_merged(STAGE2, more)))

    found = resolved(max_new_tokens=16_000)
    size = found.custom.extra.rollout_matching.answers_a_call
    envelope = stage2_envelope(found)

    assert envelope is not None
    room = (envelope.gradients + envelope.logits + envelope.activations) / 2
    assert envelope.kv_cache <= room < envelope.kv_cache * (size + 1) / size
    longer = resolved(max_new_tokens=1_000_000)
    assert longer.custom.extra.rollout_matching.answers_a_call == 2
    told = resolved(max_new_tokens=16_000, decode_batch_size=3)
    assert told.custom.extra.rollout_matching.answers_a_call == 3


@pytest.mark.requirement("LN-04")
@pytest.mark.parametrize("name", ["activation_checkpointing", "gradient_checkpointing"])
def test_activations_that_are_computed_again_need_no_memory_by_either_name(
    tmp_path: Path, name: str
) -> None:
    """Transformers has renamed it; the newer name decides where both are given."""
    config = {"model_type": "qwen3_vl", "dtype": "bfloat16", "text_config": QWEN_7B}
    folder = model_folder(tmp_path / "m", config, {"all": [8_000_000_000]})
    kind = get_kind("stage2_ab")
    plain = _merged(STAGE2, {"model": {"path": str(folder)}})
    both = {"activation_checkpointing": False, "gradient_checkpointing": True}

    kept, again, refused = (
        kind.envelope(kind.config.model_validate(_merged(plain, {"training": more})))
        for more in ({}, {name: True}, both)
    )

    assert kept is not None
    assert again is not None
    assert again.activations < kept.activations / 2
    assert refused == kept


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`base` with the leaves of `more`."""
    return base | {
        key: _merged(base.get(key, {}), value) if isinstance(value, dict) else value
        for key, value in more.items()
    }
