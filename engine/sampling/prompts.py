"""What a policy reads in front of its completion: template, system prompt, examples, question.

The text is built first and read by the tokenizer once, so that what a person sees is what the
model gets. Knows no reward and no run; how many examples a step shows is told from outside.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from engine.contract.errors import RLLoopError
from engine.contract.rl.format import ANSWER, FormatConfig
from engine.contract.rl.prompting import PLACEHOLDER, PromptingConfig, no_template
from engine.data.rows import Question, asked
from engine.models.vocabulary import readable

Examples = Callable[[Question], Sequence[tuple[Question, str]]]
"""The worked examples in front of a question: each a question with its answer written out."""

_OPENED = re.compile(r"<think>\s*\Z")
_SPECIAL_TOKENS = 8
"""More than a tokenizer adds to a text; beside those an ASCII character is one token at most."""


def no_examples(_question: Question) -> Sequence[tuple[Question, str]]:
    """The bare question, as a held-out gate asks it."""
    return ()


@dataclass(frozen=True)
class PromptBuilder:
    """`builder(question)` are the prompt's ids; `builder.text(question)` what they say.

    Raises RLLoopError when a chat template is asked of a tokenizer without one, and for a prompt
    with a token that the model does not know.
    """

    tokenizer: Any
    """Of transformers; typed loosely because its stubs are."""
    config: PromptingConfig
    examples: Examples = no_examples
    known: int = sys.maxsize
    """Ids below this have an embedding in the model that reads the prompts."""

    def __post_init__(self) -> None:
        if not (self.config.skip_chat_template or self.tokenizer.chat_template):
            raise RLLoopError([no_template(self.tokenizer.name_or_path or "this base")])

    def __call__(self, question: Question) -> tuple[int, ...]:
        """A chat template writes its own special tokens; else the tokenizer adds its usual ones."""
        return tuple(readable(self._ids(self.text(question)), self.known, self.tokenizer))

    def lengths(self, questions: Sequence[Question], enough: float) -> list[int]:
        """Tokens of each prompt; where that cannot be above `enough`, the characters will do."""
        texts = [self.text(question) for question in questions]
        return [
            most if text.isascii() and text.strip() and most <= enough else len(self._ids(text))
            for text in texts
            for most in [len(text) + _SPECIAL_TOKENS]
        ]

    def _ids(self, text: str) -> Sequence[int]:
        special = self.config.skip_chat_template
        ids: Sequence[int] = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        if not special:
            return ids
        begin, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        if begin is not None and text.startswith(self.tokenizer.bos_token):
            ids = ids[1:] if list(ids[:2]) == [begin, begin] else ids  # the text has said its own
        if ids and ids[-1] == end and not text.endswith(self.tokenizer.eos_token):
            return ids[:-1]  # some tokenizers end every text: nothing can follow that
        return ids

    def text(self, question: Question) -> str:
        """Raises RLLoopError when the chat template refuses the messages."""
        shown = [(self._written(asked), answer) for asked, answer in self.examples(question)]
        asked = self._written(question)
        write = self._plain if self.config.skip_chat_template else self._templated
        return write(shown, asked) + self.config.assistant_prefix

    def begins(self, question: Question) -> str:
        """What of the prompt belongs to the answer: the prefix, and a thought that was opened.

        Chat templates of thinking models end in `<think>`, and so does many a `question_format`.
        """
        prefix = self.config.assistant_prefix
        opened = _OPENED.search(self.text(question).removesuffix(prefix))
        return opened.group() + prefix if opened else prefix

    def _written(self, question: Question) -> str:
        return self.config.question_format.replace(PLACEHOLDER, question.prompt)

    def _plain(self, shown: Sequence[tuple[str, str]], asked: str) -> str:
        parts = [self.config.system_prompt] if self.config.system_prompt else []
        prefix = self.config.assistant_prefix
        parts += [_joined(question, prefix + answer) for question, answer in shown]
        return "\n\n".join([*parts, asked])

    def _templated(self, shown: Sequence[tuple[str, str]], asked: str) -> str:
        messages = []
        if self.config.system_prompt:
            messages.append({"role": "system", "content": self.config.system_prompt})
        for question, answer in shown:
            messages.append({"role": "user", "content": question})
            reply = self.config.assistant_prefix + answer
            messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": asked})
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=True,
                    **self.config.template_variables,
                )
            )
        except TemplateError as error:
            raise RLLoopError.of(
                "prompting",
                None,
                f"the chat template refuses these messages: {error}",
                "leave out system_prompt if the model knows no system role, or correct "
                "template_variables",
            ) from error


def _joined(question: str, answer: str) -> str:
    """`A:` is answered on its line; a question that says nothing of the kind, on the next."""
    return f"{question} {answer}" if question.endswith(":") else f"{question}\n{answer}"


def demonstration(question: Question, config: FormatConfig) -> str:
    """A question's worked answer: the row's own, else its answer in the config's sentence."""
    if question.solution is not None:
        return question.solution
    return config.demonstration.replace(ANSWER, question.answer)


def fading_examples(rows: Sequence[Question], config: FormatConfig, max_steps: int) -> Examples:
    """The first training rows, worked out, before every question; fewer with each draw's step.

    A question is never its own example, however it is written there.
    """

    def shown(question: Question) -> Sequence[tuple[Question, str]]:
        count = config.shots_at((question.draw or 0) + 1, max_steps)
        same = asked(question.prompt)
        others = [row for row in rows[: count + 1] if asked(row.prompt) != same]
        return [(row, demonstration(row, config)) for row in others[:count]]

    return shown
