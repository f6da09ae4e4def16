"""A Qwen3-VL checkpoint: loading it, and its forward contract.

`forward` is the only door to the model: one of ids or embeddings, explicit positions, no cache,
full logits, and no key that the model does not know. Knows no loss and no channel.

Shapes: B rows, T positions, V vocabulary, H hidden.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from engine.contract.errors import UnfitError
from engine.contract.hub import unreachable
from engine.contract.model_folder import few_bits_problem
from engine.models.finite import not_finite
from engine.models.loading import few_bits, misfit

FORWARD_KEYS = frozenset(
    {
        *("input_ids", "inputs_embeds", "attention_mask", "position_ids"),
        *("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw"),
    }
)
"""All that reaches the model; whatever else a harness adds (labels, loss_scale, …) does not."""
_SLICING = ("logits_to_keep", "num_logits_to_keep")


class ModelError(UnfitError):
    """A checkpoint or a forward pass that stage-2 cannot work with: what, and what to do."""


@dataclass(frozen=True)
class VisionModel:
    """A loaded checkpoint. `model` may be wrapped by an adapter; `core` is what knows positions."""

    model: torch.nn.Module
    tokenizer: Any
    image_processor: Any

    @property
    def core(self) -> Any:
        """The multimodal trunk with `get_rope_index`, below adapter and language-model head."""
        model: Any = self.model
        if hasattr(model, "get_base_model"):
            model = model.get_base_model()
        return model.model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def image_token_id(self) -> int:
        return int(self.core.config.image_token_id)

    @property
    def merge_area(self) -> int:
        """Patches that become one image token."""
        return int(self.core.config.vision_config.spatial_merge_size) ** 2

    def save(self, folder: Path) -> None:
        """A folder that loads as a whole model: weights (or the adapter), tokenizer, images."""
        model: Any = self.model
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.image_processor.save_pretrained(folder)

    def embed(self, ids: Tensor) -> Tensor:
        """The embedding module called on ids, [..., H]: its hooks and adapters apply."""
        found: Tensor = self.model.get_input_embeddings()(ids)  # type: ignore[operator]
        return found

    def rope_positions(self, ids_T: Tensor, image_grid_thw: Tensor | None) -> Tensor:
        """Temporal, height and width position of each token of one sequence, [3, T]."""
        types_T = (ids_T == self.image_token_id).int()
        positions_3BT, _ = self.core.get_rope_index(
            ids_T[None], types_T[None], image_grid_thw=image_grid_thw
        )
        found: Tensor = positions_3BT[:, 0]
        return found


def load(
    path: str,
    *,
    dtype: str,
    attn_implementation: str,
    pixels: tuple[int | None, int | None] = (None, None),
) -> VisionModel:
    """A checkpoint folder or hub id. Raises ModelError when it is none of a Qwen3-VL.

    `pixels`: fewest and most that a picture is resized to; None where the checkpoint says it.
    """
    _require_attention(attn_implementation)
    from transformers import (  # noqa: PLC0415 - seconds to import
        AutoImageProcessor,
        AutoModelForImageTextToText,
    )
    from transformers.utils import (  # noqa: PLC0415 - as above
        logging as transformers_logging,
    )

    from engine.models.tokenizers import load_tokenizer  # noqa: PLC0415 - as above

    # A bar that was drawn last would stand in the log as what the run said last.
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    away = unreachable(path)
    if away is not None:
        raise ModelError(f"model.path {path!r} cannot be loaded: {away}; name a model folder")
    loaded: Any
    images: Any = AutoImageProcessor
    try:
        packed = few_bits(path)
        if packed is not None:
            raise ModelError(few_bits_problem("model.path", path, packed).line())
        tokenizer = load_tokenizer(path)
        processor = images.from_pretrained(path)
        _bound_pixels(processor, pixels)
        loaded = AutoModelForImageTextToText.from_pretrained(
            path,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            attn_implementation=attn_implementation,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # it would name none of them
        )
    except _LOADING_ERRORS as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"model.path {path!r} cannot be loaded: {reason}; "
            "name a folder with a Qwen3-VL model, its tokenizer and its image processor"
        ) from error
    model, loading = loaded
    wrong = misfit(model, loading)
    if wrong is not None:
        raise ModelError(
            f"model.path {path!r} is no whole model: {wrong}; correct config.json, or save the "
            "checkpoint again"
        )
    broken = not_finite(model.state_dict())
    if broken is not None:
        read_as = next(model.parameters()).dtype
        raise ModelError(
            f"model.path {path!r} has {broken}, read as {str(read_as).removeprefix('torch.')}; "
            "save it again from where its weights are numbers, or read it in a wider model.dtype"
        )
    if not hasattr(getattr(model, "model", None), "get_rope_index"):
        raise ModelError(
            f"model.path {path!r} is a {type(model).__name__}, which has no multimodal positions; "
            "name a Qwen3-VL checkpoint"
        )
    return VisionModel(model, tokenizer, processor)


def _require_attention(implementation: str) -> None:
    """Raises ModelError for a kernel that is not there, which is no fault of the checkpoint."""
    from transformers.utils.import_utils import is_flash_attn_2_available  # noqa: PLC0415 - seconds to import

    if implementation != "flash_attention_2" or is_flash_attn_2_available():
        return
    missing = "no GPU is there that it runs on"
    if importlib.util.find_spec("flash_attn") is None:
        missing = "the package flash-attn is not installed"
    raise ModelError(
        f"model.attn_implementation {implementation!r} cannot be used: {missing}; "
        "set model.attn_implementation: sdpa"
    )


def _bound_pixels(processor: Any, pixels: tuple[int | None, int | None]) -> None:
    """Raises ModelError for bounds that leave no size."""
    fewest, most = pixels
    if fewest is None and most is None:
        return
    size = processor.size
    fewest = fewest or min(size["shortest_edge"], most or size["shortest_edge"])
    most = most or max(size["longest_edge"], fewest)
    tile = (processor.patch_size * processor.merge_size) ** 2
    if most < tile:
        raise ModelError(
            f"model.max_pixels {most} is less than the {tile} that the model sees as one; raise it"
        )
    processor.size = type(size)(shortest_edge=fewest, longest_edge=most)


_LOADING_ERRORS = (
    *(OSError, ValueError, LookupError, RuntimeError, ImportError, TypeError, AttributeError),
    SafetensorError,
)
"""What transformers was seen to raise for folders that are no model."""


def model_inputs(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of `given` may reach the model.

    Raises ModelError for a knob that slices logits away, for ids and embeddings together or
    neither, and without positions: embeddings would silently get those of plain text.
    """
    for key in _SLICING:
        if given.get(key):
            raise ModelError(
                f"{key} {given[key]!r} would drop positions that the loss reads; remove it"
            )
    kept = {key: given[key] for key in FORWARD_KEYS if given.get(key) is not None}
    if ("input_ids" in kept) == ("inputs_embeds" in kept):
        raise ModelError("a forward needs exactly one of input_ids and inputs_embeds")
    if "position_ids" not in kept:
        raise ModelError(
            "a forward needs position_ids; without them embeddings are read as plain text"
        )
    return kept


def forward(model: torch.nn.Module, given: Mapping[str, Any]) -> Tensor:
    """Logits of every position, [B, T, V]; nothing is cached and nothing carried over.

    Raises ModelError as `model_inputs`, and when the model returns fewer positions than it read.
    """
    kept = model_inputs(given)
    logits_BTV: Tensor = model(**kept, use_cache=False).logits
    wanted = kept["input_ids"] if "input_ids" in kept else kept["inputs_embeds"]
    if logits_BTV.shape[:2] != wanted.shape[:2]:
        raise ModelError(
            f"the model returned logits of {logits_BTV.shape[1]} of {wanted.shape[1]} positions; "
            "turn logits slicing off"
        )
    return logits_BTV


def add_coord_tokens_command(path: Path | str) -> str:
    """The shell command that adds the coord tokens to a checkpoint, for an error's remedy."""
    return f"python -m engine.models.coord_tokens {path} OUT"
