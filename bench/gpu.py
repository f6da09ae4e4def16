"""What `bench/serving.py` times, on a CUDA device: `python -m bench.gpu --vllm PYTHON`.

bf16, merged weights by vLLM's own backends (NCCL, or IPC where trainer and server share a device),
more at once. Refuses where there is no device. Nothing of it has been run on a GPU yet.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.serving import Load, measure

LOAD = Load(at_once=(1, 64, 512), new=64)


def main(argv: Sequence[str] | None = None) -> int:
    """2 without a device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm", default="python", help="the Python of an environment with vLLM")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print(
            "bench-gpu: torch sees no CUDA device here; run it where one is, or `make bench-vllm` "
            "for the same on a CPU",
            file=sys.stderr,
        )
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    figures = measure(options.vllm, LOAD, dtype="bfloat16")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
