"""llmcompressor's formats, written by its own environment (`make setup-quant`) and read back by
Transformers, which makes them 16-bit again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from engine.contract.errors import NightlaneError
from engine.contract.quantized import FORMATS, QUANT_PYTHON
from engine.requant import compress
from engine.requant.tensors import group_for, misfits, stored
from engine.run.stop import check_abort

_LOOK_S = 0.2
_READ_BACK = "for vLLM; read back by Transformers, which makes its weights 16-bit again"


def write(name: str, source: Path, target: Path, group_size: int | None) -> dict[str, Any]:
    """Raises NightlaneError with what llmcompressor said last, and Aborted."""
    tensors = stored(source)
    told: dict[str, Any] = {"scheme": name.upper(), "ignore": ["lm_head"]}
    if FORMATS[name].grouped:
        told["group_size"] = group_for(tensors, group_size)
        out = misfits(tensors, told["group_size"])
        told["ignore"] += [weight.removesuffix(".weight") for weight in out]
    _run(name, [str(source), str(target), json.dumps(told)], target.parent / "llmcompressor.log")
    known = {"group_size": told["group_size"]} if "group_size" in told else {}
    return {**known, "note": _READ_BACK}


def _run(name: str, arguments: list[str], log: Path) -> None:
    command = [os.environ[QUANT_PYTHON], "-I", compress.__file__, *arguments]
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            while child.poll() is None:
                check_abort()
                time.sleep(_LOOK_S)
        finally:
            child.kill()
            child.wait()
    if child.returncode:
        lines = log.read_text("utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        raise NightlaneError(f"llmcompressor did not write {name}: {said}; see {log}")
    log.unlink()
