"""Desc gate: whether a predicted description says the same as the ground truth's.

Sentence embeddings of all-MiniLM-L6-v2 (or another encoder) by plain Transformers: mean over the
tokens, normalised, cosine (Reimers 2019). A step embeds its texts in batches and keeps them until
the next one. Without the model the gate is inactive: it accepts nothing, warns once, and the run
goes on. Knows no token of the policy.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

BATCH = 64
MAX_TOKENS = 256
"""What the model was trained with; longer descriptions are cut."""


class DescGate:
    """Judges (predicted, ground truth) descriptions of matched objects.

    `model_name_or_path` is a folder or a hub id; `revision` pins a hub id. Loading happens here,
    never later: `is_active` says whether it worked, `identity` what was loaded.
    """

    def __init__(
        self, *, enabled: bool, threshold: float, model_name_or_path: str, revision: str | None
    ) -> None:
        self.threshold = threshold
        self.identity: dict[str, str] = {}
        self._encoder: _Encoder | None = None
        self._known: dict[str, Tensor] = {}
        if not enabled:
            return
        try:
            self._encoder = _Encoder(model_name_or_path, revision)
        except _LOADING_FAILURES as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning(
                "the semantic desc gate is disabled: %s (revision %s) cannot be loaded: %s",
                model_name_or_path,
                revision,
                reason,
            )
            return
        self.identity = self._encoder.identity
        log.info("the semantic desc gate uses %s", self.identity)

    @property
    def is_active(self) -> bool:
        """Whether a model answers."""
        return self._encoder is not None

    def begin_step(self) -> None:
        """Forget the embeddings of the last optimizer step."""
        self._known.clear()

    def accepts(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """For each (predicted, ground truth): is their similarity at the threshold or above?"""
        if self._encoder is None:
            return [False] * len(pairs)
        return [similarity >= self.threshold for similarity in self.similarities(pairs)]

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Cosine of each pair in [-1, 1], exactly 1.0 for equal texts; needs an active gate."""
        assert self._encoder is not None, "an inactive gate has no similarity"
        unseen = {text: None for pair in pairs if pair[0] != pair[1] for text in pair}
        texts = [text for text in unseen if text not in self._known]
        self._known.update(zip(texts, self._encoder.embed(texts), strict=True))
        return [
            1.0 if a == b else max(-1.0, min(1.0, float(self._known[a] @ self._known[b])))
            for a, b in pairs
        ]

    def metrics(self, of: str) -> dict[str, float]:
        """Logged every Channel-B step. `of`: what its series begin with."""
        return {f"{of}/semantic_desc_gate/is_active": float(self.is_active)}


def no_gate() -> DescGate:
    """One that accepts nothing: every matched description keeps its own weight."""
    return DescGate(enabled=False, threshold=0.0, model_name_or_path="", revision=None)


class _Encoder:
    """A sentence encoder on the CPU, in float32, without gradients."""

    def __init__(self, model_name_or_path: str, revision: str | None) -> None:
        try:  # a pinned revision in the cache needs no network, and no wait for its timeouts
            self._load(model_name_or_path, revision, local_files_only=True)
        except OSError:
            self._load(model_name_or_path, revision, local_files_only=False)
        self.identity = {
            "model_name_or_path": model_name_or_path,
            "revision": str(revision),
            "resolved": self._resolved(Path(model_name_or_path)),
        }

    def _load(self, name: str, revision: str | None, *, local_files_only: bool) -> None:
        from transformers import AutoModel  # noqa: PLC0415 - absent: gate inactive

        from engine.models.tokenizers import load_tokenizer  # noqa: PLC0415 - as above

        options: Any = {"revision": revision, "local_files_only": local_files_only}
        self.tokenizer: Any = load_tokenizer(name, **options)
        self.model: Any = AutoModel.from_pretrained(name, **options)
        self.model.eval().float()

    def _resolved(self, folder: Path) -> str:
        """The hub's commit, or for a folder the hash of its weights."""
        weights = sorted(folder.glob("*.safetensors"))
        if not weights:
            return str(getattr(self.model.config, "_commit_hash", None))
        digest = hashlib.sha256()
        for path in weights:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return f"sha256:{digest.hexdigest()}"

    def embed(self, texts: Sequence[str]) -> list[Tensor]:
        """A unit vector for each text."""
        vectors: list[Tensor] = []
        for start in range(0, len(texts), BATCH):
            vectors += self._embed_batch(texts[start : start + BATCH])
        return vectors

    def _embed_batch(self, texts: Sequence[str]) -> list[Tensor]:
        import torch  # noqa: PLC0415 - absent: gate inactive

        clean = [text.encode("utf-8", "replace").decode() for text in texts]  # lone surrogates
        batch = self.tokenizer(
            clean, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden_BTH = self.model(**batch).last_hidden_state
        mask_BT1 = batch["attention_mask"].unsqueeze(-1).to(hidden_BTH)
        mean_BH = (hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1)
        return list(torch.nn.functional.normalize(mean_BH, dim=-1))


def _loading_failures() -> tuple[type[Exception], ...]:
    """What a missing dependency, folder, connection or a damaged file raises."""
    try:
        from safetensors import SafetensorError  # noqa: PLC0415 - part of the engine extra
    except ImportError:
        return ImportError, OSError, ValueError, KeyError
    return ImportError, OSError, ValueError, KeyError, SafetensorError


_LOADING_FAILURES = _loading_failures()
