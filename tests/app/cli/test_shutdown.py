"""The real `cockpit serve` ends at once, however many pages listen to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
import pytest

from tests.deadline import eventually
from tests.door import bearer
from worker.db.connection import Database
from worker.settings import WorkerSettings

STREAMS = 20


@pytest.mark.requirement("UI-11")
def test_a_cockpit_with_twenty_open_streams_is_gone_within_three_seconds(
    settings: WorkerSettings, db: Database
) -> None:
    """SIGTERM, and nobody has to close a page first; each stream ends, none is left hanging."""
    serving = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
        env=os.environ | {"NIGHTLANE_DATA_DIR": str(settings.data_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    url = serving.stdout.readline().strip().rstrip("/")
    limits = httpx.Limits(max_connections=STREAMS + 1)
    with ExitStack() as stack:
        known = httpx.Client(base_url=url, headers=bearer(db), trust_env=False, limits=limits)
        client = stack.enter_context(known)
        streams = [
            stack.enter_context(client.stream("GET", "/api/v1/stream", timeout=10))
            for _ in range(STREAMS)
        ]
        listening = [stream.iter_raw() for stream in streams]  # let go, each would close its stream
        assert all(b"beat" in next(events) for events in listening)
        eventually(
            lambda: client.get("/healthz").json()["viewers"] == STREAMS, "all have joined", 20
        )

        begun = time.monotonic()
        serving.send_signal(signal.SIGTERM)
        _, said = serving.communicate(timeout=30)
        took = time.monotonic() - begun

    assert took < 3.0
    up, sign_in = said.strip().splitlines()
    assert up == "the board is up; Ctrl-C stops the page, never a run"
    assert sign_in.startswith(f"sign in, once, within 15 minutes: {url}/enter/")
