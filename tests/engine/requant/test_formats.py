"""Each format, written of several families and read back from the disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from engine.contract.errors import NightlaneError, RLLoopError
from engine.requant import formats, gguf_file
from engine.requant.tensors import stored
from tests.engine.requant.families import FAMILIES, save_family, save_gpt2

IDS = torch.arange(2, 26)[None]


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        read: torch.Tensor = model(input_ids=IDS).logits.float()
    return read.log_softmax(-1)


def apart(one: Any, other: Any) -> float:
    """Nats, in the mean over what is expected."""
    first, second = logits(one), logits(other)
    return float((first.exp() * (second - first).abs()).sum(-1).mean())


def read(folder: Path, merged: Path) -> Any:
    return formats._model(folder, merged)


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@pytest.mark.parametrize(
    ("name", "nats"),
    [("int8", 0.03), ("fp8", 0.1), ("int4", 0.3), ("gguf_q8_0", 0.03), ("gguf_q4_0", 0.3)],
)
def test_what_is_read_back_says_nearly_what_the_16_bit_model_says(
    name: str, nats: float, family: str, tied: bool, tmp_path: Path
) -> None:
    """So names, orders of rows and scales are right: one wrong tensor is nats apart."""
    merged, target = save_family(tmp_path / "merged", family, tied=tied), tmp_path / "made"

    found = formats.write(name, merged, target, None)

    model = AutoModelForCausalLM.from_pretrained(merged, dtype="auto")
    gap = apart(model, read(target, merged))
    assert 0 < gap < nats
    assert found["left_share"] < 0.6
    assert formats.size_of(target) < formats.size_of(merged)


def test_a_folder_of_a_format_has_all_that_a_server_reads(tmp_path: Path) -> None:
    """The tokenizer, the chat template and both ends of the 16-bit model."""
    merged = save_family(tmp_path / "merged", "llama", tied=True)

    formats.write("int8", merged, tmp_path / "made", None)

    first, second = (AutoTokenizer.from_pretrained(at) for at in (merged, tmp_path / "made"))
    assert second.get_vocab() == first.get_vocab()
    assert second.chat_template == first.chat_template
    ends = [GenerationConfig.from_pretrained(at) for at in (merged, tmp_path / "made")]
    assert ends[1].eos_token_id == ends[0].eos_token_id


@pytest.mark.parametrize("tied", [True, False])
def test_layers_that_stay_in_16_bit_are_listed(tied: bool, tmp_path: Path) -> None:
    """torchao keeps head and embeddings; a GGUF file has them in eight bits."""
    merged = save_family(tmp_path / "merged", "llama", tied=tied)

    of_torchao = formats.write("int8", merged, tmp_path / "int8", None)
    of_gguf = formats.write("gguf_q4_0", merged, tmp_path / "gguf", None)

    ends = {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})
    assert set(of_torchao["left"]) == ends
    assert of_gguf["left"] == []
    types = gguf_file.stored(tmp_path / "gguf", stored(merged), layers=2)
    assert {types[name].dtype for name in ends} == {"Q8_0"}
    assert types["model.layers.0.mlp.up_proj.weight"].dtype == "Q4_0"


def test_a_group_is_chosen_that_the_widths_allow(tmp_path: Path) -> None:
    """Rows of 96 and 192 are no whole number of groups of 128 or 64; a group that is asked for and
    fits some layers leaves out the others by name.
    """
    merged = save_family(tmp_path / "merged", "llama", tied=True, width=96)

    chosen = formats.write("int4", merged, tmp_path / "chosen", None)
    asked = formats.write("int4", merged, tmp_path / "asked", 64)

    assert chosen["group_size"] == 32
    assert chosen["left"] == ["model.embed_tokens.weight"]
    assert {name.split(".")[-2] for name in asked["left"]} == {
        "embed_tokens", "gate_proj", "up_proj", "q_proj", "k_proj", "v_proj", "o_proj",
    }  # fmt: skip
    assert apart(read(tmp_path / "chosen", merged), read(tmp_path / "asked", merged)) < 0.5


def test_a_format_that_changes_nothing_is_refused_by_name(tmp_path: Path) -> None:
    """No row of 96 or 192 weights is a whole number of groups of 128."""
    merged = save_family(tmp_path / "merged", "llama", tied=True, width=96)

    with pytest.raises(RLLoopError, match=r"quantized nothing.*widths \[96, 192\].*'int4'"):
        formats.write("int4", merged, tmp_path / "made", 128)


def test_an_architecture_that_gguf_is_not_written_of_is_refused_by_name(tmp_path: Path) -> None:
    """Nothing is written."""
    merged = save_gpt2(tmp_path / "merged")

    with pytest.raises(RLLoopError, match="GPT2LMHeadModel is none of LlamaForCausalLM"):
        formats.write("gguf_q8_0", merged, tmp_path / "made", None)

    assert not (tmp_path / "made").exists()


QUANT_PYTHON = os.environ.get("NIGHTLANE_QUANT_PYTHON")


@pytest.mark.skipif(
    QUANT_PYTHON is None, reason="make setup-quant; NIGHTLANE_QUANT_PYTHON names it"
)
@pytest.mark.parametrize(
    ("name", "nats"), [("w8a8", 0.06), ("w8a16", 0.06), ("w4a16", 0.4), ("fp8_dynamic", 0.12)]
)
def test_what_llmcompressor_writes_is_read_back_too(name: str, nats: float, tmp_path: Path) -> None:
    """In its own environment; rows of 96 weights take groups of 32."""
    merged = save_family(tmp_path / "merged", "llama", tied=False, width=96)

    found = formats.write(name, merged, tmp_path / "made", None)

    model = AutoModelForCausalLM.from_pretrained(merged, dtype="auto")
    assert 0 < apart(model, read(tmp_path / "made", merged)) < nats
    assert set(found["left"]) == {"model.embed_tokens.weight", "lm_head.weight"}
    assert found.get("group_size") == (32 if name.endswith("a16") else None)


def test_what_llmcompressor_said_last_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a Python that does not have it."""
    merged = save_family(tmp_path / "merged", "llama", tied=True)
    monkeypatch.setenv("NIGHTLANE_QUANT_PYTHON", sys.executable)

    with pytest.raises(NightlaneError, match=r"did not write w8a8: ModuleNotFoundError.*llmcompr"):
        formats.write("w8a8", merged, tmp_path / "made", None)


@pytest.mark.parametrize(
    ("rule", "called"),
    [
        (pre_tokenizers.ByteLevel(add_prefix_space=False), "gpt-2"),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]), "smollm"),
        (pre_tokenizers.Split(" ", "isolated"), None),
    ],
    ids=["gpt-2", "smollm", "another"],
)
def test_the_rule_that_parts_texts_is_told_to_llama_cpp_or_refused(
    rule: Any, called: str | None, tmp_path: Path
) -> None:
    """Under another rule it would read other tokens than the model was trained with."""
    merged = save_family(tmp_path / "merged", "llama", tied=True)
    tokenizer = Tokenizer.from_file(str(merged / "tokenizer.json"))
    tokenizer.pre_tokenizer = rule
    tokenizer.save(str(merged / "tokenizer.json"))

    if called is None:
        with pytest.raises(RLLoopError, match=r"a rule that is unknown here: .*Split"):
            formats.require_forms(["gguf_q8_0"], merged)
        return
    formats.write("gguf_q8_0", merged, tmp_path / "made", None)
    fields = gguf.GGUFReader(tmp_path / "made" / gguf_file.FILE).fields
    assert fields["tokenizer.ggml.pre"].contents() == called
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert tokens == [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
