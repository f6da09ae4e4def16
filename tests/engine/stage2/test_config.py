"""The stage-2 YAML contract: every default, and every refusal with its field and remedy."""

from __future__ import annotations

import copy
import dataclasses
import math
import subprocess
import sys
import typing
from enum import Enum
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.stage2.config import (
    Stage2Config,
    TrainingConfig,
    read_config,
    read_yaml,
    world_size_problems,
)
from engine.contract.stage2.training_arguments import (
    CHOICES,
    FLAGS,
    NUMBERS,
    TRAINING_ARGUMENTS,
)
from engine.contract.stage2.unread import unread

AB = "stage2_ab"
CHANNEL_B = "stage2_ab.channel_b"
GATE = "stage2_ab.channel_b.semantic_desc_gate"
ROLLOUTS = "custom.extra.rollout_matching"
VLLM = "custom.extra.rollout_matching.vllm"
SERVER = "custom.extra.rollout_matching.vllm.server"
DECODING = "custom.extra.rollout_matching.decoding"
OTHER = "custom.extra.stage2_ab.channel_b"

ONE_SERVER = {"servers": [{"base_url": "http://127.0.0.1:8000", "group_port": 51216}]}


def smallest(variant: str = "stage2_ab_training") -> dict[str, Any]:
    """The least a config must say."""
    raw: dict[str, Any] = {"custom": {"trainer_variant": variant}}
    if variant == "stage2_ab_training":
        raw[AB] = {
            "schedule": {"b_ratio": 0.05},
            "channel_b": {"semantic_desc_gate": {"revision": "abc123"}},
        }
    return raw


def changed(*changes: tuple[str, Any], variant: str = "stage2_ab_training") -> dict[str, Any]:
    """The smallest config with values put at dotted paths."""
    raw = copy.deepcopy(smallest(variant))
    for path, value in changes:
        *sections, name = path.split(".")
        place = raw
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return raw


def problem_of(raw: dict[str, Any]) -> str:
    """The one line that is wrong with a config."""
    with pytest.raises(ConfigError) as caught:
        read_config(raw)
    (problem,) = caught.value.problems
    assert "\n" not in problem.line()
    assert problem.remedy
    return problem.line()


