"""Every page there is, once: what the screenshots take and what the tests of all pages open."""

from __future__ import annotations

from dataclasses import dataclass

from tests.filled import Filled


@dataclass(frozen=True)
class Place:
    """One page; `{name}` in its address is the number of a job of `tests.filled`."""

    name: str
    address: str
    empty: bool = True
    """Whether there is such a page while nothing was queued."""

    def at(self, filled: Filled | None) -> str:
        """Its address in a filled directory, or in an empty one."""
        if filled is None:
            return self.address
        return self.address.format(**filled.ids, sweep=filled.sweep_id)


PLACES = (
    Place("board", "/"),
    Place("board-failed", "/?state=failed", empty=False),
    Place("run-live", "/jobs/{running}", empty=False),
    Place("run-gain", "/jobs/{gain}", empty=False),
    Place("run-crash", "/jobs/{crash}", empty=False),
    Place("run-queued", "/jobs/{too_large}", empty=False),
    Place("chart-table", "/jobs/{gain}/charts/learning", empty=False),
    Place("machine", "/machine"),
    Place("audit", "/audit"),
    Place("new", "/new"),
    Place("help", "/help"),
    Place("stop", "/stop"),
    Place("lost", "/nothing-is-here"),
    Place("queue", "/queue"),
    Place("report", "/report"),
    Place("compare", "/compare"),
    Place("compare-two", "/compare?job={gain}&job={loss}", empty=False),
    Place("compare-sweep", "/compare?sweep={sweep}&sort=-lift", empty=False),
    Place("samples", "/jobs/{gain}/samples", empty=False),
    Place("samples-boxes", "/jobs/{stage2}/samples", empty=False),
    Place("budget", "/budget"),
)
