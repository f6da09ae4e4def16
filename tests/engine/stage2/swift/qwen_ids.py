"""A tiny Qwen3-VL whose special tokens have the ids of the published ones.

ms-swift's template for Qwen3-VL has them written into it; the embedded tokenizer counts its own.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.contract.stage2 import coords
from engine.stage2.embedded import tiny_vl

FIRST_SPECIAL = 151643
SPECIALS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)


def save(folder: Path, *, hidden: int) -> Path:
    """Model, tokenizer and image processor as a folder."""
    tokenizer = build_tokenizer()
    tiny_vl.build_model(0, tokenizer, hidden=hidden, layers=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tiny_vl.build_image_processor().save_pretrained(folder)
    return folder


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The embedded one's words, then fillers, then Qwen's specials and the coord tokens."""
    small = json.loads(tiny_vl.build_tokenizer().backend_tokenizer.to_str())["model"]
    words = dict(small["vocab"])
    fillers = {f"<unused_{k}>": k for k in range(len(words), FIRST_SPECIAL)}
    backend = Tokenizer(
        models.BPE(vocab=words | fillers, merges=[tuple(pair) for pair in small["merges"]])
    )
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([*SPECIALS, *map(coords.token, range(coords.BIN_COUNT))])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        eos_token=tiny_vl.END,
        pad_token=tiny_vl.PAD,
        chat_template=tiny_vl.CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
