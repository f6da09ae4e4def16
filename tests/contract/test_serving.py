"""What a config may ask of a serving lane, and what an operator may set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine.contract.errors import ConfigError
from engine.contract.hub import in_hub_cache
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.registry import cautions, get_kind, validate
from engine.contract.serving import Serving

SERVED = {"base": "embedded:qwen3-tiny", "rollout_backend": "vllm"}


def lines(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate("rl_run", raw)
    return [problem.line() for problem in caught.value.problems]


def test_the_trainers_own_model_samples_unless_a_server_is_asked_for() -> None:
    """Nothing is served by default; who asks for it starts the serving program."""
    kind = get_kind("rl_run")

    assert not kind.serves(validate("rl_run", {"base": "embedded:qwen3-tiny"}))
    assert kind.serves(validate("rl_run", SERVED))


@pytest.mark.requirement("RL-09")
@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"tuning": "full", "vllm": {"sync": {"mode": "adapter"}}},
            "vllm.sync.mode: sends LoRA adapters, and tuning is full (got 'adapter'); "
            "set vllm.sync.mode: auto (merged weights), or tuning: lora",
        ),
        (
            {"tuning": "dora", "vllm": {"sync": {"mode": "adapter"}}},
            "vllm.sync.mode: sends LoRA adapters, and tuning is dora (got 'adapter'); "
            "set vllm.sync.mode: auto (merged weights), or tuning: lora",
        ),
        (
            {"lora_rank": 1024},
            "lora_rank: is more than vLLM serves as an adapter (512) (got 1024); "
            "lower it, or set vllm.sync.mode: full",
        ),
        (
            {
                "vllm": {"mode": "colocate"},
                "buffer": {"max_staleness": 1},
                "objective": {"sampler_correction": "tis"},
            },
            "buffer.max_staleness: draws while a step trains, and a colocated engine gives its "
            "memory back then (got 1); set vllm.mode: server, or buffer.max_staleness: 0",
        ),
        (
            {"temp": 3},
            "temp: is more than vLLM takes with rollout_backend: vllm (2) (got 3.0); "
            "lower it, or set rollout_backend: hf",
        ),
        (
            {"sampling": {"top_p": 0.9}},
            "sampling: reshapes the draw, and a server tells only the reshaped log-probabilities; "
            "leave top_p, top_k, min_p and repetition_penalty out, or set rollout_backend: hf",
        ),
        (
            {"buffer": {"max_staleness": 1}},
            "buffer.max_staleness: trains on rollouts that older weights drew, and nothing "
            "corrects for that (got 1); set objective.sampler_correction: tis, or max_staleness: 0",
        ),
    ],
)
def test_what_a_server_cannot_do_is_refused_when_it_is_enqueued(
    change: dict[str, Any], line: str
) -> None:
    """By name, with what to write instead; without a server all of it is fine."""
    assert lines(SERVED | change) == [line]
    own = {name: value for name, value in change.items() if name != "vllm"}
    validate("rl_run", {**SERVED, **own, "rollout_backend": "hf"})


@pytest.mark.parametrize(
    ("tuning", "mode", "sent"),
    [
        ("lora", "auto", "adapter"),
        ("lora", "full", "full"),
        ("dora", "auto", "full"),
        ("full", "auto", "full"),
    ],
)
def test_adapters_are_sent_of_lora_and_merged_weights_of_all_else(
    tuning: str, mode: str, sent: str
) -> None:
    config = RLRunConfig.model_validate(
        SERVED | {"tuning": tuning, "vllm": {"sync": {"mode": mode}}}
    )

    assert config.sync_mode == sent


def test_a_vllm_section_that_nobody_reads_is_refused() -> None:
    """The trainer's own model samples: a mode or a server list would be forgotten silently."""
    raw = {"base": "embedded:qwen3-tiny", "vllm": {"mode": "colocate"}}

    assert lines(raw) == [
        "vllm: is read with rollout_backend: vllm alone, and this is hf; set that, or leave vllm "
        "out"
    ]


@pytest.mark.requirement("RM-03")
@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({}, "names no server"),
        ({"servers": []}, "servers"),
        ({"base_url": "http://a:8000"}, "names base_url or group_port alone"),
        ({"base_url": ["http://a:1", "http://b:1"], "group_port": [1]}, "one port per URL"),
        ({"base_url": "http://a:1", "group_port": [1, 2]}, "give one group_port"),
        ({"base_url": "a:8000", "group_port": 1}, "is no http URL"),
        ({"base_url": "http://a:99999", "group_port": 1}, "no port in 1..65535"),
        ({"base_url": "http://:8000", "group_port": 1}, "names no host"),
        (
            {"servers": [{"base_url": "http://a:1", "group_port": 1}], "launch": {}},
            "names servers and launches its own",
        ),
        ({"servers": [{"base_url": "http://a:1", "group_port": 1}] * 2}, "lists a server twice"),
        ({"launch": {"replicas": 0}}, "launch.replicas"),
    ],
)
def test_servers_are_named_in_one_form_or_refused(server: dict[str, Any], said: str) -> None:
    """Before the first step, with what to write instead."""
    [line] = lines(SERVED | {"vllm": {"server": server}})

    assert line.startswith("vllm.server")
    assert said in line


