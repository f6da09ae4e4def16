"""LoRA over the architectures that Transformers builds: what it reaches, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import IA3Config, LoHaConfig, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.contract.errors import ConfigError, ConfigProblem, RLLoopError
from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.registry import cautions, validate
from engine.contract.run_dir import RunDir
from engine.models import lora, tiny
from engine.models.policy import build
from engine.rl.look import look
from engine.rl.parts import build_policy
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt
from tests.engine.models import zoo

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]
Weights = dict[str, Tensor]

IDS = torch.arange(3, 15)[None]
STATE_SPACE = {"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"}
"""PEFT adapts no `out_proj` of these: their kernels read the bare weight."""


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS, use_cache=False).logits
    return found


def moved(model: Any) -> Any:
    """Training, in one line."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.mark.requirement("RL-07")
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_an_adapter_starts_at_the_base_learns_and_is_the_same_for_peft_and_merged(
    tmp_path: Path, name: str, dora: bool
) -> None:
    """Of every architecture: nothing changes at first, each matrix gets a gradient, and folder and
    merged weights give the logits in memory.
    """
    folder = zoo.saved(name, tmp_path / "base", tiny.build_tokenizer())
    policy = build(str(folder), seed=0)
    before = logits(policy.model)

    adapted = lora.attach_zero(policy.model, rank=4, alpha=8, seed=0, dora=dora, base="it")
    torch.testing.assert_close(logits(adapted), before, atol=1e-5, rtol=0)

    found = lora.coverage(adapted)
    assert found.share > (0.6 if name in STATE_SPACE else 0.1 if dora else 0.92), found
    moved(adapted)
    adapted(input_ids=IDS, use_cache=False).logits.pow(2).sum().backward()
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    assert all("lora_" in n for n in trained)
    without = [n for n, p in trained.items() if p.grad is None or not p.grad.any()]
    assert not without
    wanted = logits(adapted)
    assert not torch.allclose(wanted, before, atol=1e-3)

    lora.save(adapted, tmp_path / "adapter")
    with lora.without_deprecations():
        base: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        plain = PeftModel.from_pretrained(base.eval(), tmp_path / "adapter")
    torch.testing.assert_close(logits(plain), wanted, atol=1e-4, rtol=1e-4)
    again = lora.attach(build(str(folder), seed=0).model, tmp_path / "adapter")
    torch.testing.assert_close(logits(again), wanted, atol=1e-5, rtol=0)
    whole = lora.merged(build(str(folder), seed=0).model, tmp_path / "adapter")
    torch.testing.assert_close(logits(whole), wanted, atol=1e-3, rtol=1e-3)


def elsewhere(weights: Weights) -> Weights:
    """As a wrapper of the model for text and pictures names them."""
    return {
        name.replace(".layers.", ".language_model.layers.").replace(".h.", ".language_model.h."): t
        for name, t in weights.items()
    }


def half(weights: Weights) -> Weights:
    return {name: t for name, t in weights.items() if "lora_A" in name}


def deeper(weights: Weights) -> Weights:
    """Of a model with more layers."""
    return {name.replace(".1.", ".5."): t for name, t in weights.items()}


def narrower(weights: Weights) -> Weights:
    return {name: t[:, :-1] if "lora_A" in name else t for name, t in weights.items()}


def without_prefix(weights: Weights) -> Weights:
    """As a trainer with a wrapper of its own writes them."""
    return {f"module.{name}": t for name, t in weights.items()}


def saved_adapter(base: Path, folder: Path, change: Callable[[Weights], Weights]) -> Path:
    model = moved(lora.attach_zero(build(str(base), seed=0).model, rank=4, alpha=8, seed=0))
    lora.save(model, folder)
    changed = change(load_file(folder / lora.WEIGHTS))
    save_file({n: t.clone().contiguous() for n, t in changed.items()}, folder / lora.WEIGHTS)
    return folder


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize("name", ["qwen3", "gpt2", "glm4_moe"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (elsewhere, r"no layer for .*language_model.*, and no tensor for .*lora_A"),
        (half, r"no tensor for .*lora_B"),
        (deeper, r"no layer for .*\.5\..*, and no tensor for .*\.1\."),
        (narrower, r"size mismatch for .*lora_A"),
        (without_prefix, r"no layer for .*module\..*, and no tensor for"),
    ],
)
def test_an_adapter_that_fits_in_part_is_refused_by_name_before_and_at_the_start(
    tmp_path: Path, name: str, change: Callable[[Weights], Weights], said: str
) -> None:
    """PEFT alone warns, and trains from zero; the look reads no weight of the base."""
    base = zoo.saved(name, tmp_path / "base", tiny.build_tokenizer())
    adapter = saved_adapter(base, tmp_path / "adapter", change)
    config = RLRunConfig(base=str(base), adapter_init=str(adapter))

    with pytest.raises(RLLoopError, match=said) as caught:
        build_policy(config)
    assert len(str(caught.value).splitlines()) == 1
    [problem] = look(config).problems
    assert problem.field == "adapter_init"
    with pytest.raises(lora.AdapterError, match=said):
        lora.merged(build(str(base), seed=0).model, adapter)


