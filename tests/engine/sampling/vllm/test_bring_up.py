"""What can be wrong with a serving lane: one line with a remedy, and nothing left running."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.errors import RLLoopError
from engine.contract.served import RunVLLMConfig
from engine.contract.serving import Serving
from engine.data import word_problems
from engine.data.rows import Question
from engine.models import lora
from engine.models.policy import Policy, build
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.vllm import lane as lanes
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Request, ServerError, ServerLostError
from engine.sampling.vllm.lane import Rested, ServingLane
from engine.sampling.vllm.launch import Needs, same_version, serve_command
from engine.sampling.vllm.replica import Replica
from tests.engine.sampling.vllm.canned import Canned
from tests.engine.sampling.vllm.conftest import STAND_IN, free_port, lane_of

TASKS = [Question(*row) for row in word_problems.rows()[:2]]
SILENT = f"{sys.executable} -c 'import time; time.sleep(3600)'"


@pytest.fixture
def policy(chat_base: Path) -> Policy:
    """With a fresh adapter."""
    policy = build(str(chat_base), 0)
    base = str(chat_base)
    policy.model = lora.attach_zero(policy.model, base=base, rank=4, alpha=8, seed=1)
    return policy


@pytest.fixture
def new_lane(policy: Policy, chat_base: Path, tmp_path: Path) -> Callable[..., ServingLane]:
    """`new_lane(serving, version="0.31.0")`."""

    def new(serving: Serving, **needs: Any) -> ServingLane:
        more = {name: needs.pop(name) for name in ("vllm", "before", "rested") if name in needs}
        asked: dict[str, Any] = {"window": 120, "version": None}
        return ServingLane(
            serving,
            Needs(
                **{
                    "base": str(chat_base), "dtype": "float32", "at_once": 8, "rank": 4,
                    "kv_gib": 1, **asked, **needs,
                }
            ),
            policy,
            contexts=[policy.encode(task.prompt) for task in TASKS],
            folder=tmp_path / "serving",
            log=tmp_path / "serving.log",
            tolerance=0.01,
            say=lambda *_: None,
            **more,
        )  # fmt: skip

    return new


@pytest.fixture
def canned(chat_base: Path) -> Iterator[Canned]:
    """A server that answers by heart: the right base, a version, no adapter route."""
    with Canned() as server:
        server.serve(str(chat_base))
        yield server


NewLane = Callable[..., ServingLane]


def refused(lane: ServingLane, error: type[Exception] = RLLoopError) -> str:
    """The line with which the lane does not come up; nothing of it is left."""
    with pytest.raises(error) as caught, lane:
        lane.bring()
    line = str(caught.value)
    assert "\n" not in line
    assert not any(replica.ours for replica in lane._replicas)
    assert not lane._folder.exists()
    return line


def test_a_serve_command_that_fails_is_told_with_its_last_words(new_lane: NewLane) -> None:
    """At once, not after the time limit."""
    began = time.monotonic()

    line = refused(new_lane(lane_of(f"{sys.executable} -c 'raise SystemExit(\"no GPU here\")'")))

    assert "NIGHTLANE_SERVE_CMD: ended with status 1 before it was healthy: no GPU here" in line
    assert "look at " in line
    assert time.monotonic() - began < 60


def test_a_socket_that_the_last_engine_left_is_in_nobodys_way(
    new_lane: NewLane, tmp_path: Path
) -> None:
    """vLLM does not remove it when it ends, and cannot bind a path that is there."""
    path = tmp_path / "vllm.sock"
    path.touch()
    look = f'import os; raise SystemExit("there" if os.path.exists("{path}") else "gone")'
    serving = lane_of(f"{sys.executable} -c '{look}'").model_copy(update={"socket": path})

    assert "ended with status 1 before it was healthy: gone" in refused(new_lane(serving))


def test_a_program_that_is_not_there_is_named(new_lane: NewLane) -> None:
    """As without a cockpit, whose governor defers such a run before it starts."""
    line = refused(new_lane(lane_of(STAND_IN).model_copy(
        update={"serve_cmd": None, "program": "/nowhere/vllm"}
    )))  # fmt: skip

    assert "/nowhere/vllm cannot be run: No such file or directory" in line


def test_a_server_that_hangs_at_its_start_ends_the_run_after_the_limit(new_lane: NewLane) -> None:
    """And is killed."""
    line = refused(new_lane(lane_of(SILENT, timeout_s=1)))

    assert "was not healthy at http://127.0.0.1:" in line
    assert "within 1 s and said nothing" in line
    assert "NIGHTLANE_SERVE_TIMEOUT_S" in line


def test_a_stop_reaches_a_bring_up(new_lane: NewLane) -> None:
    """A model takes minutes to load; nobody waits for that to end."""
    with rl_hooks(should_abort=lambda: True):
        refused_with = pytest.raises(Aborted)
        with refused_with, new_lane(lane_of(SILENT)):
            pass


def test_a_port_with_somebody_else_behind_it_is_refused(new_lane: NewLane, listening: int) -> None:
    """Nothing is started on a port that is taken."""
    serving = Serving(url=f"http://127.0.0.1:{listening}/v1", serve_cmd=STAND_IN)

    line = refused(new_lane(serving))

    assert "accepts connections and does not answer" in line
    assert "NIGHTLANE_VLLM_URL to a free port" in line


def test_a_server_that_sampled_for_an_earlier_attempt_and_is_gone_is_lost(
    new_lane: NewLane,
) -> None:
    """The job is put off, and not failed as if its address were wrong."""
    url = f"http://127.0.0.1:{free_port()}"
    server = {"base_url": url, "group_port": 1, "timeout_s": 0.2}
    vllm = RunVLLMConfig.model_validate({"server": server})

    refused(new_lane(Serving(), vllm=vllm))
    line = refused(new_lane(Serving(), vllm=vllm, before={"url": f"{url}/v1"}), ServerLostError)

    assert line.startswith(f"{url}/v1 does not answer within 0.2 s")


def test_another_machines_silence_is_not_ours_to_break(new_lane: NewLane) -> None:
    """A server is started here only; elsewhere it must be there, or a command must be named."""
    line = refused(new_lane(Serving(url="http://192.0.2.1:9/v1", timeout_s=1)))

    assert "NIGHTLANE_VLLM_URL" in line


def test_a_server_that_is_not_healthy_is_no_server(new_lane: NewLane, canned: Canned) -> None:
    """It may be one that is loading, or one that died half."""
    canned["/health"] = (503, {})

    assert "/health answers with status 503, not as a healthy vLLM" in refused(
        new_lane(canned.serving)
    )


def test_a_program_that_is_no_vllm_is_refused(new_lane: NewLane, canned: Canned) -> None:
    """Health alone is a page that many programs have."""
    del canned["/v1/models"]

    assert "has no route models; is it a vLLM" in refused(new_lane(canned.serving))


def test_a_server_with_another_base_is_not_used(new_lane: NewLane, canned: Canned) -> None:
    """Before the first rollout, and it is left alone."""
    canned.serve("org/another")

    line = refused(new_lane(canned.serving))

    assert "serves org/another, not this run's base" in line
    assert "set NIGHTLANE_VLLM_URL to a free port" in line


def test_a_server_that_serves_what_the_base_shadows_is_used(
    new_lane: NewLane, canned: Canned, chat_base: Path, tmp_path: Path
) -> None:
    """A shadow folder links the weights and mends the tokenizer's config beside them."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "model.safetensors").symlink_to(chat_base / "model.safetensors")

    with new_lane(canned.serving, base=str(shadow)) as lane:
        assert lane.facts["started_here"] is False
    assert canned.alive()


