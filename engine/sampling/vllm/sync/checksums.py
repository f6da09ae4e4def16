"""Checksums of what was sent against those of what a server holds, where their names map.

A server fuses some tensors, packs others for its kernels and shards them over GPUs; which of its
parameters hold our bytes is learnt at a sync that was proven, and from then on each of them must
hold those that were sent last. So a half load is found that log-probabilities are too coarse for,
and a server's own layout is never taken for one. On a CPU vLLM keeps no linear layer as a
parameter; there norms, biases and embeddings are compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from engine.models.merged import MergedWeights, Named
from engine.sampling.vllm.sync.proof import SyncError, raw

_FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
"""What vLLM puts into one parameter, one behind the other, in the order of a checkpoint."""
_WRAPPINGS = frozenset({"model", "language_model", "base_layer"})
"""Parts of a name that say where a model keeps its layers, which the two keep differently."""


class Hashed:
    """The weights, hashed as they pass; each pass begins anew."""

    def __init__(self, weights: MergedWeights) -> None:
        self._weights = weights
        self._passing: dict[str, Any] = {}

    def __iter__(self) -> Named:
        self._passing = defaultdict(hashlib.sha256)
        for name, tensor in self._weights:
            self._passing[_key(name)].update(raw(tensor))
            yield name, tensor

    @property
    def digests(self) -> Mapping[str, str]:
        """Of the last pass, by plain name."""
        return {key: passing.hexdigest() for key, passing in self._passing.items()}


class Checksums:
    """Of one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: frozenset[str] = frozenset()

    def compare(self, sent: Mapping[str, str], told: Mapping[str, str]) -> None:
        """Raises SyncError for a parameter that held our bytes once and does not hold these."""
        found = _by_name(told)
        other = sorted(key for key in self._known if found.get(key) != sent.get(key))
        if other:
            raise SyncError(
                f"{self._url} took the weights and holds others in {len(other)} of "
                f"{len(self._known)} parameters, as in {other[0]}; start it anew"
            )

    def learn(self, sent: Mapping[str, str], told: Mapping[str, str]) -> None:
        """After a sync that was proven: these parameters can be compared from now on."""
        found = _by_name(told)
        self._known |= {key for key, digest in sent.items() if found.get(key) == digest}


def _by_name(told: Mapping[str, str]) -> dict[str, str]:
    """By plain name; what is sharded over workers is left out."""
    by_name: dict[str, set[str]] = defaultdict(set)
    for name, digest in told.items():
        by_name[_key(name.rpartition(":")[2])].add(digest)
    return {key: next(iter(digests)) for key, digests in by_name.items() if len(digests) == 1}


def _key(name: str) -> str:
    """What both sides call a parameter.

    >>> _key("model.language_model.layers.0.self_attn.k_proj.weight")
    'layers.0.self_attn.qkv_proj.weight'
    """
    return ".".join(_FUSED.get(part, part) for part in name.split(".") if part not in _WRAPPINGS)
