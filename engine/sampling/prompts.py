"""What a policy reads in front of its completion: template, system prompt, examples, question.

The text is built first and read by the tokenizer once, so that what a person sees is what the
model gets. What comes from rows and the system prompt is text and never a control token; the chat
template, the form of a question and `assistant_prefix` write those. Knows no reward and no run; how
many examples a step shows is told from outside.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from engine.contract.asked import asked
from engine.contract.errors import RLLoopError
from engine.contract.rl.format import ANSWER, FormatConfig
from engine.contract.rl.prompting import PromptingConfig, no_template
from engine.contract.templates.prompt import Prompt, compose
from engine.data.rows import Question
from engine.models.chat import ChatTemplate, ChatTemplateError, Clock, Message, local_now
from engine.models.text import ControlTokenError, Hide, TextCodec, as_it_is
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
    clock: Clock = local_now
    """What a chat template is told the time is."""
    templates: Mapping[str, str | None] = field(default_factory=dict)
    """By source the template of its questions; others are asked in the config's form."""

    def __post_init__(self) -> None:
        if not (self.config.skip_chat_template or self.tokenizer.chat_template):
            raise RLLoopError([no_template(self.tokenizer.name_or_path or "this base")])

    @cached_property
    def chat(self) -> ChatTemplate | None:
        """The tokenizer's chat template, where the config asks for it."""
        if self.config.skip_chat_template:
            return None
        return ChatTemplate(self.tokenizer, self.config.template_variables, self.clock)

    @cached_property
    def codec(self) -> TextCodec:
        return TextCodec(self.tokenizer, self.chat.around_turns if self.chat else ())

    def __call__(self, question: Question) -> tuple[int, ...]:
        """A chat template writes its own special tokens; else the tokenizer adds its usual ones.

        Raises RLLoopError, with the row's id, for text that cannot be told from a control token.
        """
        return tuple(readable(self._ids(question), self.known, self.tokenizer))

    def lengths(self, questions: Sequence[Question], enough: float) -> list[int]:
        """Tokens of each prompt; where that cannot be above `enough`, the characters will do."""
        return [
            most if text.isascii() and text.strip() and most <= enough else len(self._ids(question))
            for question in questions
            for text in [self._hidden(question)]
            for most in [len(text) + _SPECIAL_TOKENS]
        ]

    def held(self, question: Question) -> Sequence[str]:
        """Control tokens whose characters the row holds. They are read as plain text.

        Raises RLLoopError where they cannot be.
        """
        found = [
            *self.codec.held(question.prompt),
            *self.codec.held(question.solution or question.answer, own=True),
        ]
        if found:
            self(question)
        return list(dict.fromkeys(found))

    def _ids(self, question: Question) -> Sequence[int]:
        try:
            return self.codec.encode(self._hidden(question), begins=self.chat is None)
        except ControlTokenError as error:
            raise self._refused(question, error) from error

    def text(self, question: Question) -> str:
        """Raises RLLoopError when the chat template refuses the messages."""
        return self.codec.shown(self._hidden(question))

    def prompt(self, question: Question) -> str | Sequence[Message]:
        """What is asked, as a reward function gets it: turns under a chat template, else text."""
        if self.chat is None:
            return self.text(question)
        return self._messages(question, as_it_is)

    def _hidden(self, question: Question) -> str:
        """The prompt with the control tokens of its data hidden."""
        write = self._plain if self.chat is None else self._templated
        try:
            return self.codec.protected(lambda hide: write(question, hide))
        except ControlTokenError as error:
            raise self._refused(question, error) from error

    def _refused(self, question: Question, error: ControlTokenError) -> RLLoopError:
        where = f"row {question.id!r} or what is shown with it"
        remedy = "write it otherwise, or leave the row out"
        return RLLoopError.of("data", None, f"{where} {error}", remedy)

    def begins(self, question: Question) -> str:
        """What of the prompt belongs to the answer: the prefix, and a thought that was opened.

        Chat templates of thinking models end in `<think>`, and so does many a `question_format`.
        """
        prefix = self.config.assistant_prefix
        opened = _OPENED.search(self.text(question).removesuffix(prefix))
        return opened.group() + prefix if opened else prefix

    def _composed(self, question: Question, hide: Hide) -> Prompt:
        turns = question.messages or [{"role": "user", "content": question.prompt}]
        return compose(
            self.config.under(self.templates.get(question.source)).written,
            [{**turn, "content": hide(turn["content"])} for turn in turns],
            system_prompt=hide(self.config.system_prompt),
            shots=[
                (hide(_asked(example)), hide(answer, own=True))
                for example, answer in self.examples(question)
            ],
            prefix=self.config.assistant_prefix,
        )

    def _plain(self, question: Question, hide: Hide) -> str:
        prompt = self._composed(question, hide)
        if prompt.history:
            raise RLLoopError.of(
                "prompting.skip_chat_template",
                True,
                "cannot write a conversation of several turns, and a row's prompt is one",
                "set it to false: the chat template writes the turns",
            )
        return prompt.text()

    def _messages(self, question: Question, hide: Hide) -> Sequence[Message]:
        return self._composed(question, hide).messages()

    def _templated(self, question: Question, hide: Hide) -> str:
        assert self.chat is not None
        try:
            text = self.chat.text(self._messages(question, hide))
        except ChatTemplateError as error:
            raise RLLoopError.of(
                "prompting",
                None,
                f"the chat template refuses these messages: {error}",
                "leave out system_prompt if the model knows no system role, or correct "
                "template_variables; a template that breaks on every message has to be mended in "
                "the model's folder",
            ) from error
        return text + self.config.assistant_prefix


def _asked(question: Question) -> str:
    return question.messages[-1]["content"] if question.messages else question.prompt


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
