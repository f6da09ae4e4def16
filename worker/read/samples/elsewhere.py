"""The same prompt at another step or in another run: how often it was solved, and what stands
beside one answer to it. Every look is bounded in bytes. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from worker.read.samples.index import BYTES_A_LOOK, SHELF, FileIndex, Shelf
from worker.read.samples.rows import Sample

MOST_OF_A_GROUP = 64
"""Completions of one prompt that are read in full."""


class Tally(NamedTuple):
    """What the weights of one step made of a prompt."""

    step: int
    right: int
    total: int


def tallies(
    files: Mapping[int, Path], split: str, steps: Sequence[int], name: str, shelf: Shelf = SHELF
) -> list[Tally]:
    """Of these steps, those that answered the prompt."""
    left, found = BYTES_A_LOOK, []
    for step in steps:
        index = shelf.index(files[step], split, step)
        left -= index.look(max(left, 0))
        places = index.groups.get(name, ())
        right = sum(index.facts[place].outcome.right is True for place in places)
        if places:
            found.append(Tally(step, right, len(places)))
    return found


def group_of(path: Path, like: Sample, shelf: Shelf = SHELF) -> list[Sample]:
    """All completions of an answer's prompt, itself included, in the order of their file."""
    index = _read(path, like.split, like.step, shelf)
    places = index.groups.get(like.id, [])[:MOST_OF_A_GROUP]
    return [index.as_sample(place, row) for place, row in index.rows(places)]


def counterpart(path: Path, step: int, like: Sample, shelf: Shelf = SHELF) -> Sample | None:
    """The answer to the same prompt in another file: of the same number, else the first.

    None where there is none, or where the prompt of that name asks something else.
    """
    index = _read(path, like.split, step, shelf)
    places = index.groups.get(like.id, [])[:MOST_OF_A_GROUP]
    found = [index.as_sample(place, row) for place, row in index.rows(places)]
    same = [one for one in found if None in {one.prompt, like.prompt} or one.prompt == like.prompt]
    return next((one for one in same if one.sample == like.sample), next(iter(same), None))


def _read(path: Path, split: str, step: int, shelf: Shelf) -> FileIndex:
    index = shelf.index(path, split, step)
    index.look(BYTES_A_LOOK)
    return index
