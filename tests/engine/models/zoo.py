"""Tiny models with random weights of many architectures, built by Transformers from a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 96

_COMMON: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_HEADS = {"head_dim": 8}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
}
_LINEAR = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_GPT = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_STATES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 8,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}

ZOO: Mapping[str, Mapping[str, Any]] = {
    # dense
    "llama": _COMMON,
    "qwen2": _COMMON,
    "qwen3": {**_COMMON, **_HEADS, "tie_word_embeddings": True},
    "mistral": {**_COMMON, **_HEADS, "sliding_window": 8},
    "gemma": {**_COMMON, **_HEADS},
    "gemma2": {**_COMMON, **_HEADS, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {**_COMMON, **_HEADS, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "phi3": {**_COMMON, "eos_token_id": [2, 3]},
    "olmo2": _COMMON,
    "granite": _COMMON,
    "cohere": _COMMON,
    "starcoder2": {**_COMMON, "sliding_window": 8},
    "smollm3": _COMMON,
    "glm4": {**_COMMON, **_HEADS},
    "stablelm": _COMMON,
    # of the first days: learned positions, ALiBi, a parallel block
    "gpt2": _GPT,
    "gpt_neox": {key: value for key, value in _COMMON.items() if key != "num_key_value_heads"},
    "opt": {**_COMMON, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {**_STATES, "n_layer": 2, "n_head": 4},
    "mpt": {
        "vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "eos_token_id": 2,
    },
    "falcon": {**_COMMON, "alibi": True, "new_decoder_architecture": False},
    # mixtures of experts
    "mixtral": {**_COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**_COMMON, **_HEADS, **_EXPERTS, "output_router_logits": True},
    "olmoe": {**_COMMON, "num_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {
        **_COMMON, **_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
    },
    "glm4_moe": {**_COMMON, **_HEADS, **_ROUTED},
    "dots1": {**_COMMON, **_HEADS, **_ROUTED},
    "deepseek_v3": {**_COMMON, **_ROUTED, **_LATENT, "n_group": 2},
    "minimax_m2": {**_COMMON, **_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": {**_COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
    # hybrid and recurrent
    "qwen3_5_text": {**_COMMON, **_HEADS, **_LINEAR},
    "qwen3_next": {
        **_COMMON, **_HEADS, **_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 16,
    },
    "lfm2": {**_COMMON, "full_attn_idxs": [1], "conv_L_cache": 3},
    "falcon_h1": {**_COMMON, **_HEADS, **_MAMBA2, "mamba_d_ssm": 64},
    "bamba": {**_COMMON, **_MAMBA2, "attn_layer_indices": [1]},
    "jamba": {
        **_COMMON, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
        "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    },
    "nemotron_h": {
        **_COMMON, **_HEADS, "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8,
        "n_groups": 2, "hybrid_override_pattern": "M*-M", "num_hidden_layers": 4,
    },
    "recurrent_gemma": {
        **_COMMON, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8,
        "num_key_value_heads": 1,
    },
    "mamba": _STATES,
    "mamba2": {
        **_STATES, "num_heads": 8, "head_dim": 8, "n_groups": 2, "expand": 2, "chunk_size": 8,
    },
    "falcon_mamba": _STATES,
    "rwkv": {**_STATES, "context_length": 128, "attention_hidden_size": 32},
    "minimax": {**_COMMON, **_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "xlstm": {**_STATES, "embedding_dim": 32, "num_heads": 4, "num_blocks": 2},
}  # fmt: skip


def build(name: str, **changes: Any) -> Any:
    """The model, its weights wide enough that logits differ from one another."""
    config = AutoConfig.for_model(name, **{**ZOO[name], **changes})
    torch.manual_seed(0)
    made: Any = AutoModelForCausalLM
    model = made.from_config(config).float()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for buffer_name, buffer in model.named_buffers():
            if "bias" in buffer_name and buffer.dtype.is_floating_point:
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.5)
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
    return model.eval()


def saved(name: str, folder: Path, tokenizer: Any, **changes: Any) -> Path:
    """A model folder as a hub has it."""
    build(name, **changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
