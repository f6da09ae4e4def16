"""Words for ends of a run that its engine brought about itself, where servers sample for it.

The class of an error carries its word as `cause`; jobs, reports and remedies go by them. Other
words stand where they are found: NO_HEADROOM, COLLAPSED, NOT_PROVEN.
"""

from __future__ import annotations

SERVER_LOST = "SERVER_LOST"
"""Nobody answers at its address any more: the job goes on later."""
SERVER_FAILED = "SERVER_FAILED"
"""It answers, and not with what the run needs."""
FALSE_REPLY = "FALSE_REPLY"
"""An answer that cannot be true."""
STALE_WEIGHTS = "STALE_WEIGHTS"
"""Weights that were sent did not arrive."""
CONTRADICTED = "CONTRADICTED"
"""The trainer's own forward pass says other log-probabilities than the server."""

OF_SERVERS = frozenset({SERVER_LOST, SERVER_FAILED, FALSE_REPLY, STALE_WEIGHTS, CONTRADICTED})
"""Those whose error says what to do about the server; the job's settings are not to blame."""