@pytest.mark.parametrize("name", ["qwen3", "gpt2", "gpt_oss", "glm4_moe", "mamba2"])
def test_an_adapter_that_fits_passes_the_look(tmp_path: Path, name: str) -> None:
    base = zoo.saved(name, tmp_path / "base", tiny.build_tokenizer())
    config = RLRunConfig(base=str(base), adapter_init=str(fitting(base, tmp_path)))

    assert not look(config).problems


def fitting(base: Path, folder: Path) -> Path:
    return saved_adapter(base, folder / "fits", dict)


@pytest.mark.parametrize("initial", ["pissa", "olora"])
def test_a_look_computes_no_start_that_needs_the_weights(tmp_path: Path, initial: str) -> None:
    """How an adapter was begun is no reason to refuse it."""
    base = zoo.saved("llama", tmp_path / "base", tiny.build_tokenizer())
    adapter = fitting(base, tmp_path)
    rewrite(adapter / "adapter_config.json", init_lora_weights=initial)

    assert not look(RLRunConfig(base=str(base), adapter_init=str(adapter))).problems


@pytest.mark.requirement("RL-18")
def test_a_checkpoint_of_another_adapter_is_refused_at_a_resume(tmp_path: Path) -> None:
    base = zoo.saved("qwen3", tmp_path / "base", tiny.build_tokenizer())
    saved_adapter(base, tmp_path / "adapter", half)
    policy = build_policy(RLRunConfig(base=str(base), lora_rank=4))

    with pytest.raises(RLLoopError, match=r"the checkpoint's adapter .* no tensor for .*lora_B"):
        policy.load(tmp_path, version=1)


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes), "utf-8")


def refusals(**raw: Any) -> list[ConfigProblem]:
    with pytest.raises(ConfigError) as caught:
        validate("rl_run", {"data": {"source": "embedded:word-problems"}, **raw})
    return [problem for problem in caught.value.problems if problem.field == "adapter_init"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LoHaConfig(r=2, target_modules=["q_proj"]), "is a LOHA adapter"),
        (IA3Config(target_modules=["q_proj"], feedforward_modules=[]), "is a IA3 adapter"),
        (
            LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]),
            "holds weights of the base itself (modules_to_save: lm_head)",
        ),
        (
            LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=[4, 5]),
            "holds weights of the base itself (trainable_token_indices)",
        ),
    ],
)
def test_an_adapter_of_another_method_is_refused_at_enqueue(
    tmp_path: Path, config: Any, said: str
) -> None:
    base = zoo.saved("llama", tmp_path / "base", tiny.build_tokenizer())
    with lora.without_deprecations():
        made = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    made.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)

    [problem] = refusals(base=str(base), adapter_init=str(tmp_path / "adapter"))

    assert said in problem.problem


def base_cautions_of(base: str, named: Any, folder: Path) -> list[ConfigProblem]:
    adapter = folder / "adapter"
    adapter.mkdir(exist_ok=True)
    told = {"peft_type": "LORA", "base_model_name_or_path": named}
    (adapter / "adapter_config.json").write_text(json.dumps(told), "utf-8")
    raw = {"base": base, "adapter_init": str(adapter), "lr": 1e-5, "max_new_tokens": 400}
    found = cautions("rl_run", {"data": {"source": "embedded:word-problems"}, **raw})
    return [caution for caution in found if caution.field == "adapter_init"]


def test_an_adapter_that_names_another_base_is_cautioned_with_both_names(tmp_path: Path) -> None:
    """One model under two spellings is one model."""
    base = tmp_path / "Qwen3-8B"
    base.mkdir()
    (tmp_path / "link").symlink_to(base)
    [other] = base_cautions_of(str(base), "someone/Other-7B", tmp_path)
    [folder] = base_cautions_of(str(base), str(tmp_path / "elsewhere"), tmp_path)
    [hub] = base_cautions_of("org/one", "org/two", tmp_path)

    assert "someone/Other-7B" in other.problem
    assert str(base) in other.problem
    assert "elsewhere" in folder.problem
    assert "org/two" in hub.problem
    snapshot = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "0a1b"
    for one, named in (
        (str(base), str(base) + "/"),
        (str(base), str(tmp_path / "link")),
        (str(base), str(base / ".." / "Qwen3-8B")),
        (str(base), "Qwen/Qwen3-8B"),
        (str(snapshot), "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", str(snapshot)),
        ("Qwen/Qwen3-8B", "qwen/qwen3-8b"),
        (str(base), None),
        (str(base), ""),
    ):
        assert not base_cautions_of(one, named, tmp_path), named


