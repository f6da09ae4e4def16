"""Before step 1 of an `rl_run`: what it relies on is measured, and what does not hold ends it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.__main__ import main
from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import COMPLETE, ExitCode, RunDir
from engine.models import tiny
from engine.models.lora import without_deprecations
from engine.models.policy import Policy
from engine.rl import parts
from engine.rl.trainer import Trainer
from engine.sampling import hf
from engine.sampling.decoding import Way
from tests.engine.conftest import add_attempt
from tests.engine.models import zoo

Recipe = dict[str, Any]
Events = Callable[..., list[Event]]
Change = Callable[[dict[str, torch.Tensor]], object]

pytestmark = pytest.mark.requirement("RL-18")


@pytest.fixture
def short(recipe: Recipe) -> Recipe:
    """One step."""
    return recipe | {"max_steps": 1, "tasks_per_step": 2, "group_k": 2}


def attempt(tmp_path: Path, recipe: Mapping[str, Any]) -> tuple[RunDir, int]:
    run = add_attempt(tmp_path, dict(recipe))
    return run, main(["run", str(run.root)])


def said(run: RunDir) -> str:
    """The error that the newest attempt ended with."""
    lines = [json.loads(line) for line in run.events.read_bytes().splitlines()]
    return str([e for e in lines if e["type"] == "note" and e["level"] == "error"][-1]["text"])


def card(run: RunDir) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.lineage.read_bytes())
    return found


def rewritten(file: Path, change: Change) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def adapter(folder: Path, base: Path, **settings: Any) -> Path:
    """A trained adapter of a base, as PEFT saves it."""
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    torch.manual_seed(1)
    with without_deprecations():
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_B" in name:
                tensor.normal_(std=0.05)
    model.save_pretrained(str(folder))
    return folder


@contextmanager
def losing(change: Change) -> Iterator[None]:
    """Inside, what a policy saves is changed behind its back."""
    save = Policy.save

    def broken(policy: Policy, folder: Path) -> None:
        save(policy, folder)
        for file in folder.rglob("*.safetensors"):
            rewritten(file, change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Policy, "save", broken)
        yield


@pytest.mark.parametrize("tuning", ["full", "lora", "dora"])
def test_a_sound_run_says_its_figures_once_and_keeps_them_on_its_card(
    tmp_path: Path, short: Recipe, events: Events, tuning: str
) -> None:
    """An attempt that goes on measures nothing again."""
    recipe = short | {"tuning": tuning, "max_steps": 2}
    run, status = attempt(tmp_path, recipe)
    assert status == ExitCode.DONE
    assert set(card(run)["proof"]) == {"sampler", "batches", "reload"}
    assert all(one["figure"] <= one["limit"] for one in card(run)["proof"].values())

    run, status = attempt(tmp_path, recipe)

    assert status == ExitCode.DONE
    assert [note["attempt"] for note in events(run, "note") if note["code"] == "PROOF"] == [1]
    assert set(card(run)["proof"]) == {"sampler", "batches", "reload"}


def test_step_zero_that_is_made_anew_is_proven_anew(
    tmp_path: Path, short: Recipe, events: Events
) -> None:
    """Its weights come from the base again, and may not be saved as they are."""
    run, _ = attempt(tmp_path, short)
    (run.checkpoint(0) / COMPLETE).unlink()
    run.report.unlink()

    run, status = attempt(tmp_path, short)

    assert status == ExitCode.DONE
    assert [note["attempt"] for note in events(run, "note") if note["code"] == "PROOF"] == [1, 2]


def test_step_zero_made_anew_and_not_proven_is_made_anew_again(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """The attempt that made it ended before its proof, of a run that was further on."""
    run, _ = attempt(tmp_path, short)
    (run.checkpoint(0) / COMPLETE).unlink()
    run.report.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("engine.rl.recorder.prove", lambda *_, **__: 1 / 0)
        _, status = attempt(tmp_path, short)
        assert status not in (ExitCode.DONE, ExitCode.DECLINED)

    run, status = attempt(tmp_path, short)

    assert status == ExitCode.DONE
    assert [note["attempt"] for note in events(run, "note") if note["code"] == "PROOF"] == [1, 3]


BUFFER = "model.layers.1.mlp.gate.e_score_correction_bias"


@pytest.mark.parametrize(
    ("what", "base", "tuning", "change"),
    [
        ("a buffer at its default", "glm4_moe", "full", lambda t: t[BUFFER].zero_()),
        ("a buffer left out", "deepseek_v3", "full", lambda t: t.pop(BUFFER)),
        ("a norm of another size", "llama", "full", lambda t: t["model.norm.weight"].mul_(1.1)),
        (
            "an adapter that moved",
            "llama",
            "dora",
            lambda t: [x.add_(0.1) for name, x in t.items() if "lora_" in name],
        ),
    ],
)
def test_a_checkpoint_that_is_not_the_model_in_memory_ends_the_run(
    tmp_path: Path,
    short: Recipe,
    what: str,
    base: str,
    tuning: str,
    change: Change,
) -> None:
    """As often as it is tried; once it is saved whole, the same run goes on to its end."""
    folder = zoo.saved(base, tmp_path / "base", tiny.build_tokenizer())
    recipe = short | {"base": str(folder), "tuning": tuning}
    with losing(change):
        for _ in range(2):
            run, status = attempt(tmp_path, recipe)
            assert status == ExitCode.DECLINED, what
            assert "before step 1: step-000000 loaded anew and the model in memory" in said(run)
            assert not list(run.checkpoints.glob("step-000001"))

    run, status = attempt(tmp_path, recipe)

    assert status == ExitCode.DONE
    assert set(card(run)["proof"]) == {"sampler", "batches", "reload"}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("tuning", "name"),
    [
        ("full", "model.layers.1.mlp.up_proj.weight"),
        ("full", "model.norm.weight"),
        ("dora", "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"),
        ("dora", "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector"),
    ],
)
def test_one_number_that_is_another_one_names_its_tensor(
    tmp_path: Path, short: Recipe, precision: str, tuning: str, name: str
) -> None:
    """By less than any logit shows."""

    def nudged(tensors: dict[str, torch.Tensor]) -> None:
        first = tensors[name].view(-1)[:1]
        first.copy_(torch.nextafter(first, torch.full_like(first, 9.0)))

    folder = zoo.saved("llama", tmp_path / "base", tiny.build_tokenizer())
    recipe = short | {"base": str(folder), "tuning": tuning, "optim": {"precision": precision}}
    with losing(nudged):
        run, status = attempt(tmp_path, recipe)

    assert status == ExitCode.DECLINED
    found = name.removesuffix(".weight").replace("magnitude_vector", "magnitude_vector.default")
    assert re.search(
        rf"differ, in nats of a token: {re.escape(found)}[.a-z]* is not equal; ", said(run)
    )


def test_a_trainer_that_reads_at_another_temperature_ends_the_run(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes for the log-probabilities of the weights is not them."""
    build_trainer = parts.build_trainer

    def cooler(config: RLRunConfig, *parts: Any) -> Trainer:
        return build_trainer(config.model_copy(update={"temp": 0.5}), *parts)

    monkeypatch.setattr(parts, "build_trainer", cooler)

    run, status = attempt(tmp_path, short)

    assert status == ExitCode.DECLINED
    assert "in a padded batch of the trainer and of a plain forward pass differ" in said(run)


