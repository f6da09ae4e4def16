"""The adapter alone: a folder, a load in place, and the proof that it answers.

What is served is known by a hash of the weights themselves, so every way of changing them (a step,
a warm-up, a checkpoint taken back) is seen, and weights that are served already are not sent again.
Each adapter gets a path of its own: vLLM keys its prefix cache by name and path, and would answer
from the old one's keys and values under the same; the path is its version too. Knows no process.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.models import lora
from engine.sampling.vllm.endpoint import ServerError
from engine.sampling.vllm.sync.proof import Proof, Synced, SyncError, digest_of
from engine.sampling.vllm.sync.routes import WeightRoutes, each

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, which nobody else may enter
"""A file system in memory, where there is one."""


class AdapterSync:
    """`bring()` makes the servers answer with the policy's adapter, or raises ServerError."""

    def __init__(
        self, proof: Proof, *, name: str, folder: Path, routes: Sequence[WeightRoutes] = ()
    ) -> None:
        """`routes`: of servers that have them, whose caches are emptied after each load; the path
        tells new keys and values from old ones without.
        """
        self._proof = proof
        self._policy = proof.policy
        self.serves = name
        """What completions are asked for under."""
        self._folder = folder
        self._routes = tuple(routes)
        self._served: str | None = None
        """Hash of the weights that were proven to be served."""

    @property
    def path(self) -> Path | None:
        """The folder of what is served; None before the first sync."""
        return None if self._served is None else self._place(self._served)

    def write(self) -> Path:
        """The policy's adapter as a PEFT folder, whole or not at all."""
        place = self._place(digest_of(self._policy))
        if not place.exists():
            temporary = self._folder / ".adapter.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            lora.save(self._policy.model, temporary)
            temporary.rename(place)
        return place

    def bring(self, load: Callable[[Path], None]) -> Synced | None:
        """None when the policy's weights are served already. `load` makes each server take one.

        Raises SyncError when a server does not answer with these weights afterwards, ServerError
        when it is gone.
        """
        digest = digest_of(self._policy)
        if digest == self._served:
            return None
        place = self.write()
        size = sum(file.stat().st_size for file in place.iterdir())

        def send() -> int:
            load(place)
            self.listed()
            each(self._routes, lambda server: server.reset_caches())
            return size * len(self._proof.servers)

        self._served = None
        synced = self._proof.arrive(lambda: self.serves, send)
        self._served = digest
        for old in self._folder.glob("adapter-*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
        return replace(synced, mode="adapter")

    def forget(self) -> None:
        """The servers were started anew: nothing is served yet."""
        self._served = None

    def still_ours(self) -> None:
        """Raises ServerError when somebody else had another adapter loaded under our name."""
        if self._served is None:
            return
        place = str(self._place(self._served))
        for server in self._proof.servers:
            roots = [model.root for model in server.models() if model.name == self.serves]
            if roots != [place]:
                raise ServerError(
                    f"{server.url} serves {roots[0] if roots else 'nothing'} as {self.serves!r}, "
                    "not this run's adapter; give each run a server of its own "
                    "(NIGHTLANE_VLLM_URL), or another NIGHTLANE_LORA_NAME"
                )

    def listed(self) -> None:
        """Raises SyncError when the adapter's name is not served at all."""
        for server in self._proof.servers:
            if self.serves not in {model.name for model in server.models()}:
                raise SyncError(
                    f"{server.url} lists no adapter {self.serves!r}; start it with --enable-lora, "
                    "and with this run's {adapter} in NIGHTLANE_SERVE_CMD"
                )

    # --- inside ---

    def _place(self, digest: str) -> Path:
        return self._folder / f"adapter-{digest[:16]}"


def memory_folder(otherwise: Path) -> Path:
    """Where adapters of this process may lie: in memory where this machine has such a file system.

    Not made here; whoever makes it lets nobody else in (mode 0700), and takes it away. What a
    killed process left is taken away by the next one.
    """
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return otherwise
    ours = f"nightlane-{os.getuid()}-"
    for left in MEMORY.glob(f"{ours}*"):
        owner = left.name.removeprefix(ours).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return MEMORY / f"{ours}{os.getpid()}-{secrets.token_hex(4)}"
