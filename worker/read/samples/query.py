"""Questions to a run's rollouts: by step, split and fate; a prompt's group; a prompt over steps.

Keyset pages by the row's place in its file. Every look is bounded in bytes and says how far it
came. Writes nothing and knows no page.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from worker.read.samples.files import SPLIT_NAME, Split, nearest, rollout_files
from worker.read.samples.index import BYTES_A_LOOK, SHELF, FileIndex, Shelf
from worker.read.samples.rows import Outcome, Sample
from worker.screen import folded

SEARCHED_A_LOOK = 8 * 1024 * 1024
"""Bytes of rows that a text search reads before it answers."""
HISTORY_A_LOOK = 3 * BYTES_A_LOOK
"""Bytes of files that a history reads through before it answers."""
MOST_SHOWN = 100
MOST_STEPS = 40
"""Steps of one page of a history."""
MOST_OF_A_STEP = 16
"""Completions of the prompt that a history shows of one step."""

SplitName = Annotated[str, Field(pattern=rf"^{SPLIT_NAME}$")]
"""pool, select, report, or the name of a bench."""
_Real = Annotated[float, Field(allow_inf_nan=False)]


class Wanted(BaseModel):
    """Which completions. All given conditions hold at once."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    split: SplitName | None = None
    """pool, select, report or the name of a bench; pool by default, where there is one."""
    step: int | None = Field(None, ge=0, le=10**12)
    """The newest by default; of a step without a file the one before it."""
    low: _Real | None = None
    """Least reward."""
    high: _Real | None = None
    """Highest reward."""
    reason: str | None = Field(None, max_length=100)
    right: bool | None = None
    """Only those that solved their task, or only those that were judged and did not."""
    truncated: bool = False
    """Only those that ran into the length limit."""
    unparsed: bool = False
    """Only those from which no answer could be read."""
    tied: bool = False
    """Only prompts whose completions all got the same reward."""
    changed: Literal["gained", "lost"] | None = None
    """Of held-out rows: solved at this step and not at step 0 (gained), or the other way round."""
    source: str | None = Field(None, max_length=40)
    """Only prompts of this source of a mixture."""
    id: str | None = Field(None, max_length=1000)
    """Only the completions of this prompt."""
    q: str | None = Field(None, max_length=200)
    """Text in prompt (or record), completion or answer; case does not matter."""
    after: int = Field(-1, ge=-1, le=10**12)
    """Only rows behind this one."""
    row: int | None = Field(None, ge=0, le=10**12)
    """The page on which this row stands, instead of `after`; a text search begins at it."""
    limit: int = Field(24, ge=1, le=MOST_SHOWN)

    @property
    def narrowed(self) -> bool:
        """Some condition beside step and split."""
        named = (self.low, self.high, self.reason, self.id, self.q, self.changed, self.source)
        switched = self.truncated or self.unparsed or self.tied or self.right is not None
        return any(named) or switched or self.low == 0


class SamplePage(BaseModel):
    """One page of completions, in the order of their file."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    split: str | None
    step: int | None
    splits: dict[str, list[int]]
    """Every step that has a file."""
    samples: list[Sample]
    matched: int
    """Rows that meet the conditions, text aside."""
    total: int
    """Rows of the file."""
    looked: int
    """Rows that a text search has read for this page."""
    next_after: int | None
    """`after` of the next page; null on the last."""
    previous: int | None
    """The row before this page; null on the first, and in a text search."""
    reasons: dict[str, int]
    """Why rows of this file earned what they earned, most frequent first."""
    truncated: int
    unparsed: int
    right: int
    wrong: int
    """Judged, and not right."""
    gained: int | None
    """Held-out rows solved now and not at step 0; null without such a gate."""
    lost: int | None
    tied: int
    """Prompts of this file that gave nothing to rank."""
    groups: int
    """Prompts of this file."""
    damaged: int
    """Lines that hold no completion."""
    read_share: float
    """How much of the file was read so far: a very large one takes several looks."""


class HistoryPage(BaseModel):
    """One prompt over the steps, oldest first."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    split: str
    id: str
    samples: list[Sample]
    steps: int
    """Steps that have a file of this split."""
    looked: int
    """Steps looked at."""
    next_before: int | None
    """`before` of the page with older steps; null on the last."""


