"""A tokenizer's chat template at work: messages become text, at one date, and a turn has an end.

Whatever the template raises becomes a ChatTemplateError with the reason. Transformers hands each
template a clock, `strftime_now`; a run gives its own, so that no prompt changes over midnight.
Knows no token of its own and no row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

Clock = Callable[[], datetime]
Message = Mapping[str, Any]

_ASKED, _SAID, _ASKED_AGAIN, _TOLD = (
    "nightlaneask",
    "nightlanesay",
    "nightlanemore",
    "nightlanetell",
)
"""Words that stand for contents; plain letters, which no template takes for something else."""
_SLASHED = "<[◁"


class ChatTemplateError(ValueError):
    """The chat template refuses the messages, or breaks on them."""


class Turn(NamedTuple):
    """How a chat template writes an assistant's turn."""

    lead: str = ""
    """White space between the prompt's end and the answer; `[INST]` templates write a space."""
    end: str | None = None
    """The token behind the answer; None where the template writes none there."""


def is_framing(token: str) -> bool:
    """Whether an added token looks made for a frame: a word or a line break may be added as well.

    >>> [is_framing(token) for token in ("<|user|>", "[INST]", "user", "\\n\\n", "**", "")]
    [True, True, False, False, False, False]
    """
    edges = token[:1] + token[-1:]
    framed = not any(c.isalnum() or c.isspace() for c in edges)
    return framed and any(map(str.isalnum, token))


def is_mark(token: str, among: Collection[str]) -> bool:
    """One of a pair such as `<think>` and `</think>`: it marks a part of what somebody says.

    >>> [is_mark(t, {"<a>", "</a>", "<|a|>"}) for t in ("<a>", "</a>", "<|a|>")]
    [True, True, False]
    """
    if token[:1] not in _SLASHED or not token:
        return False
    partner = token[0] + token[2:] if token[1:2] == "/" else f"{token[0]}/{token[1:]}"
    return partner in among


def local_now() -> datetime:
    """As Transformers reads it: without a zone."""
    return datetime.now().astimezone().replace(tzinfo=None)


@dataclass(frozen=True)
class ChatTemplate:
    """`text(messages)` as `apply_chat_template` writes it, told the `variables` and the time.

    Take it only for a tokenizer that has a template.
    """

    tokenizer: Any
    """Of transformers; typed loosely because its stubs are."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock = local_now

    @property
    def is_dated(self) -> bool:
        """Whether a prompt may say what day, or what time, it is."""
        return "strftime_now" in str(self.tokenizer.chat_template)

    @property
    def dated_probe(self) -> str:
        """A prompt of this moment, for whom two dates make a difference; empty without a date."""
        return self.text([{"role": "user", "content": _ASKED}]) if self.is_dated else ""

    def text(self, messages: Sequence[Message], *, asks: bool = True) -> str:
        """The turns, and the beginning of the assistant's where it `asks` for one.

        Raises ChatTemplateError.
        """
        try:
            self._set_clock()
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages),
                    tokenize=False,
                    add_generation_prompt=asks,
                    **self.variables,
                )
            )
        except TemplateError as error:
            raise ChatTemplateError(str(error)) from error
        except Exception as error:
            # A template is a program of its own: it may raise whatever Python knows.
            raise ChatTemplateError(f"{type(error).__name__}: {error}") from error

    def _set_clock(self) -> None:
        """The compiled template is Transformers' own, and kept; what it reads as now is ours."""
        source = self.tokenizer.get_chat_template()
        compiled: Any = _compile_jinja_template(source)
        compiled.globals["strftime_now"] = lambda form: self.clock().strftime(form)

    @cached_property
    def turn(self) -> Turn:
        """Read from what the template writes around a probe; nothing where it does not take one."""
        asked = {"role": "user", "content": _ASKED}
        try:
            prompt = self.text([asked])
            whole = self.text([asked, {"role": "assistant", "content": _SAID}], asks=False)
        except ChatTemplateError:
            return Turn()
        before, found, after = whole.rpartition(_SAID)
        if not found:
            return Turn()
        lead = before.removeprefix(prompt) if before.startswith(prompt) else ""
        return Turn(lead if lead.isspace() else "", self._leading_token(after.lstrip()))

    @cached_property
    def around_turns(self) -> frozenset[str]:
        """Added tokens that the template writes around turns that are over.

        Marks such as `<think>` count where it writes them around what is asked: in an answer's turn
        they belong to the answer.
        """
        told = {"role": "system", "content": _TOLD}
        asked = {"role": "user", "content": _ASKED}
        said = {"role": "assistant", "content": _SAID}
        again = {"role": "user", "content": _ASKED_AGAIN}
        asking = self._first_of([told, asked], [asked])
        whole = self._first_of([told, asked, said, again], [asked, said, again])
        return frozenset(
            token
            for token in self._added
            if token in asking or (token in whole and not is_mark(token, self._added))
        )

    def _first_of(self, *conversations: Sequence[Message]) -> str:
        """The text of the first conversation that the template takes."""
        for messages in conversations:
            with suppress(ChatTemplateError):
                return self.text(messages, asks=False)
        return ""

    @cached_property
    def _added(self) -> Sequence[str]:
        """Longest first: a token may begin with another one."""
        found = self.tokenizer.added_tokens_decoder.values()
        tokens = [str(one.content) for one in found if one.special or is_framing(str(one.content))]
        return sorted(tokens, key=len, reverse=True)

    def _leading_token(self, text: str) -> str | None:
        found = re.match("|".join(map(re.escape, self._added)) or "(?!)", text)
        return found.group() if found else None
