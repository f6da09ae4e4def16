"""A chat model as they are on the hub, small and with random weights: what a real folder holds.

Byte-level BPE in which id 0 is a word, a chat template, two end tokens, no pad token, and a
generation config full of settings that nobody asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.data import word_problems

START, END, STOP = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if thinking is defined and not thinking %}{{ '<think></think>' }}{% endif %}{% endif %}"
)
NOT_ASKED_FOR = {"temperature": 0.1, "top_k": 5, "repetition_penalty": 2.0, "do_sample": True}


def save_chat_model(
    folder: Path,
    *,
    template: bool = True,
    pad: str | None = None,
    window: int = 160,
    heads: int = 4,
) -> Path:
    """The folder, filled."""
    tokenizer: Any = _tokenizer(template=template, pad=pad)
    ends = tokenizer.convert_tokens_to_ids([END, STOP])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=window,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=ends[0],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = {**NOT_ASKED_FOR, "eos_token_id": ends}
    (folder / "generation_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


def _tokenizer(*, template: bool, pad: str | None) -> PreTrainedTokenizerFast:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    texts = [f"{prompt} {solution}" for _, prompt, _, solution in word_problems.rows()[:400]]
    trained.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=trained,
        eos_token=END,
        pad_token=pad,
        additional_special_tokens=[START, STOP],
        clean_up_tokenization_spaces=False,
    )
    if template:
        tokenizer.chat_template = TEMPLATE
    return tokenizer
