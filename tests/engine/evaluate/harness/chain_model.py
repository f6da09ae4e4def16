"""A model that writes one fixed text: each character has one that follows it."""

from __future__ import annotations

import itertools

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.models.policy import Policy, eos_ids

END = "<|end|>"


def chain_policy(chain: str, *, window: int = 4096) -> Policy:
    """Behind `chain[0]` it writes `chain[1]`, and so on; behind the last the end of the text.

    ": 11" writes ones for ever. Its layers add nothing, so that the last token alone decides.
    """
    tokenizer = _bytes()
    size = len(tokenizer)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size + size % 2,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=window,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name or "lm_head" in name:
                weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size, config.hidden_size))
        ids = [*tokenizer.encode(chain), 0]
        for token, following in reversed([*itertools.pairwise(ids)]):
            model.lm_head.weight[:, token] = 0.0  # the first that follows counts
            model.lm_head.weight[following, token] = 1.0
    model.eval()  # type: ignore[no-untyped-call]
    return Policy(model, tokenizer, eos_ids(model, tokenizer))


def _bytes() -> PreTrainedTokenizerFast:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator([], trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=trained,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
    )