def test_a_server_with_a_shorter_window_is_not_used(new_lane: NewLane, canned: Canned) -> None:
    """It would refuse the longest prompts in the middle of the night."""
    line = refused(new_lane(canned.serving, window=500))

    assert "serves at most 120 tokens, and this run needs 500" in line


@pytest.mark.requirement("RL-10")
def test_another_version_than_the_pinned_one_is_refused(new_lane: NewLane, canned: Canned) -> None:
    """Versions of vLLM differ in silence: a return value here, a default there."""
    line = refused(new_lane(canned.serving, version="0.31.0"))

    assert line == (
        f"vllm_pin: is pinned, and the server at {canned.serving.url} is vLLM 0.32.0+cpu "
        "(got '0.31.0'); serve with vLLM 0.31.0, or set vllm_pin: 0.32.0+cpu"
    )


@pytest.mark.requirement("RL-10")
@pytest.mark.parametrize(
    ("pin", "found", "same"),
    [
        ("0.32.0", "0.32.0", True),
        ("0.32.0", "0.32.0+cpu", True),
        ("0.32.0+cu130", "0.32.0+cpu", False),
        ("0.32.0", "0.32.1", False),
        ("0.32", "0.32.0", False),
    ],
)
def test_a_pin_is_one_version(pin: str, found: str, same: bool) -> None:
    """A build mark counts where the pin names one."""
    assert same_version(pin, found) is same


