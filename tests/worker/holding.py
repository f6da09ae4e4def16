"""The lane, held by a test: what an earlier holder left running is a process of this machine."""

from __future__ import annotations

from functools import partial

from worker.attempt.runner.local import LocalRunner
from worker.lane import lease

hold_lane = partial(lease.hold_lane, end=LocalRunner.kill)
