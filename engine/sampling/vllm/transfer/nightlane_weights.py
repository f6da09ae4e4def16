"""Runs inside vLLM's own environment: its weight-transfer backend over shared memory.

    PYTHONPATH=<this folder> … --worker-extension-cls nightlane_weights.Worker
    --weight-transfer-config '{"backend": "nightlane"}'

The trainer writes merged weights into memory that both see, one bucketful after the other, and
vLLM's layerwise reload takes them into the model as it loads a checkpoint. For a CPU, where vLLM
has no backend of its own. Imports nothing of Nightlane's; proves nothing: whoever sent the weights
asks for log-probabilities afterwards. Written against vLLM 0.32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

BACKEND = "nightlane"


class Worker:
    """Nothing of its own: to name it is to have this module imported by every worker."""


@dataclass
class Init(WeightTransferInitInfo):
    """Where the weights will lie."""

    path: str
    """Of the memory, as a file that is opened once."""


@dataclass
class Update(WeightTransferUpdateInfo):
    """One bucketful."""

    pieces: list[list[Any]]
    """Of each tensor: name in the checkpoint, type (`float32`), shape, first byte."""
    last: bool
    """Whether the model is whole with it."""


class SharedMemoryEngine(WeightTransferEngine[Init, Update]):
    """Takes checkpoint-format weights out of memory that the trainer fills."""

    init_info_cls = Init
    update_info_cls = Update
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: Init) -> None:
        """Map the memory. Raises OSError where this process may not see it."""
        size = Path(init_info.path).stat().st_size
        self._memory = torch.from_file(init_info.path, shared=True, size=size, dtype=torch.uint8)

    def start_weight_update(self) -> None:
        """Layers go to the meta device, each until its weights are there."""
        # Asked before: on the meta device a tied head is a parameter of its own. A layer that
        # takes adapters stands one level deeper than the loader calls it.
        names = (name for name, _ in self.model.named_parameters())
        self._missing = {name.replace(".base_layer.", ".") for name in names}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: Update) -> None:
        """Raises ValueError when it is the last bucketful and weights of the model are missing."""
        try:
            self._receive(update_info)
        except BaseException:
            # A layer left on the meta device would end the server at its next request.
            self.finish_weight_update()
            raise

    def finish_weight_update(self) -> None:
        """What was packed from the old weights is packed anew.

        A tied head keeps a matrix product of its own over the embedding's weights, which no
        loader knows of: it would go on answering from the old ones.
        """
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            for module in self.model.modules():
                if isinstance(module, VocabParallelEmbedding):
                    dispatch_cpu_unquantized_gemm(module, remove_weight=False)

    def shutdown(self) -> None:
        """Let the memory go."""
        self._memory = torch.empty(0)

    def _receive(self, update: Update) -> None:
        weights = ((name, self._tensor(*where)) for name, *where in update.pieces)
        self._missing -= set(self.model.load_weights(weights))
        if update.last and self._missing:
            first = min(self._missing)
            raise ValueError(f"no weights came for {len(self._missing)} parameters, as for {first}")

    def _tensor(self, dtype: str, shape: list[int], first: int) -> torch.Tensor:
        """A copy: a layer is put together when all of it came, and the memory is filled again."""
        kind = getattr(torch, dtype)
        size = torch.Size(shape).numel() * kind.itemsize
        return self._memory[first : first + size].view(kind).view(shape).to(self.device, copy=True)


WeightTransferEngineFactory.register_engine(BACKEND, SharedMemoryEngine)