@pytest.mark.parametrize("base", ["mamba2", "rwkv", "lfm2"])
def test_packs_in_which_one_rollout_reads_another_end_the_run(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    """Though the look at a pack before the run let it pass."""
    monkeypatch.setattr("engine.rl.trainer.refuse_mixing", lambda *_: None)
    folder = zoo.saved(base, tmp_path / "base", tiny.build_tokenizer())

    run, status = attempt(tmp_path, short | {"base": str(folder), "optim": {"batching": "packed"}})

    assert status == ExitCode.DECLINED
    assert "in a packed batch of the trainer and of a plain forward pass differ" in said(run)
    assert "set optim.batching: padded" in said(run)


@pytest.mark.parametrize("base", ["rwkv", "mamba", "falcon_mamba"])
def test_a_sampler_that_reads_a_wrong_past_ends_the_run(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    """One without a cache, or one that takes padding for text: the figure, its limit and what to do
    are in one line.
    """
    folder = zoo.saved(base, tmp_path / "base", tiny.build_tokenizer())
    prompts = [f"{'0' * (n % 9)}{n}=" for n in range(120)]
    rows = [{"id": prompt, "prompt": prompt, "answer": "7"} for prompt in prompts]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    monkeypatch.setattr(hf, "way_of", lambda _: Way.PADDED)

    run, status = attempt(
        tmp_path,
        short | {"base": str(folder), "data": {"source": str(source)}, "max_new_tokens": 6},
    )

    assert status == ExitCode.DECLINED
    assert "the sampler's log-probabilities and those of a plain forward pass differ" in said(run)
    assert "which may be at most 0.001; what is sampled is not" in said(run)


def test_a_way_of_decoding_that_is_slow_is_said(
    tmp_path: Path, short: Recipe, events: Events
) -> None:
    """Whoever waits may want to know why."""
    folder = zoo.saved("rwkv", tmp_path / "base", tiny.build_tokenizer())

    run, status = attempt(tmp_path, short | {"base": str(folder)})

    assert status == ExitCode.DONE
    told = [note["text"] for note in events(run, "note") if note["code"] == "DECODING"]
    assert len(told) == 1
    assert "rwkv is sampled without a cache" in told[0]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("base", "name"), [("llama", "model.layers.1.mlp.up_proj.weight"), ("glm4_moe", BUFFER)]
)
def test_a_base_that_holds_no_number_names_the_tensor(
    tmp_path: Path, short: Recipe, number: float, base: str, name: str
) -> None:
    """A weight or a buffer: before anything trains, as a fault of the config."""
    folder = zoo.saved(base, tmp_path / "base", tiny.build_tokenizer())
    rewritten(folder / "model.safetensors", lambda t: t[name].view(-1)[:1].fill_(number))

    run, status = attempt(tmp_path, short | {"base": str(folder)})

    assert status == ExitCode.CONFIG
    assert said(run).startswith(f"base: has {'NaN' if number != number else 'infinity'} in {name}")  # noqa: PLR0124
    assert not run.checkpoints.exists()


def test_a_base_whose_sums_are_no_numbers_is_not_blamed_on_its_cache(
    tmp_path: Path, short: Recipe
) -> None:
    """Each weight is a number, their products are not."""
    folder = zoo.saved("llama", tmp_path / "base", tiny.build_tokenizer())
    rewritten(folder / "model.safetensors", lambda t: t["lm_head.weight"].fill_(3e38))

    run, status = attempt(tmp_path, short | {"base": str(folder)})

    assert status == ExitCode.CONFIG
    assert "gives log-probabilities that are no numbers" in said(run)


def test_an_adapter_that_holds_no_number_names_the_tensor(
    tmp_path: Path, short: Recipe, base_folder: Path
) -> None:
    folder = adapter(tmp_path / "adapter", base_folder)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    rewritten(
        folder / "adapter_model.safetensors", lambda t: t[name].view(-1)[:1].fill_(float("nan"))
    )

    run, status = attempt(tmp_path, short | {"tuning": "lora", "adapter_init": str(folder)})

    assert status == ExitCode.CONFIG
    assert said(run).startswith(f"adapter_init: has NaN in {name}")


@pytest.mark.parametrize(
    ("alpha", "status"), [(8, ExitCode.DONE), (0, ExitCode.DECLINED)], ids=["moves", "inert"]
)
def test_an_adapter_that_changes_nothing_ends_the_run(
    tmp_path: Path, short: Recipe, base_folder: Path, alpha: int, status: ExitCode
) -> None:
    """Its tensors are not zero, so it was meant to change something."""
    folder = adapter(tmp_path / "adapter", base_folder, lora_alpha=alpha)

    run, found = attempt(tmp_path, short | {"tuning": "lora", "adapter_init": str(folder)})

    assert found == status
    if status == ExitCode.DONE:
        assert card(run)["proof"]["adapter"]["figure"] > 0
    else:
        assert "the adapter moves log-probabilities, in nats of a token: 0, which must" in said(run)


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_mixed_precision_is_proven_with_limits_of_its_own(
    tmp_path: Path, short: Recipe, tuning: str
) -> None:
    """And the weights that train are those of before."""
    run, status = attempt(
        tmp_path, short | {"tuning": tuning, "optim": {"precision": "bf16"}, "max_new_tokens": 4}
    )

    assert status == ExitCode.DONE
    assert card(run)["proof"]["sampler"]["limit"] == pytest.approx(0.1)


def test_the_proof_leaves_the_policy_as_it_was(base_folder: Path) -> None:
    """An adapter is put on a base of its own modules; what trains and what is frozen stay."""
    from engine.models import alike, lora  # noqa: PLC0415

    policy = parts.build_policy(RLRunConfig(base=str(base_folder), tuning="lora"))
    before = {n: (p.requires_grad, id(p)) for n, p in policy.model.named_parameters()}

    base = alike.base_of(policy.model)

    assert not lora.adapted(base)
    assert not any("lora_" in name for name, _ in base.named_parameters())
    shared = {id(p) for p in policy.model.parameters()}
    assert all(id(p) in shared for p in base.parameters())
    assert {n: (p.requires_grad, id(p)) for n, p in policy.model.named_parameters()} == before
