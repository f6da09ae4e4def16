"""Why a policy that is not solved may know more than its score: its answers are not read.

Of a gate's rows: how many completions the verifier found no answer in, one of them, and which of
our verifiers would read them. Changes no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.verifiers import READS_TEXT
from engine.evaluate.gate import GateResult, Scored
from engine.rewards.adapter import ask_all, load_verifier
from engine.rewards.judgement import Reason

_ASKED = 64
"""Completions that other verifiers are asked about."""
_WORTH = 0.1
"""A verifier that finds so many more of them right is worth naming."""
_GENERAL = "math"
"""Of several that read alike, the one that asks what an answer means."""
_SHOWN = 120
"""Characters of the example."""
_READ = frozenset({Reason.CORRECT, Reason.WRONG})


class Better(NamedTuple):
    """A verifier of ours that reads what the run's own does not."""

    name: str
    read: int
    right: int
    of: int


class Unread(NamedTuple):
    """What of a gate the verifier could not read."""

    verifier: str
    unparsed: int
    n: int
    example: str
    """The first such completion, shortened."""
    better: Better | None

    @property
    def share(self) -> float:
        """Of the completions."""
        return self.unparsed / self.n if self.n else 0.0

    def text(self) -> str:
        """`500 of 500 completions are unreadable by gsm8k …`."""
        shown = f", like {self.example!r}" if self.example.strip() else ": they are empty"
        return (
            f"{self.unparsed} of {self.n} completions are unreadable by {self.verifier}, which "
            f"finds no answer in them{shown}"
        )


def unread(result: GateResult, verifiers: Sequence[str]) -> Unread:
    """`verifiers`: those of the run; another one is sought where they read text alone."""
    lost = [one for one in result.items if one.verdict.reason is Reason.UNPARSED]
    example = " ".join(lost[0].rollout.text.split())[:_SHOWN] if lost else ""
    text_alone = all(":" not in name for name in verifiers)
    better = _better(result.items[:_ASKED], verifiers) if text_alone else None
    return Unread(" + ".join(verifiers), len(lost), len(result.items), example, better)


def _better(items: Sequence[Scored], verifiers: Sequence[str]) -> Better | None:
    """The one that finds the most of them right, else the one that reads the most."""
    read = sum(item.verdict.reason in _READ for item in items)
    right = sum(bool(item.success) for item in items)
    names = sorted(READS_TEXT - set(verifiers), key=lambda name: (name != _GENERAL, name))
    found = [_asked(name, items) for name in names]
    known = [one for one in found if one is not None]
    best = max(known, key=lambda one: (one.right, one.read), default=None)
    if best is None:
        return None
    worth = _WORTH * len(items)
    return best if best.right - right > worth or best.read - read > len(items) / 2 else None


def _asked(name: str, items: Sequence[Scored]) -> Better | None:
    try:
        verifier = load_verifier(name)
    except RLLoopError:
        return None  # a library is missing: it cannot be chosen here either
    verdicts = ask_all(verifier, [(item.rollout.text, item.question.answer) for item in items])
    return Better(
        name,
        read=sum(verdict.reason in _READ for verdict in verdicts),
        right=sum(verdict.reason is Reason.CORRECT for verdict in verdicts),
        of=len(items),
    )
