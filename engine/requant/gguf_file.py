"""GGUF files for llama.cpp: Q8_0 and Q4_0 by the gguf library, for the architectures named.

Names of tensors are the library's own; what is ours is the order of the rows of a llama's queries
and keys, and how a tokenizer is told. Q4_0 has embeddings and head in Q8_0, as a weight there
decides between whole tokens. Written as `convert_hf_to_gguf.py` of llama.cpp does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

from engine.contract.errors import RLLoopError
from engine.contract.quantized import GGUF_ARCHITECTURES
from engine.requant.tensors import Stored

FILE = "model.gguf"
_BLOCK = 32
"""Weights of a Q8_0 or Q4_0 block: rows of another width stay in 16 bit."""
_LLAMA3_SPLIT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = ("token_embd.weight", "output.weight")
_NOTE = "for llama.cpp; read back by Transformers, which makes its weights 16-bit again"


def write(name: str, source: Path, target: Path, _group_size: int | None) -> dict[str, Any]:
    """The 16-bit model of `source` as one file. Raises RLLoopError for what has no GGUF form."""
    import gguf  # noqa: PLC0415 - an extra

    config: Any = AutoConfig.from_pretrained(source)
    arch = _architecture(config)
    target.mkdir()
    writer = gguf.GGUFWriter(target / FILE, arch)
    _describe(writer, config, gguf.LlamaFileType["MOSTLY_" + name.removeprefix("gguf_").upper()])
    _add_tokenizer(writer, source, arch, config.vocab_size)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    wanted = gguf.GGMLQuantizationType[name.removeprefix("gguf_").upper()]
    for told, tensor in _tensors(source):
        to = names.get_name(told, try_suffixes=(".weight", ".bias"))
        if to is None:
            raise _no_form(name, f"its tensor {told} has no name there")
        rows = _in_order(to, tensor, config) if arch == "llama" else tensor
        form = _form(gguf, to, rows, wanted)
        writer.add_tensor(to, gguf.quants.quantize(rows, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"note": _NOTE}


def require_form(source: Path) -> None:
    """Raises RLLoopError for a 16-bit model that no GGUF file is written of here."""
    arch = _architecture(AutoConfig.from_pretrained(source))
    _pre_tokenizer(_told_of_tokenizer(source), arch)


def read(folder: Path, config: Any) -> Any:
    """As Transformers reads it, in 16 bit: weights that stay packed need a kernel from a hub.

    All is from the file but the width of a qwen3's head, which Transformers takes for 128.
    """
    head = {"head_dim": config.head_dim} if config.model_type == "qwen3" else {}
    return AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=FILE,
        dtype=config.dtype,
        quantization_config=GgufConfig(dequantize=True),
        **head,
    )


def stored(folder: Path, before: Mapping[str, Stored], layers: int) -> Mapping[str, Stored]:
    """The tensors of the file by the names that Transformers has for them."""
    import gguf  # noqa: PLC0415 - an extra

    reader = gguf.GGUFReader(folder / FILE)
    told = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == told)
    names = gguf.get_tensor_name_map(kind, layers)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    return {
        name: Stored(one.shape, types[str(names.get_name(name, (".weight", ".bias")))])
        for name, one in before.items()
    }


def _architecture(config: Any) -> str:
    named = (config.architectures or ["no architecture"])[0]
    if named not in GGUF_ARCHITECTURES:
        raise _no_form("gguf", f"{named} is none of {', '.join(GGUF_ARCHITECTURES)}")
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        raise _no_form("gguf", f"rope scaling {rope['rope_type']!r} is not written here")
    return GGUF_ARCHITECTURES[named]


def _no_form(name: str, problem: str) -> RLLoopError:
    remedy = "leave it out, or convert the merged model with llama.cpp"
    return RLLoopError.of("formats", name, f"cannot be written: {problem}", remedy)


def _describe(writer: Any, config: Any, file_type: Any) -> None:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name(config.model_type)
    writer.add_file_type(file_type)
    writer.add_quantization_version(2)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _tensors(source: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Each in fp32, from the disk one by one."""
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                yield name, file.get_tensor(name).to(torch.float32).numpy()


def _in_order(to: str, rows: np.ndarray[Any, Any], config: Any) -> np.ndarray[Any, Any]:
    """llama.cpp turns neighbouring values of a llama's head together, Transformers those half a
    head apart: `permute` of convert_hf_to_gguf.py.
    """
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    n = next((heads[part] for part in to.split(".") if part in heads), None)
    if n is None:
        return rows
    return (
        rows.reshape(n, 2, len(rows) // n // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    )


def _form(gguf: Any, to: str, rows: np.ndarray[Any, Any], wanted: Any) -> Any:
    types = gguf.GGMLQuantizationType
    if rows.ndim < 2:
        return types.F32
    if rows.shape[-1] % _BLOCK:
        return types.F16
    return types.Q8_0 if to in _ENDS else wanted


# --- the tokenizer ---


def _add_tokenizer(writer: Any, source: Path, arch: str, size: int) -> None:
    import gguf  # noqa: PLC0415 - an extra

    told = _told_of_tokenizer(source)
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    ids = {i: token for token, i in tokenizer.get_vocab().items()}
    added = {one["id"]: one["special"] for one in told.get("added_tokens", ())}
    of_added = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.USER_DEFINED}
    kinds = [
        (of_added[added[i]] if i in added else gguf.TokenType.NORMAL)
        if i in ids
        else gguf.TokenType.UNUSED
        for i in range(size)
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pre_tokenizer(told, arch))
    writer.add_token_list([ids.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types(kinds)
    writer.add_token_merges(
        [one if isinstance(one, str) else " ".join(one) for one in told["model"]["merges"]]
    )
    for name in ("bos", "eos", "pad", "unk"):
        if (i := getattr(tokenizer, f"{name}_token_id")) is not None:
            getattr(writer, f"add_{name}_token_id")(i)
    writer.add_add_bos_token(tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id)
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _told_of_tokenizer(source: Path) -> Mapping[str, Any]:
    """Its tokenizer.json. Raises RLLoopError for one that is no byte-level BPE."""
    path = source / "tokenizer.json"
    told: Any = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    if told.get("model", {}).get("type") != "BPE" or "ByteLevel" not in json.dumps(told["decoder"]):
        raise _no_form("gguf", "its tokenizer is no byte-level BPE")
    return cast("Mapping[str, Any]", told)


def _pre_tokenizer(told: Mapping[str, Any], arch: str) -> str:
    """How llama.cpp calls the rule that parts a text before its merges.

    Raises RLLoopError for a rule that it is not told of here.
    """
    if arch in {"qwen2", "qwen3"}:
        return "qwen2"
    rule = told.get("pre_tokenizer") or {}
    written = json.dumps(rule)
    if _LLAMA3_SPLIT in written:
        return "llama-bpe"
    if '"Digits"' in written:
        return "smollm"
    if rule.get("type") == "ByteLevel" and rule.get("use_regex", True):
        return "gpt-2"
    raise _no_form("gguf", f"its tokenizer parts texts by a rule that is unknown here: {written}")
