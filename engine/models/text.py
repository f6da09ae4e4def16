"""Text and token ids of one tokenizer: what a model reads, and what it wrote.

Two promises. **No text from data becomes a control token**: a token that ends a turn or begins one
is written by the chat template, the question's format and the prefix alone; where a row holds the
same characters, they are spelled out like any other text. **What was written is told whole**: text
of a completion is what it adds to its prompt, its spaces and special tokens among it, and only the
end tokens at its end go.

How: data is put in with a private character for each control token in it (`hide`). Where none is
found, which is nearly always, a prompt is encoded as the tokenizer does by itself. Else it goes
through a copy of the tokenizer in which control tokens have other names, so that the characters
from the data are no token there. Knows no template and no row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from tokenizers import Tokenizer

from engine.models.chat import is_framing, is_mark

_PLACEHOLDERS = 0xF0000
"""Private characters from here on stand for control tokens, in the order of `control`."""
_LITERAL, _OPEN, _CLOSE = "\U000ffff0", "\U000ffff1", "\U000ffff2"
"""In front of a private character that the data itself holds; around a token that is marked."""
_NAMES = range(0x100000, 0x10FFFE)
"""Private characters that begin and end the other names of control tokens."""
_TAILS = (4, 16, 64, 256)
"""Tokens of a prompt that are decoded with its completion; all of them where that is too few."""
_BROKEN = "\ufffd"
"""Stands in a text for bytes that are no whole character."""
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A byte of a character that has no token of its own; some tokenizers list them as special."""


class ControlTokenError(ValueError):
    """Text from data that cannot be told from a control token here."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__(
            f"holds {token!r}, which is a control token of this model, and its tokenizer or chat "
            "template does not let it be read as plain text"
        )


class Hide(Protocol):
    """What a text from data is put through before it is written into a prompt."""

    def __call__(self, text: str, *, own: bool = False) -> str:
        """`own`: the assistant's own words, which may hold `<think>` and its like as tokens."""
        ...


def as_it_is(text: str, *, own: bool = False) -> str:  # noqa: ARG001 - of Hide
    """Hides nothing."""
    return text


