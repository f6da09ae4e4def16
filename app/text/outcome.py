"""How a run stands, as one sentence and what follows from it: the first line of its page.

Its word is the verdict's where there is one, else the state of the job. The same on the page, in
`cockpit show` and over REST. Knows no page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.text import wording
from app.text.findings import meaning_of
from app.text.headline import Headline
from app.text.run_cells import GLYPHS
from engine.contract.registry import kinds
from worker.queue.states import State
from worker.read.jobs import JobView
from worker.read.runs.run import model_name


class Piece(NamedTuple):
    """Words of the sentence."""

    text: str
    weight: str = ""
    """`strong` or `quiet`, else plain."""


@dataclass(frozen=True)
class Outcome:
    """The sentence in its pieces."""

    key: str
    """gain, loss, no gain proven, pool only, no verdict; else the state."""
    pieces: Sequence[Piece]
    then: str = ""
    """What follows from it."""

    @property
    def glyph(self) -> str:
        """In front of the word."""
        return GLYPHS.get(self.key, "–")

    @property
    def word(self) -> str:
        """The first word of the sentence."""
        return self.key[:1].upper() + self.key[1:]

    @property
    def text(self) -> str:
        """`Gain: step 30 solves 25.8 points more held-out rows than Qwen3-4B, …`."""
        return f"{self.word}: {''.join(piece.text for piece in self.pieces)}"

    def as_dict(self) -> dict[str, str]:
        """As REST says it."""
        return {"word": self.key, "sentence": self.text, "then": self.then}


def outcome_of(job: JobView) -> Outcome:
    """Read from its live or final result."""
    headline = Headline.of(job)
    if headline.verdict is not None and job.state is State.SUCCEEDED:
        said = _PROVEN.get(headline.verdict, _difference)
        pieces = [*said(job, headline)] if headline.lift is not None else []
        unsaid = Piece(headline.reason or "its held-out rows were not judged")
        then = wording.sentence(meaning_of(job))
        return Outcome(headline.verdict, _ended(pieces or [unsaid]), then)
    if job.state is State.RUNNING:
        return Outcome("running", _ended([*_so_far(headline)]), "No verdict before the end.")
    if job.state is State.QUEUED:
        waits = job.waits_for.detail if job.waits_for else "it waits for a drain"
        return Outcome("queued", _ended([Piece(waits)]))
    if job.state is State.SUCCEEDED:
        return Outcome("done", _ended([Piece(f"it took {wording.duration(headline.seconds)}")]))
    return Outcome(job.state.value, _ended([Piece(job.error or job.cause or "no reason is known")]))


def _ended(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """With a full stop behind the last one, unless a command may stand there: it is copied."""
    last = pieces[-1]
    if last.text.endswith((".", "?", "!")) or "cockpit " in last.text:
        return pieces
    return [*pieces[:-1], last._replace(text=f"{last.text}.")]


def base_name(job: JobView) -> str:
    """`Qwen3-4B` of `Qwen/Qwen3-4B`; `the base` where nobody knows it."""
    kind = kinds().get(job.kind)
    found: Any = job.config
    for part in (kind.model or "").split(".") if kind else ():
        found = found.get(part) if isinstance(found, Mapping) else None
    return (model_name(found) or "the base").removeprefix("embedded:")


def _solves(job: JobView, headline: Headline) -> Iterator[Piece]:
    """Of a gain or a loss: how many rows more or fewer."""
    apart = wording.points(headline.lift).lstrip("+−±")
    more = "more" if (headline.lift or 0) >= 0 else "fewer"
    yield Piece(f"{_step(headline)} solves ")
    yield Piece(f"{apart} {more}", "strong")
    yield Piece(f" held-out rows than {base_name(job)}, ")
    yield from _ends(headline)


def _difference(job: JobView, headline: Headline) -> Iterator[Piece]:
    """Of what proves nothing."""
    yield Piece(f"{_step(headline)} against {base_name(job)} ")
    yield Piece(wording.points(headline.lift), "strong")
    yield Piece(" on held-out rows, ")
    yield from _ends(headline)


_PROVEN: Mapping[str, Callable[[JobView, Headline], Iterator[Piece]]] = {
    "gain": _solves,
    "loss": _solves,
}


def _ends(headline: Headline) -> Iterator[Piece]:
    before, after = wording.percent(headline.before), wording.percent(headline.after)
    yield Piece(f"{before.removesuffix(' %')} → {after} ", "strong")
    known = headline.lift_low is not None and headline.lift_high is not None
    ends = wording.interval(headline.lift_low, headline.lift_high) if known else "no interval"
    n = "" if headline.report_n is None else f", n {headline.report_n}"
    if headline.different is not None and headline.different < (headline.report_n or 0):
        n += f", {headline.different} different"
    yield Piece(f"({ends}{n})", "quiet")


def _step(headline: Headline) -> str:
    step = headline.selected_step
    return "the picked checkpoint" if step is None else f"step {step}"


def _so_far(headline: Headline) -> Iterator[Piece]:
    if headline.step is None:
        yield Piece(headline.phase or "it begins")
        return
    of = "" if headline.max_steps is None else f" of {headline.max_steps}"
    yield Piece(f"step {headline.step}{of}")
    if headline.heldout is not None:
        yield Piece(", held-out so far ")
        yield Piece(wording.percent(headline.heldout), "strong")
