"""Where the serving lane is and how it is started: what the operator set, told in job.json.

The lane (inference server beside the trainer) samples for kinds that ask for it. Its commands come
from the operator's settings and never from a job. Torch-free; starts nothing.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

DEFAULT_URL = "http://localhost:8000/v1"
"""Where vLLM listens by default, with the prefix of the OpenAI routes."""
DEFAULT_LORA_NAME = "policy"
DEFAULT_GPU_UTIL = 0.55
"""Share of the accelerator that the server may take; the trainer lives beside it."""
DEFAULT_TIMEOUT_S = 900.0
GUARDIAN = "engine/sampling/vllm/supervisor.py"
"""In the command line of the process that ends a server whose engine was killed."""
LORA_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def served_at(url: str) -> str:
    """The address without a slash at its end. Raises ValueError for anything else than http."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
        raise ValueError(f"is no address of a server; write it like {DEFAULT_URL}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"has more than host, port and path; write it like {DEFAULT_URL}")
    return url.rstrip("/")


def readable_command(command: str | None) -> str | None:
    """A command that can be split into words. Raises ValueError for an open quote."""
    if command is not None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"is no command: {error}; close the quote") from None
        if not words:
            return None
    return command


class Serving(BaseModel):
    """The operator's settings of the serving lane, as an engine is told them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = DEFAULT_URL
    lora_name: str = Field(DEFAULT_LORA_NAME, pattern=LORA_NAME_PATTERN)
    gpu_util: float = Field(DEFAULT_GPU_UTIL, gt=0, le=1)
    program: str = "vllm"
    serve_cmd: str | None = None
    stop_cmd: str | None = None
    timeout_s: float = Field(DEFAULT_TIMEOUT_S, gt=0)
    socket: Path | None = None
    """Unix socket to listen on instead of the address: nobody else reaches it."""

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        return served_at(url)

    @property
    def root(self) -> str:
        """The address without the prefix of the OpenAI routes."""
        return self.url.removesuffix("/v1")

    @property
    def shown(self) -> str:
        """Where it is, for a person."""
        return self.url if self.socket is None else f"{self.socket} (a Unix socket)"

    @property
    def here(self) -> bool:
        """Whether the address is one of this machine that nobody else reaches."""
        return urlsplit(self.url).hostname in LOOPBACK

    @property
    def host(self) -> str:
        """What a server of ours binds to: never more than this machine."""
        return "::1" if urlsplit(self.url).hostname == "::1" else "127.0.0.1"

    @property
    def port(self) -> int:
        """Of the address; the scheme's own where it names none."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)
