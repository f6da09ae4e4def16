"""Records what TRL's GRPOTrainer computes, so that the suite can hold our losses to it.

`python tools/trl_agreement.py` makes an environment with the pinned TRL under `.agreement-trl/`
(on top of the project's own torch and transformers, never inside it), calls the trainer's own loss
on a tiny model, and writes loss and gradients to `tests/engine/rl/agreement/trl.json`; `--check`
writes nothing and fails on a difference. No code of TRL is copied; it runs where it is installed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/engine/rl/agreement/trl.json"
VENV = ROOT / ".agreement-trl"
PINS = [
    "trl==1.16.0",
    "datasets==5.2.0",
    "dill==0.4.1",
    "multiprocess==0.70.19",
    "pandas==3.1.1",
    "pyarrow==26.0.1",
    "xxhash==4.1.0",
]
MODEL_SEED = 5
TEMP = 0.7
MAX_NEW_TOKENS = 6
EOS = 12
PROMPTS = [[1, 2, 3], [1, 2, 3], [4, 5], [4, 5]]
COMPLETIONS = [[6, 7, EOS], [8, EOS], [9, 1, 2, 3, EOS], [0, 0, 5, 7, 4, 2]]
"""Of unlike lengths; the last is cut off, and token 0 is a word."""
ADVANTAGES = [1.2, -0.7, 0.4, -1.1]

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon": 0.2, "epsilon_high": 0.2, "beta": 0.04},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon": 0.2, "epsilon_high": 0.2, "beta": 0.0},
    "dapo": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0},
    "token_mean": {"loss_type": "bnpo", "epsilon": 0.2, "epsilon_high": 0.2, "beta": 0.1},
    "cispo": {"loss_type": "cispo", "epsilon": 0.2, "epsilon_high": 1.3, "beta": 0.0},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-2,
        "epsilon_high": 4e-2,
        "beta": 0.04,
    },
}
"""Our name for each, and TRL's arguments; its cispo bound is the ratio itself, ours is above 1."""


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="compare with the recorded values")
    parser.add_argument("--inside", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        options.inside.write_text(json.dumps(record(), indent=1) + "\n", "utf-8")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "trl.json"
        subprocess.run([_python(), __file__, "--inside", str(fresh)], check=True, cwd=ROOT)
        if not options.check:
            RECORD.parent.mkdir(parents=True, exist_ok=True)
            RECORD.write_text(fresh.read_text("utf-8"), "utf-8")
            print(f"wrote {RECORD.relative_to(ROOT)}")
            return 0
        same = _equal(json.loads(fresh.read_bytes()), json.loads(RECORD.read_bytes()))
    print("as recorded" if same else "TRL computes other values than those recorded")
    return 0 if same else 1


def _python() -> str:
    """The environment's interpreter; the environment is made on first use."""
    python = VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], check=True)
        packages = next((VENV / "lib").glob("python3*")) / "site-packages"
        own = next(Path(path) for path in sys.path if path.endswith("site-packages"))
        (packages / "nightlane.pth").write_text(f"{own}\n", "utf-8")
        # Without what they ask for: the rest is the project's own, and no second torch comes in.
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--ignore-installed", *PINS], check=True)
    return str(python)


def record() -> dict[str, Any]:
    """Inputs and TRL's results. Runs inside the environment."""
    sys.path.insert(0, str(ROOT))
    draw = random.Random(0)
    noise = [[draw.uniform(-0.5, 0.5) for _ in ids] for ids in COMPLETIONS]
    drift = [[draw.uniform(-1, 1) for _ in ids] for ids in COMPLETIONS]
    return {
        "model_seed": MODEL_SEED,
        "temp": TEMP,
        "max_new_tokens": MAX_NEW_TOKENS,
        "prompts": PROMPTS,
        "completions": COMPLETIONS,
        "advantages": ADVANTAGES,
        "old_minus_now": noise,
        "reference_minus_now": drift,
        "cases": {
            name: {"trl": arguments, **_ask(arguments, noise, drift)}
            for name, arguments in CASES.items()
        },
    }


