"""A child inside ms-swift: its harness with an empty plugin, then with ours; what was seen.

Reads its plan as JSON, writes one line `SEEN {…}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from swift.callbacks import callbacks_map
from swift.pipelines import sft_main
from transformers import TrainerCallback

from engine.contract.errors import ConfigError
from engine.stage2.rollout.prompts import PromptReader
from tests.engine.stage2.upstream import replaced, snapshot

SEEN: dict[str, Any] = {"forward_keys": []}


class Spy(TrainerCallback):
    """One of ms-swift's own callbacks, chosen by `--callbacks spy`."""

    def __init__(self, _: Any, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(
        self,
        args: Any,  # noqa: ARG002 - its contract, and the next two
        state: Any,  # noqa: ARG002
        control: Any,  # noqa: ARG002
        model: Any = None,
        **_: Any,
    ) -> None:
        """Behind ms-swift's own hook on the model: what it sees is what the model gets."""
        model.register_forward_pre_hook(_look, with_kwargs=True)
        SEEN.update(_of_trainer(self.trainer))


def _look(module: Any, _: Any, named: dict[str, Any]) -> None:
    if module.training:
        SEEN["forward_keys"] = sorted({*SEEN["forward_keys"], *named})


def _of_trainer(trainer: Any) -> dict[str, Any]:
    reader, first = trainer.parts.rollouts.reader, trainer.train_dataset[0]
    own = PromptReader(reader.vlm, reader.pieces, question="", clock=reader.clock)
    return {
        "trainer": [f"{one.__module__}.{one.__name__}" for one in type(trainer).__mro__],
        "window": type(trainer.parts.window).__name__,
        "samples": sorted({type(one).__name__ for batch in _batches(trainer) for one in batch}),
        "same_prompt": own(first).ids == reader(first).ids,
        "same_patches": bool(
            (own(first).pictures.pixel_values == reader(first).pictures.pixel_values).all()
        ),
        "use_logits_to_keep": trainer.args.use_logits_to_keep,
    }


def _batches(trainer: Any) -> Iterator[Any]:
    yield from trainer.get_train_dataloader()


def main() -> None:
    plan = json.load(sys.stdin)
    callbacks_map["spy"] = Spy
    sft_main(plan["stock"])
    before = snapshot()
    sft_main(plan["stock"])
    theirs = replaced(before, snapshot())
    before = snapshot()
    sft_main(plan["ours"])
    SEEN["replaced"] = sorted(replaced(before, snapshot()) - theirs)
    try:
        sft_main(plan["streaming"])
    except ConfigError as error:
        SEEN["refused"] = str(error)
    print(f"SEEN {json.dumps(SEEN)}")  # noqa: T201 - to the test


if __name__ == "__main__":
    main()
