"""Bringing the trainer's adapter to the server: a folder, a load, and the proof that it answers.

What is served is known by a hash of the weights themselves, so every way of changing them (a step,
a warm-up, a checkpoint taken back) is seen, and weights that are served already are not sent again.
Each adapter gets a path of its own: vLLM keys its prefix cache by name and path, and would answer
from the old one's keys and values under the same. Knows no process.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.models import lora
from engine.models.policy import Policy
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Request, ServerError
from engine.sampling.vllm.parity import Compared, ParityCheck


@dataclass(frozen=True)
class Synced:
    """One sync that was proven."""

    compared: Compared
    seconds: float


class AdapterSync:
    """`bring()` makes the server answer with the policy's adapter, or raises ServerError.

    `tolerance` is the largest mean difference of log-probabilities, in nats a token.
    """

    def __init__(
        self,
        api: ServerApi,
        policy: Policy,
        witness: ParityCheck,
        *,
        name: str,
        folder: Path,
        tolerance: float,
    ) -> None:
        self._api = api
        self._policy = policy
        self._witness = witness
        self._name = name
        self._folder = folder
        self._tolerance = tolerance
        self._served: str | None = None
        """Hash of the weights that were proven to be served."""

    @property
    def path(self) -> Path | None:
        """The folder of what is served; None before the first sync."""
        return None if self._served is None else self._place(self._served)

    def write(self) -> Path:
        """The policy's adapter as a PEFT folder, whole or not at all."""
        place = self._place(self._digest())
        if not place.exists():
            temporary = self._folder / ".adapter.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            lora.save(self._policy.model, temporary)
            temporary.rename(place)
        return place

    def bring(self, load: Callable[[Path], None]) -> Synced | None:
        """None when the policy's weights are served already. `load` makes the server take a folder.

        Raises ServerError when the server does not answer with these weights afterwards.
        """
        digest = self._digest()
        if digest == self._served:
            return None
        began = time.monotonic()
        place = self.write()
        load(place)
        self._served = None
        compared = self._prove()
        self._served = digest
        for old in self._folder.glob("adapter-*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
        return Synced(compared, time.monotonic() - began)

    def forget(self) -> None:
        """Nothing is served any more: its engine was ended."""
        self._served = None

    def still_ours(self) -> None:
        """Raises ServerError when somebody else had another adapter loaded under our name."""
        roots = [model.root for model in self._api.models() if model.name == self._name]
        if self._served is None or roots == [str(self._place(self._served))]:
            return
        raise ServerError(
            f"{self._api.url} serves {roots[0] if roots else 'nothing'} as {self._name!r}, not "
            "this run's adapter; give each run a server of its own (NIGHTLANE_VLLM_URL), or "
            "another NIGHTLANE_LORA_NAME"
        )

    # --- inside ---

    def _prove(self) -> Compared:
        self.listed()
        requests = [
            Request(ids, k=1, seed=0, temp=1.0, max_new_tokens=1, end_ids=(), top=self._witness.top)
            for ids in self._witness.contexts
        ]
        answers = self._api.complete(self._name, requests, at_once=len(requests))
        compared = self._witness.compare([drawn.top[0] for [drawn] in answers])
        if compared.gap > self._tolerance:
            raise ServerError(
                f"{self._api.url} took the adapter of step {self._policy.version} and answers "
                f"{compared.gap:.3g} nats a token away from the trainer's model, more than "
                f"sync_tolerance={self._tolerance:g}; does it serve the same base with the same "
                "precision?"
            )
        if compared.stale:
            raise ServerError(
                f"{self._api.url} took the adapter of step {self._policy.version} and still "
                f"answers with the weights of before: {compared.gap_before:.3g} nats a token away "
                f"from those, {compared.gap:.3g} from the new ones"
            )
        return compared

    def listed(self) -> None:
        """Raises ServerError when the adapter's name is not served at all."""
        if self._name not in {model.name for model in self._api.models()}:
            raise ServerError(
                f"{self._api.url} lists no adapter {self._name!r}; start it with --enable-lora, "
                "and with this run's {adapter} in NIGHTLANE_SERVE_CMD"
            )

    def _place(self, digest: str) -> Path:
        return self._folder / f"adapter-{digest[:16]}"

    def _digest(self) -> str:
        """Of names and bytes of all that trains."""
        digest = hashlib.sha256()
        for name, parameter in self._policy.trainable().items():
            digest.update(name.encode())
            raw = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
            digest.update(raw.numpy().data)
        return digest.hexdigest()