def _ask(
    arguments: dict[str, Any], noise: list[list[float]], drift: list[list[float]]
) -> dict[str, Any]:
    """TRL's loss and what identifies its gradient."""
    import torch  # noqa: PLC0415 - of the environment

    trainer = _trainer(arguments)
    model = trainer.model.train()
    widest = max(map(len, PROMPTS)), max(map(len, COMPLETIONS))
    prompt_ids = torch.tensor([[EOS] * (widest[0] - len(p)) + p for p in PROMPTS])
    prompt_mask = torch.tensor([[0] * (widest[0] - len(p)) + [1] * len(p) for p in PROMPTS])
    completion_ids = torch.tensor([c + [EOS] * (widest[1] - len(c)) for c in COMPLETIONS])
    mask = torch.tensor([[1] * len(c) + [0] * (widest[1] - len(c)) for c in COMPLETIONS])
    ids = torch.cat([prompt_ids, completion_ids], 1)
    attention = torch.cat([prompt_mask, mask], 1)
    with torch.no_grad():
        now, *_ = trainer._get_per_token_logps_and_entropies(model, ids, attention, widest[1])  # noqa: SLF001
    loss = trainer._compute_loss(  # noqa: SLF001 - the loss itself is what is asked
        model,
        {
            "prompt_ids": prompt_ids,
            "prompt_mask": prompt_mask,
            "completion_ids": completion_ids,
            "completion_mask": mask,
            "advantages": torch.tensor(ADVANTAGES),
            "old_per_token_logps": now + _filled(noise, widest[1]),
            "ref_per_token_logps": now + _filled(drift, widest[1]),
            "num_items_in_batch": mask.sum(),
        },
    )
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.item(), "gradients": {n: fingerprint(g) for n, g in gradients.items()}}


def fingerprint(gradient: Any) -> list[float]:
    """Norm, and the product with a fixed vector: two gradients that share both are equal."""
    import torch  # noqa: PLC0415 - only where a gradient is

    flat = gradient.double().flatten()
    return [flat.norm().item(), (flat * torch.arange(len(flat)).cos()).sum().item()]


def _filled(rows: list[list[float]], width: int) -> Any:
    import torch  # noqa: PLC0415 - of the environment

    return torch.tensor([row + [0.0] * (width - len(row)) for row in rows])


def _trainer(arguments: dict[str, Any]) -> Any:
    from datasets import Dataset  # noqa: PLC0415
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]  # noqa: PLC0415

    from engine.models import tiny  # noqa: PLC0415

    folder = tempfile.mkdtemp()
    tiny.build_model(MODEL_SEED).save_pretrained(folder)
    trainer = GRPOTrainer(
        model=folder,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=len(PROMPTS),
            num_generations=2,
            gradient_accumulation_steps=1,
            max_completion_length=MAX_NEW_TOKENS,
            temperature=TEMP,
            use_cpu=True,
            bf16=False,
            report_to=[],
            model_init_kwargs={"dtype": "float32"},
            # TRL weighs the KL term with the ratio unless told otherwise; GRPO's paper does not.
            use_bias_correction_kl=False,
            **arguments,
        ),
        train_dataset=Dataset.from_list([{"prompt": "1+2="}]),
        processing_class=tiny.build_tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _equal(found: Any, recorded: Any) -> bool:
    if isinstance(found, dict) and isinstance(recorded, dict):
        return found.keys() == recorded.keys() and all(_equal(found[k], recorded[k]) for k in found)
    if isinstance(found, list) and isinstance(recorded, list):
        return len(found) == len(recorded) and all(map(_equal, found, recorded))
    if isinstance(found, float) and isinstance(recorded, float):
        return math.isclose(found, recorded, rel_tol=1e-3, abs_tol=1e-5)
    return bool(found == recorded)


if __name__ == "__main__":
    sys.exit(main())
