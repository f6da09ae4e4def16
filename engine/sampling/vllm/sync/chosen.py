"""The mode of a run: full, adapter, or adapter until it fails.

An adapter that the servers do not take (a DoRA, a layer that vLLM has no LoRA for) is the reason
for the fallback; a server that is gone is none. Once fallen back, a run stays with full sync, also
after a resume: its checkpoints keep `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.sampling.vllm.endpoint import ServerError
from engine.sampling.vllm.sync.adapter import AdapterSync
from engine.sampling.vllm.sync.full import FullSync
from engine.sampling.vllm.sync.proof import Proof, Synced, SyncError

Warn = Callable[[str, str], None]
"""`(code, text)`: a warning among the run's events."""


class ChosenSync:
    """One of the two at a time, behind the same calls."""

    def __init__(
        self,
        proof: Proof,
        *,
        adapter: AdapterSync | None,
        full: FullSync | None,
        warn: Warn,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """`adapter` None: full sync from the start; `full` None: no fallback. `state`: what an
        earlier attempt's said.
        """
        if adapter is None and full is None:
            raise ValueError("neither a full nor an adapter sync")
        self._proof = proof
        self._adapter = adapter
        self._full = full
        self._warn = warn
        self._fell_back: str | None = (state or {}).get("fell_back")

    @property
    def state(self) -> dict[str, Any]:
        """For a checkpoint and the run card: the mode in use, and why adapters were given up."""
        mode = "full" if self._using is self._full else "adapter"
        return {"mode": mode, "fell_back": self._fell_back}

    @property
    def serves(self) -> str:
        """What completions are asked for under."""
        return self._using.serves

    def bring(self, load: Callable[[Path], None]) -> Synced | None:
        """As the mode in use has it. Raises SyncError, with what to set, where adapters fail and
        nothing is fallen back to.
        """
        using = self._using
        try:
            return using.bring(load)
        except ServerError as error:
            if using is self._full or not self._alive():
                raise
            return self._fall_back(error, load)

    def still_ours(self) -> None:
        """Raises ServerError when the servers no longer hold what was proven."""
        self._using.still_ours()

    def forget(self) -> None:
        """The servers were started anew."""
        for sync in (self._adapter, self._full):
            if sync is not None:
                sync.forget()

    def write(self) -> Path | None:
        """The adapter's folder, which a server is started with; None where it needs none."""
        return self._adapter.write() if self._adapter and self._using is self._adapter else None

    def close(self) -> None:
        """No call after this one."""
        if self._full is not None:
            self._full.close()

    # --- inside ---

    @property
    def _using(self) -> AdapterSync | FullSync:
        given_up = self._adapter is None or (self._fell_back is not None and self._full is not None)
        found = self._full if given_up else self._adapter
        assert found is not None
        return found

    def _alive(self) -> bool:
        return all(server.healthy() for server in self._proof.servers)

    def _fall_back(self, error: ServerError, load: Callable[[Path], None]) -> Synced | None:
        said, _, remedy = str(error).partition("; ")
        if self._full is None:
            more = "set vllm.sync.mode: full, or vllm.sync.fallback_to_full: true"
            raise SyncError(
                f"adapter sync failed: {said}; {remedy}{', or ' if remedy else ''}{more}"
            ) from error
        self._fell_back = said
        self._warn("SYNC_FALLBACK", f"adapter sync failed, full sync from here on: {said}")
        return self._full.bring(load)
