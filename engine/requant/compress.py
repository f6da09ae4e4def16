"""Run by the Python of `make setup-quant`, never imported for its work: SOURCE TARGET JSON.

The schemes are those that need no calibration rows: scales come from the weights, and those of
activations from each token as it passes. Knows nothing of ours: that environment does not have it.
"""

from __future__ import annotations

import json
import sys


def main(source: str, target: str, told: str) -> None:
    """Write the model of the folder `source` in a scheme of compressed-tensors to `target`."""
    from llmcompressor import oneshot  # noqa: PLC0415, I001 - first: it says at once that it is not there
    from compressed_tensors.quantization import preset_name_to_scheme  # noqa: PLC0415
    from llmcompressor.modifiers.quantization import QuantizationModifier  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    asked = json.loads(told)
    scheme = preset_name_to_scheme(asked["scheme"], ["Linear"])
    if "group_size" in asked:
        scheme.weights.group_size = asked["group_size"]
    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    oneshot(
        model=model,
        recipe=QuantizationModifier(config_groups={"group_0": scheme}, ignore=asked["ignore"]),
    )
    model.save_pretrained(target, save_compressed=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