@pytest.mark.requirement("EX-15")
@pytest.mark.parametrize(
    ("backend", "buffer", "ahead"),
    [
        ("vllm", {}, False),
        ("vllm", {"max_staleness": 1}, True),
        ("vllm", {"max_staleness": 2, "max_reads": 2}, False),
        ("hf", {"max_staleness": 1}, False),
    ],
)
def test_a_server_draws_ahead_where_rollouts_may_be_stale_and_are_read_once(
    backend: str, buffer: dict[str, int], ahead: bool
) -> None:
    """Synchronous is the default; what samples with the weights that train cannot draw ahead."""
    raw = {"base": "embedded:qwen3-tiny", "rollout_backend": backend, "buffer": buffer}
    corrected = raw | {"objective": {"sampler_correction": "tis"}}

    assert RLRunConfig.model_validate(corrected).draws_ahead is ahead
    fields = [caution.field for caution in cautions("rl_run", corrected)]
    assert ("buffer.max_staleness" in fields) is (backend == "hf")


def test_the_tolerance_of_a_sync_follows_the_precision() -> None:
    """bfloat16 rounds by more than a step of training moves a log-probability."""
    exact = RLRunConfig.model_validate(SERVED)
    rounded = RLRunConfig.model_validate(SERVED | {"optim": {"precision": "bf16"}})
    own = RLRunConfig.model_validate(SERVED | {"sync_tolerance": 0.5})

    assert exact.sync_tolerance_used == 0.01
    assert rounded.sync_tolerance_used == 0.15
    assert own.sync_tolerance_used == 0.5


@pytest.mark.requirement("LN-04")
def test_a_server_beside_the_trainer_is_in_the_envelope() -> None:
    """Its own copy of the weights, its keys and values, its program; all the time."""
    kind = get_kind("rl_run")
    alone = kind.envelope(validate("rl_run", SERVED | {"rollout_backend": "hf"}))
    beside = kind.envelope(validate("rl_run", SERVED))

    assert alone is not None
    assert beside is not None
    assert (alone.serving, beside.kv_cache) == (0.0, 0.0)
    # 0.4 M weights in fp32, one GiB of keys and values, and 1.7 GB of program
    assert beside.serving == pytest.approx(0.0016 + 1.074 + 1.7, abs=0.001)
    assert beside.total > alone.total + 2.7 - alone.kv_cache
    ahead = {"buffer": {"max_staleness": 2}, "objective": {"sampler_correction": "tis"}}
    stale = kind.envelope(validate("rl_run", SERVED | ahead))
    assert stale is not None
    # the step-0 policy, and the weights of each of two batches drawn ahead
    assert stale.reference == pytest.approx(3 * beside.reference)


@pytest.mark.requirement("LN-12")
def test_a_run_without_a_base_takes_the_established_one_and_says_what_that_costs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """FK_RL_BASE_MODEL, else Qwen/Qwen2.5-7B-Instruct: at every door, before anything is queued."""
    monkeypatch.delenv("FK_RL_BASE_MODEL", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    prompting = {"skip_chat_template": False}  # it is an instruct model
    data = {"source": "embedded:word_problems"}
    bare = {"data": data, "tuning": "full", "prompting": prompting}

    config = validate("rl_run", bare)

    assert isinstance(config, RLRunConfig)
    assert config.base == "Qwen/Qwen2.5-7B-Instruct"
    assert [problem.line() for problem in cautions("rl_run", bare)] == [
        "base: is not on this machine: the run begins with its download (15 GB) "
        "(got 'Qwen/Qwen2.5-7B-Instruct'); set base to a model folder, or FK_RL_BASE_MODEL to "
        "what is meant where none is given"
    ]
    snapshot = tmp_path / "models--Qwen--Qwen2.5-7B-Instruct" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert in_hub_cache("Qwen/Qwen2.5-7B-Instruct")
    assert not cautions("rl_run", bare)


@pytest.mark.requirement("RL-10")
def test_a_pin_that_nobody_checks_is_said_when_it_is_enqueued() -> None:
    """It stands on the run card; the trainer's own model has no such version."""
    pinned = {"lr": 1e-5, "vllm_pin": "0.32.0"}

    [said] = cautions("rl_run", {"base": "embedded:qwen3-tiny"} | pinned)

    assert said.field == "vllm_pin"
    assert "is recorded and not checked" in said.line()
    assert not cautions("rl_run", SERVED | pinned)


@pytest.mark.parametrize(
    ("url", "host", "port", "here"),
    [
        ("http://localhost:8000/v1", "127.0.0.1", 8000, True),
        ("http://localhost:8000/v1/", "127.0.0.1", 8000, True),
        ("http://[::1]:81/v1", "::1", 81, True),
        ("https://box.lan/v1", "127.0.0.1", 443, False),
    ],
)
def test_an_address_says_where_a_server_of_ours_would_listen(
    url: str, host: str, port: int, here: bool
) -> None:
    """On this machine alone, and only where the address is one of this machine."""
    found = Serving(url=url)

    assert (found.host, found.port, found.here) == (host, port, here)
    assert found.root + "/v1" == found.url


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x/v1", "http://", "http://a:99999/v1", "http://a/v1?x=1", "x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """In one line, with how to write it."""
    with pytest.raises(ValidationError, match=r"write it like http://localhost:8000/v1"):
        Serving(url=url)