def value_at(config: Stage2Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


DEFAULTS = [
    (f"{AB}.n_softctx_iter", 2),
    (f"{AB}.softctx_grad_mode", "unroll"),
    (f"{AB}.softctx_temperature", 1.0),
    (f"{AB}.desc_ce_weight", 1.0),
    (f"{AB}.bbox_smoothl1_weight", 1.0),
    (f"{AB}.bbox_ciou_weight", 1.0),
    (f"{CHANNEL_B}.mode", "step"),
    (f"{CHANNEL_B}.rollouts_per_step", None),
    (f"{CHANNEL_B}.enable_pipeline", False),
    (f"{CHANNEL_B}.desc_ce_weight_matched", None),
    (f"{CHANNEL_B}.drop_invalid_struct_ce_multiplier", 1.0),
    (f"{GATE}.enabled", True),
    (f"{GATE}.threshold", 0.5),
    (f"{GATE}.model_name_or_path", "sentence-transformers/all-MiniLM-L6-v2"),
    (f"{ROLLOUTS}.rollout_backend", "vllm"),
    (f"{ROLLOUTS}.decode_batch_size", None),
    (f"{ROLLOUTS}.candidate_top_k", 5),
    (f"{ROLLOUTS}.iou_gate", 0.3),
    (f"{ROLLOUTS}.fp_cost", 0.5),
    (f"{ROLLOUTS}.fn_cost", 2.0),
    (f"{ROLLOUTS}.repeat_terminate.min_new_tokens", 1024),
    (f"{ROLLOUTS}.repeat_terminate.max_consecutive_token_repeats", 64),
    (f"{ROLLOUTS}.repeat_terminate.ngram_size", 64),
    (f"{ROLLOUTS}.repeat_terminate.ngram_repeats", 2),
    (f"{ROLLOUTS}.repeat_terminate.max_object_keys", 256),
    (f"{VLLM}.mode", "colocate"),
    (f"{VLLM}.gpu_memory_utilization", 0.45),
    (f"{VLLM}.tensor_parallel_size", None),  # 4, or as many as the lane has
    (f"{VLLM}.enable_lora", False),
    (f"{VLLM}.sync.mode", "full"),
    (f"{VLLM}.sync.fallback_to_full", True),
    (f"{DECODING}.temperature", 0.0),
    (f"{DECODING}.top_p", 1.0),
    (f"{DECODING}.top_k", -1),
    ("training.packing", False),
    ("training.packing_buffer", 256),
    ("training.packing_min_fill_ratio", 0.5),
    ("training.packing_drop_last", True),
]


@pytest.mark.requirement("AB-16", "AB-17", "AB-24", "RM-09")
@pytest.mark.parametrize(("path", "value"), DEFAULTS)
def test_defaults(path: str, value: Any) -> None:
    """What a config that says nothing means."""
    assert value_at(read_config(smallest()), path) == value


STAGE2_AB = [
    ("stage2_ab.schedule.b_ration", 0.5, "is not a setting; did you mean b_ratio?"),
    ("stage2_ab.n_softctx_iters", 2, "did you mean n_softctx_iter?"),
    (f"{CHANNEL_B}.rollouts_per_stp", 4, "did you mean rollouts_per_step?"),
    (f"{GATE}.treshold", 0.5, "did you mean threshold?"),
    ("stage2_ab.schedule.b_ratio", None, "must be given; set it in [0, 1]"),
    ("stage2_ab.schedule.b_ratio", True, "write a number"),
    ("stage2_ab.schedule.b_ratio", "0.5", "without quotes"),
    ("stage2_ab.schedule.b_ratio", 1.1, "use a smaller value"),
    ("stage2_ab.schedule.b_ratio", -0.1, "use a larger value"),
    ("stage2_ab.schedule.b_ratio", float("nan"), "stage2_ab.schedule.b_ratio"),
    ("stage2_ab.schedule.pattern", ["A", "B"], "set stage2_ab.schedule.b_ratio"),
    ("stage2_ab.schedule.pattern", None, "set stage2_ab.schedule.b_ratio"),
    ("stage2_ab.n_softctx_iter", 0, "use a larger value"),
    ("stage2_ab.n_softctx_iter", 1.5, "whole number"),
    ("stage2_ab.n_softctx_iter", True, "whole number"),
    ("stage2_ab.softctx_grad_mode", "detach", "did you mean em_detach?"),
    ("stage2_ab.softctx_temperature", 0, "use a larger value"),
    ("stage2_ab.desc_ce_weight", -1, "use a larger value"),
    ("stage2_ab.bbox_smoothl1_weight", -1, "use a larger value"),
    ("stage2_ab.bbox_ciou_weight", -1, "use a larger value"),
    ("stage2_ab.bbox_giou_weight", 1, "is not a setting"),
    (f"{CHANNEL_B}.mode", "micro", "use one of these"),
    (f"{CHANNEL_B}.rollouts_per_step", 0, "use a larger value"),
    (f"{CHANNEL_B}.desc_ce_weight_matched", -0.1, "use a larger value"),
    (f"{CHANNEL_B}.drop_invalid_struct_ce_multiplier", 0.9, "use a larger value"),
    (f"{CHANNEL_B}.drop_invalid_struct_ce_multiplier", 4.1, "use a smaller value"),
    (
        f"{CHANNEL_B}.enable_pipeline",
        True,
        "set enable_pipeline: false",
    ),
    (f"{CHANNEL_B}.enable_pipeline", "yes", "true or false"),
    (f"{GATE}.threshold", 1.01, "use a smaller value"),
    (f"{GATE}.threshold", -0.01, "use a larger value"),
    (f"{GATE}.enabled", 1, "true or false"),
    (f"{GATE}.revision", None, f"set {GATE}.revision"),
    (f"{GATE}.revision", "", f"{GATE}.revision"),
    (f"{GATE}.revision", 5, "write it in quotes: '5'"),
    (f"{GATE}.model_name_or_path", "", "model_name_or_path"),
]


@pytest.mark.requirement("AB-16", "AB-17", "AB-24")
@pytest.mark.parametrize(("path", "value", "guidance"), STAGE2_AB)
def test_stage2_ab_fails_fast(path: str, value: Any, guidance: str) -> None:
    """The error stands at the field and says what to write."""
    line = problem_of(changed((path, value)))

    assert line.startswith(f"{path}: ")
    assert guidance in line


CUSTOM = [
    ("custom.trainer_variant", "stage2_ab", "did you mean stage2_ab_training?"),
    ("custom.trainer_varian", "x", "did you mean trainer_variant?"),
    ("custom.extra.rollout_matchin", {}, "did you mean rollout_matching?"),
    (f"{OTHER}.mod", "step", "did you mean mode?"),
    (f"{OTHER}.rollouts_per_step", 0, "use a larger value"),
]


@pytest.mark.parametrize(("path", "value", "guidance"), CUSTOM)
def test_custom_fails_fast(path: str, value: Any, guidance: str) -> None:
    """`custom` and its extras are closed too."""
    with pytest.raises(ConfigError) as caught:
        read_config(changed((path, value)))

    lines = [problem.line() for problem in caught.value.problems]
    assert any(line.startswith(f"{path}: ") and guidance in line for line in lines)


ROLLOUT_MATCHING = [
    (f"{ROLLOUTS}.rollout_backend", "sglang", "use one of these"),
    (f"{ROLLOUTS}.max_new_token", 5, "did you mean max_new_tokens?"),
    (f"{ROLLOUTS}.decode_batch_size", 0, "use a larger value"),
    (f"{ROLLOUTS}.max_new_tokens", 0, "use a larger value"),
    (f"{ROLLOUTS}.repetition_penalty", 0, "use a larger value"),
    (f"{ROLLOUTS}.candidate_top_k", 0, "use a larger value"),
    (f"{ROLLOUTS}.iou_gate", 1.5, "use a smaller value"),
    (f"{ROLLOUTS}.fp_cost", -1, "use a larger value"),
    (f"{ROLLOUTS}.fn_cost", 1e7, "use a smaller value"),
    (f"{ROLLOUTS}.post_rollout_pack_scope", "macro", "did you mean micro?"),
    (f"{ROLLOUTS}.repeat_terminate.ngram_repeats", 1, "use a larger value"),
    (f"{VLLM}.mode", "remote", "use one of these"),
    (f"{VLLM}.gpu_memory_utilization", 0, "use a larger value"),
    (f"{VLLM}.gpu_memory_utilization", 1.1, "use a smaller value"),
    (f"{VLLM}.tensor_parallel_size", 0, "use a larger value"),
    (f"{VLLM}.sync.mode", "partial", "use one of these"),
    (f"{VLLM}.sync.mode", "adapter", "set vllm.enable_lora: true"),
    (f"{VLLM}.sync.fallback_to_ful", True, "did you mean fallback_to_full?"),
    (SERVER, {}, "names no server"),
    (SERVER, {"servers": []}, "servers"),
    (SERVER, ONE_SERVER | {"base_url": "http://a"}, "keep servers, remove the other keys"),
    (SERVER, {"base_url": "http://a"}, "give both"),
    (SERVER, {"group_port": 5}, "give both"),
    (SERVER, {"base_url": "http://a", "group_port": [5]}, "give one group_port"),
    (SERVER, {"base_url": ["http://a"], "group_port": [5, 6]}, "give one port per URL"),
    (SERVER, {"base_url": [], "group_port": 5}, "write http://127.0.0.1:8000"),
    (SERVER, {"base_url": 5, "group_port": 5}, "write http://127.0.0.1:8000"),
    (SERVER, {"base_url": "http://a", "group_port": "5"}, "write 51216"),
    (SERVER, {"base_url": "http://a", "group_port": True}, "write 51216"),
    (SERVER, {"base_url": "http://a", "group_port": 0}, "write 51216"),
    (SERVER, {"base_url": "a:8000", "group_port": 5}, "write http://HOST:PORT"),
    (SERVER, {"base_url": ["http://a", "http://a/"], "group_port": 5}, "once"),
    (SERVER, {"base_url": ["http://a", "http://b"], "group_port": 65535}, "lower group_port"),
    (SERVER, {"servers": [{"base_url": "http://a"}]}, "add it"),
    (SERVER, {"servers": [{"base_url": "http://a", "group_port": 70000}]}, "use a smaller value"),
    (SERVER, ONE_SERVER | {"timeout_s": 0}, "use a larger value"),
    (SERVER, ONE_SERVER | {"timeout_s": "240"}, "write 240, without quotes"),
    (SERVER, ONE_SERVER | {"infer_timeout_s": "no"}, "write a number"),
    (SERVER, ONE_SERVER | {"timout_s": 5}, "did you mean timeout_s?"),
]


@pytest.mark.parametrize(("path", "value", "guidance"), ROLLOUT_MATCHING)
def test_rollout_matching_fails_fast(path: str, value: Any, guidance: str) -> None:
    """For both trainers alike."""
    for variant in ("stage2_ab_training", "rollout_matching_sft"):
        line = problem_of(changed((path, value), variant=variant))

        assert line.startswith(path)
        assert guidance in line


@pytest.mark.requirement("RM-09")
@pytest.mark.parametrize(
    ("name", "value", "guidance"),
    [
        ("temperature", -0.1, "use a larger value"),
        ("temperature", "hot", "write a number"),
        ("top_p", 0, "use a larger value"),
        ("top_p", 1.1, "use a smaller value"),
        ("top_k", 0, "-1 samples from all"),
        ("top_k", -2, "-1 samples from all"),
        ("top_k", 1.5, "whole number"),
        ("top_kk", 5, "did you mean top_k?"),
    ],
)
def test_decoding_fails_fast(name: str, value: Any, guidance: str) -> None:
    """temperature >= 0, top_p in (0, 1], top_k -1 or at least 1."""
    line = problem_of(changed((f"{DECODING}.{name}", value)))

    assert line.startswith(f"{DECODING}.{name}: ")
    assert guidance in line


@pytest.mark.requirement("RM-09")
@pytest.mark.parametrize("value", [0.7, 0, None, {"enabled": False}])
@pytest.mark.parametrize("variant", ["stage2_ab_training", "rollout_matching_sft"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k", "rollout_buffer"])
def test_a_legacy_key_fails_by_being_there(name: str, variant: str, value: Any) -> None:
    """Whatever its value, null too; the message is the migration."""
    line = problem_of(changed((f"{ROLLOUTS}.{name}", value), variant=variant))

    assert line.startswith(f"{ROLLOUTS}.{name}: ")
    wanted = "remove rollout_buffer" if name == "rollout_buffer" else f"set {DECODING}.{name}"
    assert wanted in line


def test_no_legacy_key_is_ever_suggested() -> None:
    """`did you mean` names only what works."""
    assert "temperature" not in problem_of(changed((f"{ROLLOUTS}.temperatur", 1)))
    assert "pattern" not in problem_of(changed((f"{AB}.schedule.patern", 1)))


@pytest.mark.requirement("AB-25")
@pytest.mark.parametrize("value", [None, 5, {"enabled": True, "anything": [1]}, "x"])
def test_coord_loss_is_ignored_silently(value: Any) -> None:
    """A config of an older stage still reads, to the same result."""
    with_it = read_config(changed(("custom.coord_loss", value)))

    assert with_it == read_config(smallest())
    assert "coord_loss" not in with_it.custom.model_dump()


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 0.3])
def test_b_ratio_takes_both_ends(value: float) -> None:
    """0 never, 1 always."""
    config = read_config(changed((f"{AB}.schedule.b_ratio", value)))

    assert value_at(config, f"{AB}.schedule.b_ratio") == value


def test_a_missing_section_names_what_it_needs() -> None:
    """The whole mapping, its schedule, or the ratio: each time the ratio is named."""
    without = smallest()
    del without[AB]
    assert problem_of(without).startswith("stage2_ab: is missing")
    assert "stage2_ab.schedule.b_ratio" in problem_of(without)
    unscheduled = smallest()
    del unscheduled[AB]["schedule"]
    assert problem_of(unscheduled).startswith("stage2_ab.schedule.b_ratio: must be given")


@pytest.mark.requirement("AB-24")
def test_a_gate_that_is_off_needs_no_revision() -> None:
    """Pinned while enabled, which is the default."""
    raw = smallest()
    raw[AB]["channel_b"] = {}
    assert problem_of(raw).startswith(f"{GATE}.revision: is required")
    raw[AB]["channel_b"] = {"semantic_desc_gate": {"enabled": False}}
    assert read_config(raw).stage2_ab is not None


@pytest.mark.requirement("AB-17")
def test_the_matched_weight_falls_back_to_the_desc_weight() -> None:
    """Given or not."""
    for given, effective in ((None, 0.7), (0.2, 0.2), (0, 0)):
        config = read_config(
            changed((f"{AB}.desc_ce_weight", 0.7), (f"{CHANNEL_B}.desc_ce_weight_matched", given))
        )
        assert config.stage2_ab is not None
        assert config.stage2_ab.desc_ce_weight_matched == effective


def test_both_spellings_of_channel_b_are_read() -> None:
    """`custom.extra.stage2_ab.channel_b` fills what the canonical place leaves unsaid."""
    other = read_config(changed((f"{OTHER}.rollouts_per_step", 32), (f"{OTHER}.mode", "step")))
    both = read_config(
        changed((f"{OTHER}.rollouts_per_step", 32), (f"{CHANNEL_B}.rollouts_per_step", 32))
    )

    assert value_at(other, f"{CHANNEL_B}.rollouts_per_step") == 32
    assert value_at(both, f"{CHANNEL_B}.rollouts_per_step") == 32


def test_two_values_for_one_knob_are_refused() -> None:
    """Neither place wins silently."""
    line = problem_of(
        changed((f"{OTHER}.rollouts_per_step", 32), (f"{CHANNEL_B}.rollouts_per_step", 16))
    )

    assert line.startswith(f"{CHANNEL_B}.rollouts_per_step: differs from {OTHER}")


def test_reading_does_not_change_what_was_given() -> None:
    """The caller's mapping stays as it was."""
    raw = changed((f"{OTHER}.rollouts_per_step", 32))
    before = copy.deepcopy(raw)

    read_config(raw)

    assert raw == before


@pytest.mark.parametrize("section", ["stage2_ab", "custom.extra.stage2_ab"])
def test_the_other_trainer_refuses_a_section_it_does_not_read(section: str) -> None:
    """A knob without effect is a mistake."""
    value: Any = smallest()[AB] if section == AB else {}
    line = problem_of(changed((section, value), variant="rollout_matching_sft"))

    assert line.startswith(f"{section}: is not read by trainer_variant rollout_matching_sft")


def test_server_mode_needs_servers() -> None:
    """With both ways out named."""
    line = problem_of(changed((f"{VLLM}.mode", "server")))

    assert line.startswith(f"{SERVER}: is missing")
    assert "rollout_backend: hf" in line


def test_the_pipeline_is_allowed_on_servers() -> None:
    """Their own devices; and packs, which are what is learnt while servers draw."""
    config = read_config(
        changed(
            (f"{CHANNEL_B}.enable_pipeline", True),
            ("training.packing", True),
            ("global_max_length", 12000),
            (f"{VLLM}.mode", "server"),
            (SERVER, ONE_SERVER),
        )
    )

    assert value_at(config, f"{CHANNEL_B}.enable_pipeline") is True


@pytest.mark.parametrize(
    ("server", "pairs"),
    [
        (ONE_SERVER, [("http://127.0.0.1:8000", 51216)]),
        ({"base_url": "http://a", "group_port": 5}, [("http://a", 5)]),
        (
            {"base_url": ["http://a", "https://b"], "group_port": [5, 9]},
            [("http://a", 5), ("https://b", 9)],
        ),
        (
            {"base_url": ["http://a", "http://b"], "group_port": 5},
            [("http://a", 5), ("http://b", 6)],
        ),
    ],
)
def test_both_forms_name_the_same_servers(
    server: dict[str, Any], pairs: list[tuple[str, int]]
) -> None:
    """List form, or paired lists; one port for several URLs counts up by index."""
    found = read_config(changed((SERVER, server))).custom.extra.rollout_matching.vllm.server

    assert found is not None
    assert [(one.base_url, one.group_port) for one in found.resolved()] == pairs


@pytest.mark.parametrize(("given", "limit"), [(None, None), (0, None), (-1, None), (2.5, 2.5)])
def test_no_infer_timeout_is_no_limit(given: Any, limit: Any) -> None:
    """Null and anything up to 0 wait without limit; reachability waits 240 s."""
    config = read_config(changed((SERVER, ONE_SERVER | {"infer_timeout_s": given})))
    server = config.custom.extra.rollout_matching.vllm.server

    assert server is not None
    assert (server.read_timeout_s, server.timeout_s) == (limit, 240.0)


@pytest.mark.parametrize(
    ("mode", "enable_lora", "resolved"),
    [
        ("full", True, "full"),
        ("auto", True, "adapter"),
        ("auto", False, "full"),
        ("adapter", True, "adapter"),
    ],
)
def test_sync_auto_follows_the_engine(mode: str, enable_lora: bool, resolved: str) -> None:
    """The adapter where the engine takes one."""
    config = read_config(changed((f"{VLLM}.sync.mode", mode), (f"{VLLM}.enable_lora", enable_lora)))

    assert config.custom.extra.rollout_matching.vllm.sync_mode == resolved


@pytest.mark.parametrize("mode", ["adapter", "auto"])
def test_several_ranks_sync_in_full_only(mode: str) -> None:
    """One rank, full sync or no server is fine."""
    server = [(f"{VLLM}.mode", "server"), (SERVER, ONE_SERVER), (f"{VLLM}.enable_lora", True)]
    config = read_config(changed(*server, (f"{VLLM}.sync.mode", mode)))

    (problem,) = world_size_problems(config, 2)

    assert problem.line().startswith(f"{VLLM}.sync.mode: ")
    assert "set sync.mode: full" in problem.line()
    assert world_size_problems(config, 1) == []
    assert world_size_problems(read_config(changed(*server)), 8) == []
    hf = changed(("custom.extra.rollout_matching.rollout_backend", "hf"))
    assert world_size_problems(read_config(hf), 8) == []


TRAINING = [
    ("training.learning_rat", 1e-5, "did you mean learning_rate?"),
    ("training.packin", True, "did you mean packing?"),
    ("training.per_device_train_batch_size", 0, "use a larger value"),
    ("training.effective_batch_size", "32", "whole number"),
    ("training.remove_unused_columns", True, "set it to false"),
    ("training.packing_buffer", 0, "use a larger value"),
    ("training.packing_drop_last", False, "leave it out"),
    ("training.packing_min_fill_ratio", 1.5, "use a smaller value"),
    ("model.pat", "x", "did you mean path?"),
    ("model.tuning", "qlora", "did you mean lora?"),
    ("data.train_json", "x", "did you mean train_jsonl?"),
    ("global_max_lengt", 5, "did you mean global_max_length?"),
    ("global_max_length", 0, "use a larger value"),
]


@pytest.mark.parametrize(("path", "value", "guidance"), TRAINING)
def test_training_model_and_data_refuse_what_nobody_knows(
    path: str, value: Any, guidance: str
) -> None:
    """They take what their arguments classes know, and name the nearest for the rest."""
    line = problem_of(changed((path, value)))

    assert line.startswith(f"{path}: ")
    assert guidance in line


def test_training_takes_any_argument_of_transformers() -> None:
    """Passed on as given; also next to our own."""
    config = read_config(
        changed(("training.learning_rate", 2e-5), ("training.remove_unused_columns", False))
    )

    assert config.training.model_extra == {"learning_rate": 2e-5, "remove_unused_columns": False}


def test_the_names_of_the_arguments_are_the_installed_classes() -> None:
    """The torch-free list is the list of the class."""
    from transformers import TrainingArguments  # noqa: PLC0415 - heavy, and only here

    assert {field.name for field in dataclasses.fields(TrainingArguments)} == TRAINING_ARGUMENTS


def test_the_kinds_and_choices_of_the_arguments_are_the_installed_classes() -> None:
    """What is a flag, a number, or one of a few words there, is judged as one here."""
    from transformers import TrainingArguments  # noqa: PLC0415 - heavy, and only here

    kinds = typing.get_type_hints(TrainingArguments)
    members = {name: set(typing.get_args(kind)) or {kind} for name, kind in kinds.items()}
    own = TrainingConfig.model_fields.keys()
    fields = {field.name for field in dataclasses.fields(TrainingArguments)} - own

    def of(*wanted: type) -> set[str]:
        return {name for name in fields if members[name] - {type(None)} <= {*wanted}}

    assert of(bool) == FLAGS
    assert of(int) == {name for name, taken in NUMBERS.items() if taken.whole}
    assert of(int, float) == NUMBERS.keys()
    words = {
        name: tuple(member.value for member in enum)
        for name in fields - {"eval_strategy", "save_strategy", "hub_strategy"}
        for enum in members[name]
        if isinstance(enum, type) and issubclass(enum, Enum)
    }
    assert words == {name: CHOICES[name] for name in words}
    assert words.keys() == {"lr_scheduler_type", "optim", "logging_strategy"}


ARGUMENTS = [
    ("learning_rate", "2e-4x", "is text", "without quotes"),
    ("learning_rate", [1], "is no number", "write one"),
    ("learning_rate", True, "is no number", "write one"),
    ("learning_rate", math.nan, "is no finite number", "write one"),
    ("learning_rate", -1e-4, "must be 0 or more", "larger"),
    ("adam_beta2", 1, "must be less than 1", "smaller"),
    ("max_steps", 2.5, "is no whole number", "write one"),
    ("max_steps", 2**31, "must be less than", "smaller"),
    ("data_seed", 10**400, "must be less than", "smaller"),
    ("eval_steps", 0, "is no number of steps", "or a share of the run"),
    ("save_steps", 1.5, "is no number of steps", "from 1 on"),
    ("bf16", "yes", "is no truth value", "true or false"),
    ("lr_scheduler_type", "cosin", "is not one of its values", "did you mean cosine?"),
    ("optim", "muon", "is not one of its values", "known: adamw_torch, "),
    ("train_sampling_strategy", "group_by_length", "is not one", "known: random, sequential"),
    ("log_level", 3, "is not one of its values", "known: passive, "),
]


@pytest.mark.parametrize(("name", "value", "problem", "remedy"), ARGUMENTS)
def test_a_value_that_transformers_would_stumble_over_is_refused_at_once(
    name: str, value: Any, problem: str, remedy: str
) -> None:
    """The class itself takes them; some fail hours later, and some do something else."""
    line = problem_of(changed((f"training.{name}", value)))

    assert line.startswith(f"training.{name}: {problem}")
    assert remedy in line


@pytest.mark.parametrize("value", [1, 20, 0.25, 1.0, None])
def test_steps_are_counted_or_a_share(value: float | None) -> None:
    """And null stands for the default."""
    config = read_config(changed(("training.eval_steps", value)))

    assert config.training.passed_on.get("eval_steps") == value


def test_packing_needs_a_capacity() -> None:
    """`global_max_length` is the capacity of a pack."""
    line = problem_of(changed(("training.packing", True)))

    assert line.startswith("global_max_length: is missing with training.packing")
    read_config(changed(("training.packing", True), ("global_max_length", 12000)))


def test_a_pack_is_the_batch_of_a_packed_run() -> None:
    """A batch beside it would be read nowhere; how much an update learns is said elsewhere."""
    packing = [("training.packing", True), ("global_max_length", 12000)]
    two = ("training.per_device_train_batch_size", 2)

    line = problem_of(changed(*packing, two))

    assert line.startswith("training.per_device_train_batch_size: is 1 with training.packing")
    assert "effective_batch_size" in line
    read_config(changed(two))
    read_config(changed(*packing, ("training.effective_batch_size", 2)))


@pytest.mark.parametrize(
    ("path", "value", "reader"),
    [
        ("training.packing_buffer", 9, ("training.packing", True)),
        ("training.packing_min_fill_ratio", 0.9, ("training.packing", True)),
        (f"{ROLLOUTS}.post_rollout_pack_scope", "window", ("training.packing", True)),
        ("model.lora_rank", 8, ("model.tuning", "lora")),
        (f"{DECODING}.top_p", 0.9, (f"{DECODING}.temperature", 0.7)),
        (f"{DECODING}.top_k", 5, (f"{DECODING}.temperature", 0.7)),
        (f"{VLLM}", {"max_model_len": 99}, (f"{ROLLOUTS}.rollout_backend", "vllm")),
        (f"{AB}.softctx_temperature", 0.5, (f"{AB}.n_softctx_iter", 2)),
        (f"{AB}.softctx_grad_mode", "em_detach", (f"{AB}.n_softctx_iter", 2)),
    ],
)
def test_a_setting_that_another_one_switches_off_is_said(
    path: str, value: Any, reader: tuple[str, Any]
) -> None:
    """It may stand there; what would read it is named. At its default nothing is said."""
    off = [
        *(("global_max_length", 400), ("model.tuning", "full"), (f"{AB}.n_softctx_iter", 1)),
        (f"{ROLLOUTS}.rollout_backend", "hf"),
    ]

    (said,) = unread(read_config(changed(*off, (path, value))))

    assert (said.field, said.problem) == (path, "is not read")
    assert reader[0] in said.remedy
    assert list(unread(read_config(changed(*off)))) == []
    assert list(unread(read_config(changed(*off, (path, value), reader)))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [("custom.coord_soft_ce_w1", {"target_sigma": 5}), (f"{ROLLOUTS}.desc_ce_weight", 0.5)],
)
def test_a_setting_of_the_other_trainer_is_said(path: str, value: Any) -> None:
    """`stage2_ab` has no distribution over coord bins, and weighs descriptions by settings of its
    own.
    """
    (said,) = unread(read_config(changed((f"{ROLLOUTS}.rollout_backend", "hf"), (path, value))))

    assert (said.field, said.problem) == (path, "is not read")
    assert "trainer_variant: rollout_matching_sft" in said.remedy


def test_effective_batch_size_and_accumulation_exclude_each_other() -> None:
    """One follows from the other."""
    line = problem_of(
        changed(("training.effective_batch_size", 32), ("training.gradient_accumulation_steps", 8))
    )

    assert line.startswith("training.gradient_accumulation_steps: follows from")


@pytest.mark.parametrize(
    ("changes", "world", "rollouts"),
    [
        ([], 1, 1),
        ([("training.effective_batch_size", 32)], 3, 33),
        (
            [("training.effective_batch_size", 32), ("training.per_device_train_batch_size", 4)],
            3,
            36,
        ),
        ([("training.gradient_accumulation_steps", 8)], 4, 32),
        (
            [("training.gradient_accumulation_steps", 8), (f"{CHANNEL_B}.rollouts_per_step", 5)],
            4,
            5,
        ),
    ],
)
def test_rollouts_per_step_defaults_to_the_effective_batch(
    changes: list[tuple[str, Any]], world: int, rollouts: int
) -> None:
    """per-device × ranks × accumulation, rounded up to whole forward passes."""
    assert read_config(changed(*changes)).rollouts_per_step(world) == rollouts


def test_every_problem_is_reported_at_once() -> None:
    """A person corrects a config in one go."""
    with pytest.raises(ConfigError) as caught:
        read_config(
            changed(
                (f"{AB}.n_softctx_iter", 0),
                (f"{ROLLOUTS}.temperature", 1),
                ("training.learning_rat", 1),
                ("training.savesteps", 1),
                ("custom.trainer_variant", "x"),
            )
        )

    assert sorted(problem.field for problem in caught.value.problems) == [
        "custom.extra.rollout_matching.temperature",
        "custom.trainer_variant",
        "stage2_ab.n_softctx_iter",
        "training.learning_rat",
        "training.savesteps",
    ]


def test_a_resolved_config_reads_back_as_itself() -> None:
    """job.json carries the dump; the engine reads it again."""
    config = read_config(
        changed(
            (SERVER, ONE_SERVER),
            ("custom.coord_loss", 1),
            (f"{OTHER}.rollouts_per_step", 3),
            ("training.learning_rate", 1e-5),
        )
    )

    again = read_config(config.model_dump(mode="json"))

    assert again.model_dump() == config.model_dump()
    assert Stage2Config.model_json_schema()["properties"].keys() >= {"custom", "stage2_ab"}
    assert "rollout_buffer" not in str(
        Stage2Config.model_json_schema()["$defs"]["RolloutMatchingConfig"]["properties"]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("custom: [", "not valid YAML"),
        ("- a", "not a mapping"),
        ("custom: {trainer_variant: a}\ncustom: {}", "stands twice"),
        ("stage2_ab: 5\ncustom: {trainer_variant: stage2_ab_training}", "stage2_ab: "),
        ("custom: 5", "custom: "),
        (
            "stage2_ab: {channel_b: 5, schedule: {b_ratio: 1}}\ncustom: {trainer_variant: "
            "stage2_ab_training, extra: {stage2_ab: {channel_b: {mode: step}}}}",
            "stage2_ab.channel_b: ",
        ),
    ],
)
def test_a_document_of_another_shape_is_one_line(text: str, message: str) -> None:
    """No traceback for what a person typed."""
    with pytest.raises(ConfigError, match=message) as caught:
        read_yaml(text)

    assert all("\n" not in problem.line() for problem in caught.value.problems)


def test_yaml_reads_like_the_mapping() -> None:
    """A whole document, with a number in exponent form."""
    config = read_yaml(
        "custom: {trainer_variant: stage2_ab_training}\n"
        "training: {learning_rate: 2e-5}\n"
        "stage2_ab:\n"
        "  schedule: {b_ratio: 0.05}\n"
        "  channel_b: {semantic_desc_gate: {revision: abc123}}\n"
    )

    assert config == read_config(changed(("training.learning_rate", 2e-5)))


def test_the_config_imports_no_torch() -> None:
    """App and worker read it at every door."""
    code = "import sys, engine.contract.stage2.config as c; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_the_seed_of_a_run_is_that_of_its_training() -> None:
    """The supervisor asks a config of any kind for `seed`, and writes it into job.json."""
    config = read_config(changed(("training.seed", 200)))

    assert config.seed == 200
    assert "seed" not in config.model_dump()