def test_a_server_without_the_adapter_route_must_be_ours(new_lane: NewLane, canned: Canned) -> None:
    """One that was there cannot be restarted with other weights."""
    line = refused(new_lane(canned.serving), ServerError)

    assert "takes no adapter while it runs; start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING" in line
    assert canned.alive()


def test_an_adapter_that_is_refused_is_told_in_the_servers_words(
    new_lane: NewLane, canned: Canned
) -> None:
    """A rank too large, a layer it does not know."""
    error = {"error": {"message": "LoRA rank 4 is greater than max_lora_rank 2.\nTraceback"}}
    canned["/v1/load_lora_adapter"] = (500, error)

    line = refused(new_lane(canned.serving), ServerError)

    assert "refused with status 500: LoRA rank 4 is greater than max_lora_rank 2.;" in line


def test_somebody_elses_adapter_under_our_name_ends_the_run(
    new_lane: NewLane, canned: Canned
) -> None:
    """Two runs on one server would train on each other's completions."""
    lane = new_lane(canned.serving)
    request = Request((1, 2), k=1, seed=0, temp=1.0, max_new_tokens=2, end_ids=(3,))
    refused_with = pytest.raises(ServerError, match="serves /theirs as 'policy', not this run's")
    with lane, refused_with:
        lane._sync._using._served = "ours"
        lane.complete([request])


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"token_ids": [5, 3], "logprobs": {"token_logprobs": [-1.0], "top_logprobs": []}},
         "gave 2 ids with 1 log-probs"),
        ({"token_ids": None}, "gives no token ids with their log-probabilities"),
        ({"logprobs": None}, "gives no token ids with their log-probabilities"),
        ({"token_ids": [3, 5]}, "did not end a completion at its end token"),
        ({"token_ids": [5]}, "gave 1 ids with 2 log-probs"),
        ({"prompt_token_ids": [0, 1, 2]}, "read other prompt ids than it was sent"),
        ({"logprobs": {"token_logprobs": [-1.0, -9999.0], "top_logprobs": []}},
         "gave a log-probability that is none"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_trained_on_is_refused(
    canned: Canned, choice: dict[str, Any], said: str
) -> None:
    """Text alone is not what was drawn: ids and log-probabilities are."""
    logprobs = {"token_logprobs": [-1.0, -2.0], "top_logprobs": []}
    whole = {"index": 0, "prompt_token_ids": [1, 2], "token_ids": [5, 3], "logprobs": logprobs}
    canned["/v1/completions"] = (200, {"choices": [whole | choice]})
    request = Request((1, 2), k=1, seed=0, temp=1.0, max_new_tokens=4, end_ids=(3,))

    with pytest.raises(ServerError, match=said):
        ServerApi(canned.serving).complete("policy", [request], at_once=1)


@pytest.mark.requirement("EX-01")
def test_a_request_leaves_nothing_of_the_draw_to_the_server(canned: Canned) -> None:
    """One that goes by its model folder's generation config would draw by that, unseen."""
    request = Request((1, 2), 1, 5, 1.0, 2, (3,))

    ServerApi(canned.serving).complete("policy", [request], at_once=1)

    [(_, body)] = [one for one in canned.asked if one[0] == "/v1/completions"]
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert {name: body.get(name) for name in neutral} == neutral


def test_a_server_that_hangs_in_a_request_ends_the_run_after_the_limit(canned: Canned) -> None:
    """It is healthy and says nothing."""
    canned["/v1/completions"] = (0, {})
    request = Request((1, 2), k=1, seed=0, temp=1.0, max_new_tokens=4, end_ids=(3,))

    with pytest.raises(ServerError, match=r"no answer to completions within 1 s; the server hangs"):
        ServerApi(canned.serving).complete("policy", [request], at_once=1)


def test_a_serving_process_that_dies_ends_the_wait_for_its_answer(canned: Canned) -> None:
    """A connection may hang on for as long as it likes."""
    canned["/v1/completions"] = (0, {})
    request = Request((1, 2), k=1, seed=0, temp=1.0, max_new_tokens=4, end_ids=(3,))

    def dead() -> None:
        raise ServerError("the serving process ended with status 137")

    with pytest.raises(ServerError, match="status 137"):
        ServerApi(canned.serving).complete("policy", [request], at_once=1, alive=dead)


def test_the_default_command_is_vllms_with_all_that_the_run_needs() -> None:
    """Its numbers are those that the trainer computes with; nothing listens beyond this machine."""
    serving = Serving(url="http://localhost:8123/v1", program="/opt/vllm", gpu_util=0.4)
    needs = Needs("org/m", "bfloat16", 640, 256, 24, 1, None)

    words = serve_command(serving, needs, Path("/run/adapter-1"))

    assert words[:3] == ["/opt/vllm", "serve", "org/m"]
    told = dict(itertools.pairwise(words))
    assert told["--host"] == "127.0.0.1"
    assert told["--port"] == "8123"
    assert told["--dtype"] == "bfloat16"
    assert told["--max-model-len"] == "640"
    assert told["--max-lora-rank"] == "32"
    assert told["--gpu-memory-utilization"] == "0.4"
    assert told["--lora-modules"] == "policy=/run/adapter-1"
    assert told["--logprobs-mode"] == "processed_logprobs"
    assert told["--generation-config"] == "vllm"


def test_an_operators_command_is_filled_in_and_split_without_a_shell() -> None:
    """A brace that is none of ours stays: options of vLLM are JSON at times."""
    command = (
        "docker exec box serve {base} --at {host}:{port} --lora {lora_name}={adapter} '{\"a\": 1}'"
    )
    serving = Serving(serve_cmd=command, lora_name="night")

    words = serve_command(serving, Needs("org/m", "float32", 9, 1, 8, 1, None), Path("/a b"))

    assert words == [
        "docker", "exec", "box", "serve", "org/m", "--at", "127.0.0.1:8000", "--lora",
        "night=/a b", '{"a": 1}',
    ]  # fmt: skip


def test_a_server_sees_its_own_devices_and_modules_whatever_the_operator_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made from his, so his stand in for none of them; of other variables his count."""
    names = ("CUDA_VISIBLE_DEVICES", "PYTHONPATH", "VLLM_HOST_IP")
    for name in names:
        monkeypatch.setenv(name, "operator")
    told = f"import os; raise SystemExit(str([os.environ[n] for n in {names!r}]))"
    replica = Replica(
        lane_of(shlex.join([sys.executable, "-c", told])),
        Needs("m", "float32", 8, 1, 0, 1, None),
        log=tmp_path / "serving.log",
        say=lambda *_: None,
        adapter=None,
        environment={"CUDA_VISIBLE_DEVICES": "1", "PYTHONPATH": "ours:operator"},
    )

    with pytest.raises(RLLoopError, match=r"\['1', 'ours:operator', 'operator'\]"):
        replica.start()

    replica.stop()


def test_an_engine_on_the_learners_gpu_sleeps_while_it_learns(
    new_lane: NewLane, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same process wakes up with the learner's weights; what the GPU had free tells what came
    back. A GPU is not here: the stand-in's routes and two readings take its place.
    """
    monkeypatch.setattr(lanes, "_device", lambda *_: "cuda-shared")
    free = iter([(2 * 10**9, 80 * 10**9), (5 * 10**9, 80 * 10**9)])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: next(free))
    rested: list[Rested] = []
    serving = Serving(serve_cmd=STAND_IN, timeout_s=180)
    lane = new_lane(serving, vllm=RunVLLMConfig(mode="colocate"), rested=rested.append)
    ids, ends = policy.encode(TASKS[0].prompt), tuple(sorted(policy.eos_ids))
    request = Request(ids, k=1, seed=1, temp=0.0, max_new_tokens=4, end_ids=ends)

    with lane:
        lane.bring()
        before = lane.complete([request])
        lane.rest()
        lane.rest()
        lane.bring()
        after = lane.complete([request])

    assert after == before
    [once] = rested
    assert once.given_back_gb == 3.0
