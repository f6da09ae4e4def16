"""Make a random Qwen3 that reads bytes, for runs that show every number and no gain.

`python examples/tiny_bytes.py FOLDER`
"""

from __future__ import annotations

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

END = "<|end|>"


def main(folder: str) -> None:
    """Write model and tokenizer."""
    set_seed(0)
    byte_words = Tokenizer(models.BPE())
    byte_words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    byte_words.train_from_iterator(
        [], trainers.BpeTrainer(special_tokens=[END], initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_words, eos_token=END, pad_token=END)
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        eos_token_id=0,
        bos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
