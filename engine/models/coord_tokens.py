"""Give a Qwen3-VL checkpoint the 1,000 coord tokens: `python -m engine.models.coord_tokens IN OUT`.

The new rows of the embedding start at the mean of the old ones, as Transformers resizes them, so
stage 1 still has to teach them. Knows no data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.contract.errors import NightlaneError
from engine.contract.stage2 import coords
from engine.models.qwen3_vl import ModelError, load


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 with what is wrong on stderr."""
    parser = argparse.ArgumentParser(prog="coord_tokens", description=__doc__)
    parser.add_argument("checkpoint", metavar="IN", help="a Qwen3-VL folder or hub id")
    parser.add_argument("target", metavar="OUT", type=Path, help="a folder that does not exist")
    options = parser.parse_args(argv)
    try:
        added = add_coord_tokens(options.checkpoint, options.target)
    except NightlaneError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{options.target}: {added} coord tokens added\n")
    return 0


def add_coord_tokens(checkpoint: str, target: Path) -> int:
    """Save a copy of the checkpoint that has every coord token; how many were new."""
    if target.exists():
        raise ModelError(f"{target} exists already; name a folder that does not")
    vlm = load(checkpoint, dtype="auto", attn_implementation="sdpa")
    tokens = [coords.token(k) for k in range(coords.BIN_COUNT)]
    added = int(vlm.tokenizer.add_tokens(tokens, special_tokens=True))
    rows = vlm.model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    if len(vlm.tokenizer) > rows:
        vlm.model.resize_token_embeddings(len(vlm.tokenizer))  # type: ignore[operator]
    vlm.model.save_pretrained(target)  # type: ignore[operator]
    vlm.tokenizer.save_pretrained(target)
    vlm.image_processor.save_pretrained(target)
    return added


if __name__ == "__main__":
    sys.exit(main())
