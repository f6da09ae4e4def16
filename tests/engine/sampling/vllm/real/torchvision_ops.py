"""For vLLM's environment on a CPU: torchvision as PyPI has it, whose operators want another torch.

Imported from a `.pth` file there. Names the operators before torchvision is imported, which then
does without them: it reads and resizes pictures, which is all that a Qwen3-VL's processor wants.
"""

import importlib.abc
import sys
from typing import Any

_NAMES = (
    "nms",
    "qnms",
    "roi_align",
    "qroi_align",
    "roi_pool",
    "ps_roi_align",
    "ps_roi_pool",
    "deform_conv2d",
)


class _Names(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name == "torchvision":
            sys.meta_path.remove(self)
            _define()


def _define() -> None:
    import torch  # noqa: PLC0415 - not for every program of that environment

    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in _NAMES:
        for one in (name, f"_{name}_backward"):
            library.define(f"{one}(Tensor a) -> Tensor")
    _define.library = library  # type: ignore[attr-defined]  # it ends with its last reference


sys.meta_path.insert(0, _Names())