def find_samples(run_dir: Path, wanted: Wanted, shelf: Shelf = SHELF) -> SamplePage:
    """One page; empty for a run that has written nothing."""
    files = rollout_files(run_dir)
    split = wanted.split if wanted.split in files else next(iter(files), None)
    if wanted.split is not None and wanted.split not in files:
        split = wanted.split  # asked for by name: an empty page, not another split
    step = nearest(files.get(split, {}), wanted.step) if split else None
    splits = {name: list(steps) for name, steps in files.items()}
    if split is None or step is None:
        return _nothing(split, splits)
    index = shelf.index(files[split][step], split, step)
    index.look(BYTES_A_LOOK)
    before = _before(files[split], index, shelf)
    every = list(_matching(index, wanted, before))
    matching = every[_begin(every, wanted) :]
    samples, last, looked = _read(index, matching, wanted)
    rest = bool(matching) and last is not None and last < matching[-1]
    earlier = len(every) - len(matching)
    outcomes = [fact.outcome for fact in index.facts]
    gained, lost = _moved(outcomes, before)
    return SamplePage(
        split=split,
        step=step,
        splits=splits,
        samples=samples,
        matched=len(every),
        total=len(index.facts),
        looked=looked,
        next_after=last if rest else None,
        previous=every[earlier - 1] if earlier and not wanted.q else None,
        reasons=dict(Counter(one.reason for one in outcomes).most_common()),
        truncated=sum(one.truncated for one in outcomes),
        unparsed=sum(one.unparsed for one in outcomes),
        right=sum(one.right is True for one in outcomes),
        wrong=sum(one.right is False for one in outcomes),
        gained=gained,
        lost=lost,
        tied=sum(index.tied(name) for name in index.groups),
        groups=len(index.groups),
        damaged=index.damaged,
        read_share=index.read_to / index.size if index.size else 1.0,
    )


def find_history(
    run_dir: Path, split: str, name: str, *, before: int | None = None, shelf: Shelf = SHELF
) -> HistoryPage:
    """What the weights of each step answered to one prompt."""
    files = rollout_files(run_dir).get(split, {})
    behind = [step for step in files if before is None or step < before]
    found: list[Sample] = []
    left, looked = HISTORY_A_LOOK, 0
    for step in behind[: -MOST_STEPS - 1 : -1]:
        index = shelf.index(files[step], split, step)
        left -= index.look(BYTES_A_LOOK)
        places = index.groups.get(name, [])[:MOST_OF_A_STEP]
        found += [one for place in reversed(places) if (one := index.sample(place)) is not None]
        looked += 1
        if left <= 0:
            break
    oldest = behind[-looked] if looked else None
    return HistoryPage(
        split=split,
        id=name,
        samples=found[::-1],
        steps=len(files),
        looked=looked,
        next_before=oldest if looked < len(behind) else None,
    )


def samples_at(path: Path, split: str, step: int, places: Sequence[int]) -> list[Sample]:
    """Rows of a file by their places, which rise; fewer where it does not hold them all."""
    index = SHELF.index(path, split, step)
    while places and len(index.facts) <= places[-1] and index.look(BYTES_A_LOOK):
        pass
    known = [place for place in places if place < len(index.facts)]
    return [index.as_sample(place, row) for place, row in index.rows(known)]


def every_sample(run_dir: Path, last_step: int | None = None) -> Iterator[Sample]:
    """Every completion that a run has stored, by split, step and place, a few of them held.

    `last_step`: the step that the run stands at. What it once sampled behind that, an attempt that
    was resumed from before has made void.
    """
    for split, files in rollout_files(run_dir).items():
        for step, path in files.items():
            if last_step is None or step <= last_step:
                yield from _all_of(FileIndex(path, split, step))


def _all_of(index: FileIndex) -> Iterator[Sample]:
    while index.look(BYTES_A_LOOK):
        pass
    for first in range(0, len(index.facts), _AT_ONCE):
        places = range(first, min(first + _AT_ONCE, len(index.facts)))
        yield from (index.as_sample(place, row) for place, row in index.rows(list(places)))


