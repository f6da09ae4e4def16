"""Who may start jobs unasked: the answer for a scheduled drain, and for people who wait.

A person's `cockpit drain` is an order and never asks. Armed means: the operator gave the tick an
interval (`NIGHTLANE_TICK_MINUTES`); without one a scheduled drain only rescues.
"""

from __future__ import annotations

from worker.settings import WorkerSettings


def armed(settings: WorkerSettings) -> bool:
    """Whether a scheduled drain may run the queue."""
    return settings.tick_minutes > 0
