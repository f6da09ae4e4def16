"""The embedded base: a Qwen3-architecture model of 0.4 M parameters with a character tokenizer.

Built on the spot with random weights; it knows nothing until a warm-up teaches it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from engine.data.addition import ALPHABET
from engine.run.once import make_once

NAME = "embedded:qwen3-tiny"
END = "<|end|>"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, then the end token, which pads as well."""
    vocabulary = {character: index for index, character in enumerate(ALPHABET)}
    vocabulary[END] = len(vocabulary)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


def build_model(seed: int, *, head_dim: int = 16) -> Qwen3ForCausalLM:
    """Random fp32 weights that only depend on `seed` and `head_dim`.

    On a CPU vLLM serves heads of 32 numbers and more.
    """
    end = len(ALPHABET)
    config = Qwen3Config(
        vocab_size=end + 1,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        # Many heads, because a digit of the sum has many digits to look at; and a start wider than
        # the usual 0.02, at which a model this small stays on a plateau for hundreds of steps.
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=head_dim,
        initializer_range=0.06,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def folder_of(base: str, seed: int, cache_dir: Path) -> str:
    """What another program loads: the embedded base becomes a folder, made once for each seed."""
    if base != NAME:
        return base

    def make(folder: Path) -> None:
        build_model(seed).save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)

    return str(make_once(cache_dir / f"base-qwen3-tiny-{seed}", make))
