"""The embedded vision base: a Qwen3-VL of 1.8 M parameters, its tokenizer and image processor.

Built on the spot with random weights and saved as a plain Hugging Face folder; it knows nothing
until a warm-up teaches it. The tokenizer is byte-level BPE with Qwen's special tokens and the
1,000 coord tokens, the architecture Transformers' own.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2 import coords
from engine.stage2.embedded.shapes import COLOURS
from engine.stage2.target.payload import render

NAME = "embedded:qwen3-vl-tiny"
END = "<|im_end|>"
PAD = "<|endoftext|>"
IMAGE = "<|image_pad|>"
SPECIALS = (PAD, "<|im_start|>", END, "<|vision_start|>", "<|vision_end|>", IMAGE, "<|video_pad|>")
PATCH = 8
MERGE = 2
_MERGES = 160
"""Merged tokens beside the 256 bytes: enough for the payload's own words."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, as Qwen's own template writes a turn with images."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE as Qwen's: NFC, no space in front, specials and coord tokens added."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        _corpus(),
        trainers.BpeTrainer(
            vocab_size=256 + _MERGES,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    backend.add_special_tokens(list(SPECIALS))
    backend.add_special_tokens([coords.token(k) for k in range(coords.BIN_COUNT)])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_image_processor() -> Qwen2VLImageProcessorPil:
    """Patches of 8 pixels, merged 2 x 2: a 64-pixel picture becomes 16 image tokens."""
    return Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=2,
        min_pixels=32 * 32,
        max_pixels=128 * 128,
    )


def build_model(
    seed: int, tokenizer: PreTrainedTokenizerFast, *, hidden: int = 128, layers: int = 4
) -> Qwen3VLForConditionalGeneration:
    """Random fp32 weights that only depend on the seed, the tokenizer and the sizes."""

    def id_of(token: str) -> int:
        found = tokenizer.convert_tokens_to_ids(token)
        assert isinstance(found, int)
        return found

    heads = 4
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": hidden,
            "intermediate_size": 3 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": 2,
            "head_dim": hidden // heads,
            "max_position_embeddings": 2048,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                # temporal, height and width share the rotated pairs of a head
                "mrope_section": _thirds(hidden // heads // 2),
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "pad_token_id": id_of(PAD),
            "eos_token_id": id_of(END),
            "bos_token_id": None,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 96,
            "intermediate_size": 192,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": hidden,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=id_of(IMAGE),
        video_token_id=id_of("<|video_pad|>"),
        vision_start_token_id=id_of("<|vision_start|>"),
        vision_end_token_id=id_of("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = id_of(END)
    model.generation_config.pad_token_id = id_of(PAD)
    return model


def save(folder: Path, seed: int, *, hidden: int = 128, layers: int = 4) -> Path:
    """Model, tokenizer and image processor as a folder that any Transformers program loads."""
    tokenizer = build_tokenizer()
    build_model(seed, tokenizer, hidden=hidden, layers=layers).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    build_image_processor().save_pretrained(folder)
    return folder


def _thirds(pairs: int) -> list[int]:
    third = pairs // 3
    return [pairs - 2 * third, third, third]


def _corpus() -> list[str]:
    """Payloads as the model will write them, and the words of a prompt."""
    boxes = [GTObject(f"{colour} box", (0, 0, 9, 9)) for colour in COLOURS]
    texts = [render(boxes[:n]).text for n in range(1, len(boxes) + 1)]
    words = ["user\n", "assistant\n", "Locate every object and answer in JSON."]
    # coord tokens are added as a whole, so their spelling needs no merges
    for k in (0, 9):
        texts = [text.replace(coords.token(k), "") for text in texts]
    return [*texts, *words] * 8
