"""The look of a run: one of ten slots of colour, dashes and shape, the same on every page.

A run's slot follows from its number alone. Where two runs that are shown together have the same
one, the later takes the next that is free. Colours are `--r1` to `--r10` of cockpit.css.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Slot:
    """How the lines and marks of one run are drawn."""

    n: int
    """1 to 10."""
    dash: tuple[int, ...]
    shape: str
    """The mark as SVG, in a box of 14 x 14."""

    @property
    def colour(self) -> str:
        """The name that charts know the colour by."""
        return f"r{self.n}"

    @property
    def mark(self) -> Markup:
        """The mark by itself; words beside it say which run it is."""
        shape = Markup(self.shape)  # noqa: S704  # one of the ten below
        return _MARK.format(self.n, shape)


_MARK = Markup('<svg class="mark f{0} c{0}" viewBox="0 0 14 14" aria-hidden="true">{1}</svg>')
_SHAPES = (
    '<circle cx="7" cy="7" r="4"/>',
    '<rect x="3.4" y="3.4" width="7.2" height="7.2"/>',
    '<path d="M7 2.4 11.6 11H2.4z"/>',
    '<path d="M7 1.8 12.2 7 7 12.2 1.8 7z"/>',
    '<path d="M7 11.6 2.4 3h9.2z"/>',
    '<path class="open" d="M7 2.4v9.2M2.4 7h9.2"/>',
    '<path class="open" d="M3.4 3.4l7.2 7.2M10.6 3.4l-7.2 7.2"/>',
    '<circle class="open" cx="7" cy="7" r="3.6"/>',
    '<rect class="open" x="3.4" y="3.4" width="7.2" height="7.2"/>',
    '<rect x="1.8" y="5.6" width="10.4" height="2.8"/>',
)
_DASHES: tuple[tuple[int, ...], ...] = (
    (),
    (7, 3),
    (2, 3),
    (9, 3, 2, 3),
    (4, 2),
    (12, 4),
    (2, 2, 6, 2),
    (1, 3),
    (6, 2, 2, 2, 2, 2),
    (14, 3),
)
SLOTS = tuple(
    Slot(n, dash, shape) for n, (dash, shape) in enumerate(zip(_DASHES, _SHAPES, strict=True), 1)
)


def slot_of(job_id: int) -> Slot:
    """The slot of a run that is shown by itself, or in a list of many."""
    return SLOTS[(job_id - 1) % len(SLOTS)]


def slots(job_ids: Iterable[int]) -> dict[int, Slot]:
    """The slot of each of the runs that are shown together; from the eleventh on they repeat.

    >>> [slot.n for slot in slots([1, 2, 11]).values()]
    [1, 2, 3]
    """
    found: dict[int, Slot] = {}
    for job_id in job_ids:
        taken = {slot.n for slot in found.values()} if len(found) < len(SLOTS) else set()
        around = (slot_of(job_id + step) for step in range(len(SLOTS)))
        found[job_id] = next(slot for slot in around if slot.n not in taken)
    return found
