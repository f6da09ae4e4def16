"""What a server must be started with, so that weights reach it the way a run sends them.

Torch-free; starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from engine.sampling.vllm import transfer

Mode = Literal["full", "adapter"]
Device = Literal["cpu", "cuda", "cuda-shared"]
"""`cuda-shared`: a GPU that trainer and server both use."""

_BACKENDS: Mapping[Device, str] = {"cpu": "nightlane", "cuda": "nccl", "cuda-shared": "ipc"}
_FOLDER = Path(transfer.__file__).parent


class LaunchNeeds(NamedTuple):
    """Beside what the run's numbers need."""

    options: list[str]
    environment: dict[str, str]


def launch_needs(
    mode: Mode, device: Device, *, may_fall_back: bool = False, sleeps: bool = False
) -> LaunchNeeds:
    """For a server of the run's own. `may_fall_back`: adapters first, merged weights after them;
    `sleeps`: it will be asked to give its memory back.

    >>> launch_needs("adapter", "cpu").options
    []
    >>> launch_needs("full", "cuda").options
    ['--weight-transfer-config', '{"backend": "nccl"}']
    """
    # The routes for weights, caches and checksums; they are for whoever reaches the server, which
    # is why it listens on this machine alone.
    environment = {"VLLM_SERVER_DEV_MODE": "1"}
    options = ["--enable-sleep-mode"] if sleeps else []
    if mode == "adapter":
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        if not may_fall_back:
            return LaunchNeeds(options, environment)
    options += ["--weight-transfer-config", f'{{"backend": "{_BACKENDS[device]}"}}']
    if device == "cpu":
        options += ["--worker-extension-cls", "nightlane_weights.Worker"]
        before = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_FOLDER), before]))
    if device == "cuda-shared":
        # Handles of GPU memory travel pickled; the server trusts who may reach it.
        environment["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    return LaunchNeeds(options, environment)
