"""The whole product with a real vLLM: `make test-vllm`. Without one there is nothing to collect."""

from __future__ import annotations

from tests.engine.sampling.vllm.conftest import REAL

collect_ignore_glob = [] if REAL else ["test_*.py"]