def test_a_server_gets_no_adapter_of_stacked_experts(tmp_path: Path) -> None:
    """A new one leaves them out; one that is given is refused, by what it says and by what PEFT
    makes of it.
    """
    base = zoo.saved("qwen3_moe", tmp_path / "base", tiny.build_tokenizer())
    raw: Mapping[str, Any] = {"base": str(base), "rollout_backend": "vllm", "lora_rank": 4}
    adapter = fitting(base, tmp_path)

    policy = build_policy(RLRunConfig(**raw))
    [told] = refusals(**raw, adapter_init=str(adapter))

    assert not lora.reaches_stacks(policy.model)
    assert lora.coverage(policy.model).share < 0.5
    assert "vLLM takes no adapter of those" in told.problem
    with pytest.raises(RLLoopError, match="vLLM takes no adapter of those"):
        build_policy(RLRunConfig(**raw, adapter_init=str(adapter)))
    [looked] = look(RLRunConfig(**raw, adapter_init=str(adapter))).problems
    assert looked == told


def test_routers_stay_as_they_are(tmp_path: Path) -> None:
    """To move one changes which experts answer."""
    base = zoo.saved("mixtral", tmp_path / "base", tiny.build_tokenizer())
    policy = build_policy(RLRunConfig(base=str(base)))

    assert lora.coverage(policy.model).missed == "model.layers.0.mlp.gate.weight"
    assert lora.coverage(policy.model).share > 0.99


def test_what_is_adapted_of_a_model_can_be_bounded_by_its_names() -> None:
    model = lora.attach_zero(zoo.build("llama"), rank=2, alpha=2, seed=0, within=r".*self_attn")

    assert all("self_attn" in name for name, p in model.named_parameters() if p.requires_grad)
    assert lora.coverage(model, within=r".*self_attn") == lora.Coverage(1.0, None)
    assert lora.coverage(model).share < 0.5
    with pytest.raises(ValueError, match="no linear layer"):
        lora.attach_zero(zoo.build("llama"), rank=2, alpha=2, seed=0, within="nothing")


@pytest.mark.filterwarnings("ignore:The following .*_pattern keys:RuntimeWarning")  # PEFT's own
@pytest.mark.parametrize("name", ["mixtral", "glm4_moe", "gpt_oss", "qwen3"])
def test_an_adapter_that_another_trainer_put_on_all_linear_layers_loads_whole(
    tmp_path: Path, name: str
) -> None:
    """PEFT rewrites such targets by the family; what it saved must still find its layers."""
    base = zoo.saved(name, tmp_path / "base", tiny.build_tokenizer())
    loaded: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    with lora.without_deprecations():
        theirs: Any = moved(get_peft_model(loaded, config))
    theirs.eval().save_pretrained(tmp_path / "adapter", save_embedding_layers=False)

    policy = build_policy(RLRunConfig(base=str(base), adapter_init=str(tmp_path / "adapter")))

    torch.testing.assert_close(logits(policy.model), logits(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("tuning", "share", "level", "said"),
    [
        ("lora", 0.99, "info", "% of the weights in matrices"),
        ("dora", 0.1, "warning", "gate_up_proj and the like. PEFT has DoRA for linear layers"),
    ],
)
def test_a_run_says_what_its_adapter_reaches(
    base_recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    tmp_path: Path,
    tuning: str,
    share: float,
    level: str,
    said: str,
) -> None:
    """A note, a warning where it is little, and a figure on the run card."""
    base = zoo.saved("olmoe", tmp_path / "base", tiny.build_tokenizer())
    run = new_attempt(base_recipe | {"base": str(base), "tuning": tuning, "max_steps": 1})

    result = rl_run(open_newest(run))

    [note] = [event for event in events(run, "note") if event["code"] == "ADAPTER_REACH"]
    assert (note["level"], said in note["text"]) == (level, True)
    reach = result["lineage_card"]["adapter_reach"]
    assert share < reach["share"] < share + 0.02


def test_a_run_repeats_that_its_adapter_names_another_base(
    base_recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    tmp_path: Path,
) -> None:
    adapter = fitting(Path(base_recipe["base"]), tmp_path)
    rewrite(adapter / "adapter_config.json", base_model_name_or_path="someone/Other-7B")
    run = new_attempt(
        base_recipe | {"tuning": "lora", "adapter_init": str(adapter), "max_steps": 1}
    )

    rl_run(open_newest(run))

    said = [event["text"] for event in events(run, "note") if event["code"] == "CAUTION"]
    assert any("was trained on someone/Other-7B" in text for text in said)
