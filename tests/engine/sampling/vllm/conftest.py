"""Servers for the serving lane: the stand-in always, and the real vLLM where one is named.

`make test-vllm` sets NIGHTLANE_TEST_VLLM to the Python of an environment with vLLM; then tests run
against both. Each start of the real one takes half a minute, so what starts it often is run in the
long form only (NIGHTLANE_LONG=1).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract.serving import Serving
from tests.engine.chat_model import save_chat_model
from tests.engine.killing import LONG_FORM
from tests.engine.sampling.vllm import stand_in

STAND_IN = f"{sys.executable} {stand_in.__file__} {{base}} {{options}}"
REAL = os.environ.get("NIGHTLANE_TEST_VLLM")
VLLM = f"{REAL} -m vllm.entrypoints.openai.api_server --model {{base}} {{options}} --enforce-eager"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lane_of(command: str, *, timeout_s: float = 180.0) -> Serving:
    """On a port of its own."""
    url = f"http://127.0.0.1:{free_port()}/v1"
    return Serving(url=url, serve_cmd=command, timeout_s=timeout_s)


SERVERS: list[Any] = ["stand-in"]
OFTEN: list[Any] = ["stand-in"]
"""Servers of tests that start one each time."""
if REAL:
    SERVERS.append(pytest.param("vllm", marks=pytest.mark.vllm))
    if LONG_FORM:
        OFTEN.append(SERVERS[1])


def serving_by(server: str) -> Serving:
    """Settings of a lane that starts this server."""
    return lane_of(VLLM, timeout_s=900) if server == "vllm" else lane_of(STAND_IN)


@pytest.fixture(scope="session", params=SERVERS)
def serving(request: pytest.FixtureRequest) -> Serving:
    """Settings of a lane that starts the one or the other."""
    return serving_by(request.param)


@pytest.fixture(scope="session")
def chat_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two end tokens, id 0 a word, and a generation config full of what nobody asked for.

    On a CPU vLLM serves no attention heads of less than 32 numbers.
    """
    return save_chat_model(tmp_path_factory.mktemp("served"), heads=2)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which something accepts connections and never says a word."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield int(silent.getsockname()[1])
