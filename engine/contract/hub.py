"""Models by hub id: is one on this machine, may it be fetched, can the hub be reached at all?

Knows the hub's cache folder and its variables; downloads nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies

from engine.contract.errors import ConfigProblem
from engine.contract.paths import at_home

_OFF = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_YES = frozenset({"1", "ON", "YES", "TRUE"})
"""As Hugging Face's libraries read a switch."""
_CONNECT_S = 5.0


def in_hub_cache(hub_id: str) -> bool:
    """Whether a download of this model stands in the cache of Hugging Face's libraries."""
    try:
        home = at_home(os.environ.get("HF_HOME") or "~/.cache/huggingface")
        cache = at_home(os.environ.get("HF_HUB_CACHE") or home / "hub")
    except ValueError:
        return False
    snapshots = cache / f"models--{hub_id.replace('/', '--')}" / "snapshots"
    return any(snapshots.glob("*/config.json"))


def downloads_off() -> str | None:
    """The variable that forbids downloads; None while none does."""
    return next((name for name in _OFF if os.environ.get(name, "").upper() in _YES), None)


def hub_problems(field: str, hub_id: str) -> Sequence[ConfigProblem]:
    """A model that is neither here nor may be fetched."""
    off = downloads_off()
    if off is None or in_hub_cache(hub_id):
        return []
    problem = f"is no folder here and not in the hub's cache, and {off} forbids its download"
    return [ConfigProblem(field, hub_id, problem, _REMEDY)]


def hub_cautions(field: str, hub_id: str) -> Sequence[ConfigProblem]:
    """A model whose gigabytes would come as the run starts; perhaps a folder was meant."""
    if in_hub_cache(hub_id):
        return []
    problem = "is no folder here: taken as a hub id, and the run begins with its download"
    return [ConfigProblem(field, hub_id, problem, _REMEDY)]


_REMEDY = "name a model folder that is here, or fetch it first: hf download ID"


def unreachable(hub_id: str) -> str | None:
    """Why a model that is not here cannot come either; None where it may.

    The hub's own library would try for most of a minute. Behind a proxy nothing is asked.
    """
    if in_hub_cache(hub_id) or os.path.isdir(hub_id) or getproxies():  # noqa: PTH112 - any text
        return None
    off = downloads_off()
    if off is not None:
        return f"it is no folder here and not in the hub's cache, and {off} forbids its download"
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = 80 if address.scheme == "http" else 443
    try:
        place = (address.hostname or "", address.port or port)
        socket.create_connection(place, timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"it is no folder here, and {address.hostname} cannot be reached: {reason}"
    return None
