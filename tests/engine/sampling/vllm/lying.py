"""The lying server as a process of the tests: started, told what to lie, ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engine.contract.serving import Serving
from engine.sampling.vllm.checks import ReplyCheck
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Limits, Request
from engine.sampling.vllm.infer import InferApi
from tests.deadline import eventually
from tests.engine.chat_model import END
from tests.engine.sampling.vllm import liar
from tests.engine.sampling.vllm.conftest import free_port

ALWAYS = 10**6
PATIENCE = Limits(timeout_s=1.0, infer_timeout_s=1.0)
_HTTP = httpx.Client(trust_env=False, verify=False)  # noqa: S501 - no TLS; certificates take time
UNLIMITED = Limits(timeout_s=1.0, infer_timeout_s=None)


@dataclass
class Liar:
    """One process."""

    tokenizer: Any
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [sys.executable, liar.__file__, str(self.port), str(self.folder / "tokenizer.json")]
        self.process = subprocess.Popen(words)
        eventually(self._up, "the lying server is up")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """As Ctrl-Z does: connections are taken, nobody answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def lie(self, lie: str, times: int = ALWAYS) -> None:
        """For the next calls; what was asked before is forgotten."""
        body = {"lie": lie, "times": times}
        _HTTP.post(f"{self.root}/lie", json=body).raise_for_status()

    def asked(self) -> list[dict[str, Any]]:
        """Every call since `lie`: {path, key, body}."""
        found: list[dict[str, Any]] = _HTTP.get(f"{self.root}/asked").json()
        return found

    def openai(self, limits: Limits = PATIENCE) -> ServerApi:
        return ServerApi(Serving(url=f"{self.root}/v1"), limits=limits, check=self._check)

    def infer(self, limits: Limits = PATIENCE, *, batch_size: int = 4, path: str = "") -> InferApi:
        return InferApi(self.root + path, batch_size=batch_size, limits=limits, check=self._check)

    def requests(self, count: int, **settings: Any) -> list[Request]:
        """With different prompts; seeds are a base and their places."""
        end: int = self.tokenizer.convert_tokens_to_ids(END)
        return [
            Request(
                **{
                    "prompt_ids": (1, 2, 30 + place), "k": 1, "seed": 7000 + place, "temp": 1.0,
                    "max_new_tokens": 24, "end_ids": (end,), "id": f"q{place}", "stop": (END,),
                    "messages": ({"role": "user", "content": f"1 2 {30 + place}"},),
                    **settings,
                }
            )
            for place in range(count)
        ]  # fmt: skip

    @property
    def _check(self) -> ReplyCheck:
        return ReplyCheck(len(self.tokenizer), self.tokenizer)

    def _up(self) -> bool:
        return self.openai().healthy()


@contextmanager
def running(tokenizer: Any, folder: Path) -> Iterator[Liar]:
    """Up, and gone afterwards."""
    one = Liar(tokenizer, folder, free_port())
    one.start()
    try:
        yield one
    finally:
        one.kill()