class TextCodec:
    """`around_turns` are tokens known to frame turns; `meant` are never control tokens."""

    def __init__(
        self,
        tokenizer: Any,
        around_turns: Collection[str] = (),
        meant: Collection[str] = (),
    ) -> None:
        self.tokenizer = tokenizer
        added = {
            str(token.content): (i, bool(token.special))
            for i, token in tokenizer.added_tokens_decoder.items()
            if not _BYTE.fullmatch(str(token.content))
        }
        named = {str(getattr(tokenizer, f"{name}_token", None)) for name in _NAMED}
        template = str(getattr(tokenizer, "chat_template", None) or "")
        markup = {token for token in added.keys() - named if is_mark(token, added.keys() - named)}
        special = {token for token, (_, special) in added.items() if special} | named
        special |= {*map(str, tokenizer.all_special_tokens)}
        framing = {t for t in added if t in template and t not in markup and is_framing(t)}
        control = (special | framing | {*around_turns}).difference(meant) & added.keys()
        self.control: Mapping[str, int] = {
            token: added[token][0] for token in sorted(control, key=lambda t: (-len(t), t))
        }
        """Tokens that no text from data may become, longest first."""
        self._own = control - (markup - {*around_turns})
        """Those of them that the assistant's own words may not become either."""
        self._renamed: dict[str, _Renamed] = {}

    # --- hiding ---

    def held(self, text: str, *, own: bool = False) -> Sequence[str]:
        """Control tokens whose characters a text from data holds, as it stands or normalised."""
        found = self._pattern(own).findall(text)
        if not found and self._normalizer is not None:
            found = self._pattern(own).findall(self._normalizer.normalize_str(text))
        return list(dict.fromkeys(found))

    def hide(self, text: str, *, own: bool = False) -> str:
        """A private character for each control token; `shown` gives the text back."""
        literal = _PRIVATE.sub(lambda found: _LITERAL + found.group(), text)
        hidden = self._pattern(own).sub(lambda found: self._characters[found.group()], literal)
        if hidden == text and self.held(text, own=own):
            # only its normalised form is a token: the mark makes the careful way be taken
            return re.sub(r"(?<=\S)|(?=\S)", _OPEN, text, count=1)
        return hidden

    def shown(self, hidden: str) -> str:
        """The text as a person reads it."""
        return _SHOWN.sub(lambda found: found[1] or self._tokens.get(found.group(), ""), hidden)

    def protected(self, write: Callable[[Hide], str]) -> str:
        """What `write(hide)` gives, proven to say what `write` says of the texts themselves.

        A template that looks into its contents may do something else with a character that stands
        for a token; then tokens are marked instead, and if that too changes what it writes, raises
        ControlTokenError.
        """
        changed: list[str] = []

        def hide(text: str, *, own: bool = False) -> str:
            hidden = self.hide(text, own=own)
            if hidden != text:
                changed.append(text)
            return hidden

        hidden = write(hide)
        if not changed:
            return hidden
        plain = write(as_it_is)
        if self.shown(hidden) == plain:
            return hidden
        hidden = self._unmarked(write(self._mark))
        if self.shown(hidden) == plain:
            return hidden
        raise ControlTokenError(self._first_held("".join(changed)))

    def _mark(self, text: str, *, own: bool = False) -> str:
        literal = _PRIVATE.sub(lambda found: _LITERAL + found.group(), text)
        return self._pattern(own).sub(lambda found: _OPEN + found.group() + _CLOSE, literal)

    def _unmarked(self, marked: str) -> str:
        """Marks around a whole token make it data's; a template may have parted others.

        One mark stays, so that the careful way is taken.
        """
        marks = f"({_LITERAL}.)|{_OPEN}({self._pattern().pattern}){_CLOSE}|[{_OPEN}{_CLOSE}]"
        return _OPEN + re.sub(
            marks, lambda found: found[1] or self._characters.get(found[2], ""), marked
        )

    def _first_held(self, text: str) -> str:
        return next(iter(self.held(text)), next(iter(self.control), ""))

    # --- reading ---

    def encode(self, hidden: str, *, begins: bool = False) -> list[int]:
        """Ids of a text whose data is hidden; `begins`: with what the tokenizer puts in front.

        That is there once, also where the text says it itself; what a tokenizer puts behind every
        text is left out, since nothing can follow an end. Raises ControlTokenError.
        """
        ids = self._carefully(hidden) if _SHOWN.search(hidden) else self._usual(hidden)
        if not begins:
            return ids
        first = self._prefix
        if first and ids[:1] == first[-1:] and ids[0] == self.tokenizer.bos_token_id:
            ids = ids[1:]
        return [*first, *ids]

    def encode_after(self, before: Sequence[int], text: str) -> list[int]:
        """Ids of the assistant's own words, so that they read behind `before` as they stand here.

        A tokenizer of words with a space in front would put one there that nobody wrote.
        """
        hidden = self.hide(text, own=True)
        usual = self.encode(hidden)
        for ids in (usual, self._behind_a_line(hidden), self._by_parts(hidden)):
            if self.continuation(before, ids) == text:
                return ids
        return usual

    def _behind_a_line(self, hidden: str) -> list[int]:
        """What a text is in the middle of another one."""
        line, both = self.encode("\n"), self.encode("\n" + hidden)
        return both[len(line) :] if both[: len(line)] == line else both

    def _by_parts(self, hidden: str) -> list[int]:
        """The same between its special tokens: some tokenizers put a space behind each of them."""
        parts = [
            [self.control[part]] if part in self.control else self._behind_a_line(part)
            for part in self._parts(hidden)
        ]
        return [i for part in parts for i in part]

    def _usual(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def _prefix(self) -> Sequence[int]:
        bare = self._usual(_PROBE)
        whole: list[int] = list(self.tokenizer(_PROBE)["input_ids"])
        places = (i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        return whole[: next(places, 0)]

    def _carefully(self, hidden: str) -> list[int]:
        written = self._pattern().findall(hidden)
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if isinstance(backend, Tokenizer):
            ids = self._by_renaming(backend, hidden)
        else:
            ids = [i for part in self._parts(hidden) for i in self._spelled(part)]
        unknown = self.tokenizer.unk_token_id  # any odd character may become it
        control = {*self.control.values()} - {unknown}
        wanted = [self.control[token] for token in written]
        if [i for i in ids if i in control] != [i for i in wanted if i != unknown]:
            raise ControlTokenError(self._first_held(self.shown(hidden)))
        return ids

    def _by_renaming(self, backend: Tokenizer, hidden: str) -> list[int]:
        mark = next(c for c in map(chr, _NAMES) if c not in hidden)
        if mark not in self._renamed:
            self._renamed[mark] = _Renamed(backend, self.control, mark)
        renamed = self._renamed[mark]
        named = self._pattern().sub(lambda found: renamed.names[found.group()], hidden)
        return renamed.encode(self.shown(named))

    def _parts(self, hidden: str) -> Iterator[str]:
        """Control tokens, and the texts between them."""
        yield from filter(None, re.split(f"({self._pattern().pattern})", hidden))

    def _spelled(self, part: str) -> Sequence[int]:
        """A tokenizer of Python's own has a way to take no special token for one."""
        if part in self.control:
            return [self.control[part]]
        pieces = self.tokenizer.tokenize(self.shown(part), split_special_tokens=True)
        return list(self.tokenizer.convert_tokens_to_ids(pieces))

    # --- writing ---

    def continuation(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """What `ids` add to a text whose ids are `before`: decode(both) less decode(before)."""
        for length in (*_TAILS, len(before)):
            tail = list(before[-length:]) if length else []
            head = self._decoded(tail)
            if _BROKEN in head and length < len(before):
                continue  # it begins inside a character
            whole = self._decoded([*tail, *ids])
            if whole.startswith(head):
                return whole[len(head) :]
            break
        # What follows has broken the prompt's last character; a token before it will do.
        for anchor in reversed(before[-_TAILS[-1] :]):
            head, whole = self._decoded([anchor]), self._decoded([anchor, *ids])
            if head and whole.startswith(head):
                return whole[len(head) :]
        return self._decoded(ids)

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(
                list(ids),
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
                spaces_between_special_tokens=False,
            )
        )

    # --- tables ---

    @cached_property
    def _characters(self) -> Mapping[str, str]:
        return {token: chr(_PLACEHOLDERS + i) for i, token in enumerate(self.control)}

    @cached_property
    def _tokens(self) -> Mapping[str, str]:
        return {character: token for token, character in self._characters.items()}

    def _pattern(self, own: bool = False) -> re.Pattern[str]:
        return self._own_tokens if own else self._any_token

    @cached_property
    def _any_token(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.control)) or "(?!)")

    @cached_property
    def _own_tokens(self) -> re.Pattern[str]:
        wanted = [token for token in self.control if token in self._own]
        return re.compile("|".join(map(re.escape, wanted)) or "(?!)")

    @cached_property
    def _normalizer(self) -> Any:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        return backend.normalizer if isinstance(backend, Tokenizer) else None


