"""What the web process is told: where it listens and by which names it may be called.

Knows nothing of jobs, lanes or data; those are the worker's settings.
"""

from __future__ import annotations

import ipaddress

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.contract.errors import NightlaneError


class HostRefusedError(NightlaneError):
    """An address that other machines can reach: nothing there asks a visitor who they are."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"host: {host!r} can be reached from other machines; "
            "use 127.0.0.1 and reach it through an SSH tunnel"
        )


class AppSettings(BaseSettings):
    """Read from the environment; the command line overrides it."""

    model_config = SettingsConfigDict(
        env_prefix="NIGHTLANE_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on; loopback only."""
    port: int = Field(8765, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names in the Host header that are answered, for a tunnel with a name of its own."""


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
