"""Tokenizers of four families and the chat templates that come with such models, built in place.

Each holds its template's tokens as special ones, and `<think>` with its partner; what a text is
split into is learnt from a few lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers as train
from transformers import PreTrainedTokenizerFast

MARKUP = ["<think>", "</think>", "<answer>", "</answer>"]

TEMPLATES: dict[str, tuple[Sequence[str], str]] = {
    "chatml": (
        ["<|im_start|>", "<|im_end|>"],
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    ),
    "llama3": (
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
        "'<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ),
    "gemma": (
        ["<start_of_turn>", "<end_of_turn>"],
        "{{ bos_token }}{% if messages[0].role == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    ),
    "mistral": (
        ["[INST]", "[/INST]"],
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ ' ' + m.content + eos_token }}{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}"
        "{% endif %}{% endfor %}",
    ),
    "deepseek": (
        ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"],
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}"
        "{% else %}{{ '<｜User｜>' + m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}",
    ),
    "harmony": (
        ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>"],
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
        "{{ '<|return|>' if loop.last else '<|end|>' }}{% else %}"
        "{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
    ),
}
ENDS = {
    "chatml": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "gemma": "<end_of_turn>",
    "mistral": "</s>",
    "deepseek": "<｜end▁of▁sentence｜>",
    "harmony": "<|return|>",
}
FAMILIES = ("byte_level", "metaspace", "prepending", "unigram", "wordpiece")
_LINES = [
    f"What is {a} + {b}? The answer is {a + b}. hello world, some <text> | in [brackets] / user"
    for a in range(9)
    for b in range(9)
] + ["naïve café 你好 🙂 assistant model system\n\tif x: return 'y'"]


def tokenizer(family: str, template: str | None = None) -> Any:
    """A tokenizer that puts `<s>` in front of a text, with or without a template."""
    tokens, source = TEMPLATES[template] if template else ([], None)
    backend = globals()[f"_{family}"]()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    found = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=[*tokens, *MARKUP],
        clean_up_tokenization_spaces=True,  # what old folders say
    )
    found.chat_template = source
    return found


_NAMED = ["<unk>", "<s>", "</s>"]
_ASCII = [chr(c) for c in range(33, 127)] + ["\n", "\t"]


def _byte_level() -> Tokenizer:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(
        _LINES,
        train.BpeTrainer(
            vocab_size=400, special_tokens=_NAMED, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return found


def _metaspace(*, prepending: bool = False) -> Tokenizer:
    found = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if prepending:  # as Llama 2 has it
        found.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    found.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    found.train_from_iterator(
        _LINES,
        train.BpeTrainer(
            vocab_size=500,
            special_tokens=[*_NAMED, *octets],
            initial_alphabet=_ASCII,
            show_progress=False,
        ),
    )
    return found


def _prepending() -> Tokenizer:
    return _metaspace(prepending=True)


def _unigram() -> Tokenizer:
    found = Tokenizer(models.Unigram())
    found.normalizer = normalizers.NFKC()
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    found.decoder = decoders.Metaspace()
    found.train_from_iterator(
        _LINES,
        train.UnigramTrainer(
            vocab_size=300,
            special_tokens=_NAMED,
            unk_token="<unk>",
            initial_alphabet=_ASCII,
            show_progress=False,
        ),
    )
    return found


def _wordpiece() -> Tokenizer:
    found = Tokenizer(models.WordPiece(unk_token="<unk>"))
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.decoder = decoders.WordPiece()
    found.train_from_iterator(
        _LINES,
        train.WordPieceTrainer(
            vocab_size=400, special_tokens=_NAMED, initial_alphabet=_ASCII, show_progress=False
        ),
    )
    return found