_AT_ONCE = 100


def _begin(every: Sequence[int], wanted: Wanted) -> int:
    """Where in the matching rows a page begins."""
    if wanted.row is None:
        return bisect_right(every, wanted.after)
    at = bisect_left(every, wanted.row)
    return at if wanted.q else at // wanted.limit * wanted.limit


def _moved(
    outcomes: Sequence[Outcome], before: Mapping[str, bool | None]
) -> tuple[int, int] | tuple[None, None]:
    """Rows solved at this step and not at step 0, and the other way round."""
    if not before:
        return None, None
    sides = Counter((before.get(one.id), one.success) for one in outcomes)
    return sides[False, True], sides[True, False]


def _before(files: Mapping[int, Path], index: FileIndex, shelf: Shelf) -> dict[str, bool | None]:
    """Of each held-out row whether step 0 solved it."""
    if index.split == Split.POOL or index.step == 0 or 0 not in files:
        return {}
    first = shelf.index(files[0], index.split, 0)
    first.look(BYTES_A_LOOK)
    return {fact.outcome.id: fact.outcome.success for fact in first.facts}


def _matching(index: FileIndex, wanted: Wanted, before: Mapping[str, bool | None]) -> Iterator[int]:
    if wanted.id is not None:
        places: Iterator[int] = iter(index.groups.get(wanted.id, ()))
    else:
        places = iter(range(len(index.facts)))
    return (
        place
        for place in places
        if _meets(index.facts[place].outcome, wanted)
        and _changed(index.facts[place].outcome, wanted, before)
        and _ranked(index, place, wanted)
    )


def _meets(fact: Outcome, wanted: Wanted) -> bool:
    reward = fact.reward
    if wanted.low is not None and (reward is None or reward < wanted.low):
        return False
    if wanted.high is not None and (reward is None or reward > wanted.high):
        return False
    if wanted.reason is not None and fact.reason != wanted.reason:
        return False
    if wanted.right is not None and fact.right is not wanted.right:
        return False
    return (fact.truncated or not wanted.truncated) and (fact.unparsed or not wanted.unparsed)


def _changed(fact: Outcome, wanted: Wanted, before: Mapping[str, bool | None]) -> bool:
    if wanted.source is not None and not fact.id.startswith(f"{wanted.source}/"):
        return False
    if wanted.changed is None:
        return True
    sides = (False, True) if wanted.changed == "gained" else (True, False)
    return (before.get(fact.id), fact.success) == sides


def _ranked(index: FileIndex, place: int, wanted: Wanted) -> bool:
    return not wanted.tied or index.tied(index.facts[place].outcome.id)


def _read(
    index: FileIndex, places: list[int], wanted: Wanted
) -> tuple[list[Sample], int | None, int]:
    """Rows of a page, the last place looked at, and how many rows were read."""
    needle = folded(wanted.q or "")
    found: list[Sample] = []
    last, looked, left = None, 0, SEARCHED_A_LOOK
    for place, row in index.rows(places):
        last, looked = place, looked + 1
        left -= index.facts[place].size
        if not needle or _says(row, needle):
            found.append(index.as_sample(place, row))
        if len(found) == wanted.limit or left <= 0:
            break
    return found, last, looked


def _says(row: Mapping[str, Any], needle: str) -> bool:
    texts = (row.get(name) for name in ("text", "prompt", "answer", "record"))
    return any(needle in folded(text) for text in texts if isinstance(text, str))


def _nothing(split: str | None, splits: Mapping[str, list[int]]) -> SamplePage:
    return SamplePage(
        split=split,
        step=None,
        splits=dict(splits),
        samples=[],
        matched=0,
        total=0,
        looked=0,
        next_after=None,
        previous=None,
        reasons={},
        truncated=0,
        unparsed=0,
        right=0,
        wrong=0,
        gained=None,
        lost=None,
        tied=0,
        groups=0,
        damaged=0,
        read_share=1.0,
    )
