"""Section `prompting`: what the model reads in front of its completion.

Also the torch-free look at a model folder: has its tokenizer a chat template, how long is its
window? Knows no tokenizer at work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.errors import ConfigProblem
from engine.contract.section import Section

PLACEHOLDER = "{prompt}"
_ARGUMENTS = """
self conversation messages tools documents chat_template add_generation_prompt
continue_final_message tokenize padding truncation max_length return_tensors return_dict
return_assistant_tokens_mask sanitize_control_tokens tokenizer_kwargs processor_kwargs kwargs
"""
TEMPLATE_ARGUMENTS = frozenset(_ARGUMENTS.split())
"""What `apply_chat_template` keeps for itself. A test compares it with the installed one."""


class PromptingConfig(Section):
    """From a question to a prompt."""

    skip_chat_template: bool = True
    """Base models read the question as it stands; `false` puts it through the chat template.

    Never guessed: base tokenizers carry templates that their model was not trained on.
    """
    system_prompt: str = ""
    """The system message; without a chat template the text before the question and a blank line."""
    question_format: str = PLACEHOLDER
    """How a question is written, `{prompt}` standing for it: `Q: {prompt}` and a new line `A:`."""
    assistant_prefix: str = ""
    """How every completion is made to begin: the prompt's last characters, judged as its first.

    A `<think>` that the prompt ends in belongs to the answer too.
    """
    template_variables: dict[str, bool | int | str] = Field({})
    """Passed to the chat template, e.g. `enable_thinking: false`."""
    too_long: Literal["refuse", "drop"] = "refuse"
    """Rows whose prompt leaves no room for `max_new_tokens`: end before training, or go on
    without them."""

    @field_validator("question_format")
    @classmethod
    def _question_format(cls, text: str) -> str:
        if text.count(PLACEHOLDER) != 1:
            raise ValueError("must hold {prompt} once; write e.g. 'Q: {prompt}'")
        return text

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.template_variables and self.skip_chat_template:
            raise ValueError(
                "template_variables need a chat template; set skip_chat_template to false"
            )
        taken = sorted(TEMPLATE_ARGUMENTS.intersection(self.template_variables))
        if taken:
            raise ValueError(
                f"template_variables.{taken[0]} is an argument of transformers, not a variable of "
                "the chat template; remove it"
            )
        return self


def template_problems(config: PromptingConfig, base: str) -> Sequence[ConfigProblem]:
    """A chat template asked of a base that is seen to have none.

    A hub id tells nothing before it is loaded; loading asks again.
    """
    if config.skip_chat_template or not _without_template(base):
        return []
    return [no_template(base)]


def template_cautions(config: PromptingConfig, base: str) -> Sequence[ConfigProblem]:
    """A folder with a chat template whose config says nothing about it."""
    said = "skip_chat_template" in config.model_fields_set
    if said or not Path(base).is_dir() or not has_chat_template(Path(base)):
        return []
    return [
        ConfigProblem(
            "prompting.skip_chat_template",
            None,
            f"is left out, so the chat template of {base} is not used",
            "set it to false for an instruct model, to true for a base model",
        )
    ]


def no_template(base: str) -> ConfigProblem:
    """The refusal, the same at enqueue and when the model is loaded."""
    return ConfigProblem(
        "prompting.skip_chat_template",
        False,
        f"asks for a chat template, which the tokenizer of {base} does not have",
        "set it to true and write what the model shall read with system_prompt, question_format "
        "and assistant_prefix; or name an instruct model",
    )


def _without_template(base: str) -> bool:
    if base.startswith("embedded:"):
        return True
    return Path(base).is_dir() and has_chat_template(Path(base)) is False


def has_chat_template(folder: Path) -> bool | None:
    """Whether a model folder's tokenizer carries one; None when its files cannot tell."""
    if any(folder.glob("chat_template.jinja")) or any(folder.glob("additional_chat_templates/*")):
        return True
    if (folder / "chat_template.json").is_file():
        return True
    config = _read_json(folder / "tokenizer_config.json")
    return None if config is None else bool(config.get("chat_template"))


def _read_json(path: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
