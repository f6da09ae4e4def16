"""Section `prompting`: what the model reads in front of its completion.

Also the torch-free look at a model folder: has its tokenizer a chat template, how long is its
window? Knows no tokenizer at work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.documents import read_json_object, read_text
from engine.contract.errors import ConfigProblem
from engine.contract.section import Section
from engine.contract.templates.table import TEMPLATES, template_problem
from engine.contract.templates.template import PLACEHOLDER, Template

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
    template: str | None = None
    """Instead of question_format a form by name, `gsm8k_cot` or `minerva_math`: docs/prompts.md
    lists them with the benches that ask so."""
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

    @field_validator("template")
    @classmethod
    def _template(cls, name: str | None) -> str | None:
        problem = None if name is None else template_problem(name)
        if problem is not None:
            raise ValueError(problem)
        return name

    @property
    def form(self) -> str:
        """How a question is written: the template's form, else question_format."""
        return self.written.question

    @property
    def written(self) -> Template:
        """The template that question_format is, where none is named."""
        if self.template is None:
            return Template("question_format", self.question_format, "a form of one's own")
        return TEMPLATES[self.template]

    def under(self, template: str | None) -> PromptingConfig:
        """The same with another form by name, as a mixture's part or a bench asks; None: as it is.

        >>> PromptingConfig(question_format="Q: {prompt}").under("math").form
        'Problem:\\n{prompt}\\n\\nSolution:'
        """
        if template is None:
            return self
        return self.model_copy(update={"template": template, "question_format": PLACEHOLDER})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.template is not None and self.question_format != PLACEHOLDER:
            raise ValueError(
                f"template: {self.template} and question_format both say how a question is "
                "written; remove one of them"
            )
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
    """A template that seems wanted and is not used, or used and ends its turns otherwise."""
    if config.skip_chat_template:
        return _unused(config, base)
    folder = Path(base)
    ends, source = _end_tokens(folder), _template_source(folder)
    if not ends or not source or "eos_token" in source or any(end in source for end in ends):
        return []
    return [
        ConfigProblem(
            "prompting.skip_chat_template",
            False,
            f"uses a chat template of {base} that never writes the model's end "
            f"{' or '.join(map(repr, ends))}, as that of a base model that was not trained on it",
            "set it to true for a base model; as it is, the token with which the template closes a "
            "turn ends a completion too",
        )
    ]


def _unused(config: PromptingConfig, base: str) -> Sequence[ConfigProblem]:
    said = "skip_chat_template" in config.model_fields_set
    has_one = Path(base).is_dir() and bool(has_chat_template(Path(base)))
    named_so = not Path(base).is_dir() and _INSTRUCT.search(base) is not None
    plain = config.form == PLACEHOLDER and not config.system_prompt
    # One that writes the model's own end is one that the model was trained on.
    source = _template_source(Path(base)) if has_one else ""
    trained_on = any(end in source for end in _end_tokens(Path(base)))
    if said and not (plain and (named_so or trained_on)):
        return []
    if not said and not has_one and not named_so:
        return []
    what = f"the chat template of {base} is not used"
    if named_so:
        what = f"{base}, by its name an instruct model, is asked without its chat template"
    return [
        ConfigProblem(
            "prompting.skip_chat_template",
            True if said else None,
            f"is true, and {what}" if said else f"is left out, so {what}",
            "set it to false for an instruct model, to true for a base model"
            if not said
            else "set it to false, or name the form of its prompts (template, question_format)",
        )
    ]


_INSTRUCT = re.compile(r"(?i)(?:^|[-_./])(?:instruct|chat|it|assistant|dpo|rlhf)(?:$|[-_.])")
"""Part of a hub id: `Qwen/Qwen2.5-0.5B-Instruct`, `google/gemma-2-2b-it`."""
_LARGEST_TEMPLATE = 1_000_000


def _template_source(folder: Path) -> str:
    """All chat templates of a model folder, one text; empty where there is none to be read."""
    found = []
    for path in [folder / "chat_template.jinja", *folder.glob("additional_chat_templates/*")]:
        with suppress(OSError):  # too large, no text, or no file at all: the run says it
            found.append(read_text(path, _LARGEST_TEMPLATE))
    for name in ("tokenizer_config.json", "chat_template.json"):
        value = (_read_json(folder / name) or {}).get("chat_template")
        found.append(
            value if isinstance(value, str) else json.dumps(value or "", ensure_ascii=False)
        )
    return "\n".join(found).strip('\n"')


def _end_tokens(folder: Path) -> Sequence[str]:
    """The end tokens of a model folder by name, as far as its small files tell."""
    tokenizer = _read_json(folder / "tokenizer_config.json") or {}
    generation = _read_json(folder / "generation_config.json") or {}
    added = tokenizer.get("added_tokens_decoder")
    names = added if isinstance(added, dict) else {}
    ids = generation.get("eos_token_id")
    found = [tokenizer.get("eos_token"), *(names.get(str(i)) for i in _as_list(ids))]
    texts = [one.get("content") if isinstance(one, dict) else one for one in found]
    return list(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


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
    if not path.is_file():
        return None
    try:
        return read_json_object(path)
    except OSError:
        return None