_PRIVATE = re.compile("[\U000f0000-\U000fffff]")
_SHOWN = re.compile(f"{_LITERAL}(.)|{_PRIVATE.pattern}")
_PROBE = "a"


class _Renamed:
    """A copy of a tokenizer in which control tokens are called otherwise."""

    def __init__(self, backend: Tokenizer, control: Mapping[str, int], mark: str) -> None:
        self.names = {token: f"{mark}{i}{mark}" for i, token in enumerate(control)}
        state: Any = json.loads(backend.to_str())
        state.update(truncation=None, padding=None, post_processor=None)
        for token in state["added_tokens"]:
            token["content"] = self.names.get(token["content"], token["content"])
        _rename(state["model"], self.names)
        self._backend = Tokenizer.from_str(json.dumps(state))
        self._ids = {
            self._backend.token_to_id(token["content"]): token["id"]
            for token in state["added_tokens"]
        }

    def encode(self, text: str) -> list[int]:
        ids = self._backend.encode(text, add_special_tokens=False).ids
        return [self._ids.get(i, i) for i in ids]


def _rename(model: dict[str, Any], names: Mapping[str, str]) -> None:
    """Of a vocabulary too: some models make a control token of its characters by themselves."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): i for piece, i in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    if model.get("unk_token") is not None:
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    merges = model.get("merges", [])
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    if merges:
        model["merges"] = [
            merge
            for merge, pair in zip(merges, pairs, strict=True)
            if names.keys().isdisjoint({*pair, "".join(pair)})
        ]
