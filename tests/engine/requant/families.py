"""Small models with random weights, of the families that formats know, as they are on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.engine.chat_model import save_chat_model

_FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
FAMILIES = [(name, tied) for name in _FAMILIES for tied in (True, False)]


def save_family(folder: Path, name: str, *, tied: bool, width: int = 64) -> Path:
    """A bfloat16 model of two layers with a byte-level BPE tokenizer."""
    save_chat_model(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    of_config, of_model = _FAMILIES[name]
    head = {"head_dim": 32} if name == "qwen3" else {}
    config = of_config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=160,
        initializer_range=0.1,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **head,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model = of_model(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    _as_smollm(folder)
    return folder


def _as_smollm(folder: Path) -> None:
    """SmolLM parts digits from everything else before its merges."""
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.save(str(path))


def save_gpt2(folder: Path) -> Path:
    """An architecture that GGUF files are not written of here."""
    save_chat_model(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, **ends)
    model: Any = GPT2LMHeadModel(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder
