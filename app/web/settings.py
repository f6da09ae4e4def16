"""What the web process is told: where it listens and by which names it may be called.

Knows nothing of jobs, lanes or data; those are the worker's settings.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.errors import NightlaneError
from engine.contract.paths import at_home
from worker.settings import EnvironmentSettings

_HOST_NAME = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]")


class HostRefusedError(NightlaneError):
    """An address that other machines can reach, where all would travel unencrypted."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"host: {host!r} can be reached from other machines; "
            "use 127.0.0.1 and reach it through an SSH tunnel"
        )


class AppSettings(EnvironmentSettings):
    """Read from the environment; the command line overrides it."""

    host: str = "127.0.0.1"
    """Address to listen on; loopback only."""
    port: int = Field(8765, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    socket: Path | None = None
    """A Unix socket to listen on instead of a port. Only this user can open it (mode 0600), so
    nobody is asked for a token."""
    auth: bool = True
    """Whether a visitor must sign in. Without it every user of the machine can read all answers and
    queue jobs that run as you."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Further names in the Host header that are answered, for a tunnel with a name of its own:
    `box.local,night.example`, without a port."""

    @property
    def locked(self) -> bool:
        """Whether the door asks for a credential: a socket's own mode guards it."""
        return self.auth and self.socket is None

    @property
    def unlocked(self) -> bool:
        """Whether others may come in."""
        return not self.auth and self.socket is None

    @field_validator("socket")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else at_home(path).absolute()

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """A list as people write it; one in JSON is read too."""
        if not isinstance(given, str):
            return given
        if not given.lstrip().startswith("["):
            return [name.strip() for name in given.split(",") if name.strip()]
        try:
            return parse_json(given)
        except UnreadableError:
            # An address of IPv6 stands in brackets too.
            return [name.strip() for name in given.split(",") if name.strip()]

    @field_validator("allowed_hosts")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError(
                    f"{name[:100]!r} is no name of a host; write names with commas between them, "
                    "without http:// and port: box.local,night.example"
                )
        return names


def require_loopback(host: str) -> None:
    """Raises HostRefusedError for every address that is not this machine alone."""
    if host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise HostRefusedError(host)
