"""Whole runs whose completions come from a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from engine.__main__ import main
from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import ExitCode, RunDir
from engine.contract.serving import Serving
from engine.contract.trace import read_trace
from engine.models import tiny
from engine.rl.parts import build_policy
from engine.rl.recorder import LoopRecorder
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from tests.deadline import eventually
from tests.engine import killing
from tests.engine.conftest import add_attempt
from tests.engine.killing import Point
from tests.engine.sampling.vllm import stand_in
from tests.engine.sampling.vllm.canned import Canned
from tests.engine.sampling.vllm.conftest import OFTEN, STAND_IN, free_port, lane_of, serving_by

Events = Callable[..., list[Event]]
SLOW = pytest.mark.timeout(1200)
"""A server is started two times; the real one takes minutes on a busy machine."""


@pytest.fixture(scope="module")
def wide_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with wider heads: vLLM on a CPU serves none of less than 32 numbers."""
    folder = tmp_path_factory.mktemp("wide")
    tiny.build_model(3, head_dim=32).save_pretrained(folder)
    tiny.build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=OFTEN)
def serving(request: pytest.FixtureRequest) -> Serving:
    """In the short form `real/` proves with fewer starts what these prove on a stand-in."""
    return serving_by(request.param)


@pytest.fixture
def served_recipe(recipe: dict[str, Any], wide_base: Path) -> dict[str, Any]:
    """A run of four steps whose LoRA adapter learns at once."""
    return recipe | {
        "base": str(wide_base),
        "tuning": "lora",
        "lora_rank": 4,
        "rollout_backend": "vllm",
        "max_steps": 4,
        "heldout_every": 4,
        "lr": 1e-2,
    }


@SLOW
@pytest.mark.requirement("RL-09", "RL-10")
def test_a_run_that_was_killed_goes_on_with_a_server_of_its_own(
    serving: Serving, served_recipe: dict[str, Any], tmp_path: Path, events: Events
) -> None:
    """SIGKILL inside step 3; nothing is left of its server, and the checkpoint's adapter answers
    for the next attempt, which learns on to the end."""
    api = ServerApi(serving)
    pin = "0.32.0"
    recipe = served_recipe | {"vllm_pin": pin}
    run = add_attempt(tmp_path, recipe, serving=serving)

    killed = killing.attempt(run.root, Point("engine.rl.recorder:LoopRecorder.stepped", 3))
    _gone(api)
    add_attempt(tmp_path, recipe, serving=serving)
    ended = killing.attempt(run.root)

    assert (killed, ended) == (-9, ExitCode.DONE)
    _gone(api)
    assert not run.serving.exists()
    assert [e["resumed_from"] for e in events(run, "started")] == [None, 2]
    [finished] = events(run, "finished")
    result = finished["result"]
    assert result["lift"] > 0
    assert result["steps"] == 4
    assert result["serving"]["pin"] == pin
    assert result["serving"]["version"].startswith(pin)
    assert result["serving"]["started_here"] is True
    card = json.loads(run.lineage.read_bytes())["serving"]
    assert card == result["serving"]
    measured = _series(events(run, "metric"))
    assert sorted(measured["sync/gap"]) == [1, 2, 3, 4]
    assert max(measured["sync/gap"].values()) < 1e-3 < min(measured["sync/moved"].values())
    assert max(measured["train/sampler_gap_max"].values()) < 1e-3
    assert len([e for e in events(run, "note") if e["code"] == "SERVING"]) == 2


@SLOW
@pytest.mark.requirement("RL-09")
def test_a_server_that_takes_no_adapter_while_it_runs_is_restarted(
    serving: Serving,
    served_recipe: dict[str, Any],
    wide_base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slow, and sure: the way that needs no route that changes weights."""
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "")
    policy = build_policy(RLRunConfig.model_validate(served_recipe))
    said: list[str] = []
    lane = ServingLane(
        serving,
        Needs(str(wide_base), "float32", 32, 8, 4, 1, None),
        policy,
        contexts=[policy.encode(f"{number:03d}=") for number in range(4)],
        folder=tmp_path / "serving",
        log=tmp_path / "serving.log",
        tolerance=0.001,
        say=lambda code, _: said.append(code),
    )

    with lane:
        lane.bring()
        for parameter in policy.trainable().values():
            parameter.data.add_(0.05)
        lane.bring()

    assert said == ["SERVING", "SERVING_RESTART"]


@SLOW
@pytest.mark.requirement("RM-02")
def test_a_colocated_engine_is_gone_while_the_trainer_learns_and_draws_as_a_server_does(
    serving: Serving, served_recipe: dict[str, Any], tmp_path: Path, events: Events
) -> None:
    """It has no port, is ended before each step's update with its memory measured, and started
    again with the weights of the step; what it draws is what a server beside the trainer draws."""
    recipe = served_recipe | {"max_steps": 2, "heldout_every": 2}
    beside = add_attempt(tmp_path / "server", recipe, serving=serving)
    within = add_attempt(
        tmp_path / "colocate", recipe | {"vllm": {"mode": "colocate"}}, serving=serving
    )

    ended = [killing.attempt(one.root, within_s=900) for one in (beside, within)]
    assert ended == [ExitCode.DONE] * 2

    rests = [e for e in events(within, "span") if e["name"] == "engine-rest"]
    assert [e["step"] for e in rests] == [1, 2]
    assert min(e["given_back_gb"] for e in rests) > 0.1
    assert drawn(within) == drawn(beside)
    [finished] = events(within, "finished")
    assert finished["result"]["serving"]["url"].endswith("(a Unix socket)")


@SLOW
@pytest.mark.requirement("EX-20")
def test_two_servers_of_the_lanes_own_draw_what_one_draws(
    serving: Serving, served_recipe: dict[str, Any], tmp_path: Path, events: Events
) -> None:
    """Started and ended with the run, on ports that it picked."""
    recipe = served_recipe | {"max_steps": 1, "heldout_every": 1}
    launched = {"vllm": {"server": {"launch": {"replicas": 2}}}}
    one = add_attempt(tmp_path / "one", recipe, serving=serving)
    two = add_attempt(tmp_path / "two", recipe | launched, serving=serving)

    assert [killing.attempt(run.root) for run in (one, two)] == [ExitCode.DONE] * 2

    assert drawn(two) == drawn(one)
    said = [e["text"] for e in events(two, "note") if e["code"] == "SERVING"]
    assert len(said) == len(set(said)) == 2


@SLOW
@pytest.mark.requirement("EX-20")
def test_a_server_of_the_lanes_own_that_dies_between_two_draws_is_started_again(
    served_recipe: dict[str, Any],
    tmp_path: Path,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody asks it for completions then: what finds it dead is the next sync of the weights."""
    recipe = served_recipe | {"max_steps": 2, "heldout_every": 2}
    launched = {"vllm": {"server": {"launch": {"replicas": 2}}}}
    whole = add_attempt(tmp_path / "whole", recipe, serving=lane_of(STAND_IN))
    broken = add_attempt(tmp_path / "broken", recipe | launched, serving=lane_of(STAND_IN))
    assert killing.attempt(whole.root) == ExitCode.DONE
    kill_a_server_after_a_step(monkeypatch)

    assert main(["run", str(broken.root)]) == ExitCode.DONE

    assert drawn(broken) == drawn(whole)
    assert [e["code"] for e in events(broken, "note")].count("SERVING_RESTART") == 1


@SLOW
@pytest.mark.requirement("EX-20", "RM-03", "RM-05")
def test_a_run_goes_on_with_the_servers_that_are_left(
    served_recipe: dict[str, Any], tmp_path: Path, events: Events
) -> None:
    """Two that somebody else started, the second of which dies in the run: its chunk moves to the
    first, and every completion is that of a run with one server. Neither is started or ended here.
    """
    recipe = served_recipe | {"max_steps": 2, "heldout_every": 2}
    whole = add_attempt(tmp_path / "whole", recipe, serving=lane_of(STAND_IN))
    with running(recipe["base"], 4) as first, running(recipe["base"], 4, dies_after=2) as second:
        ports = [urlsplit(one).port for one in (first, second)]
        servers = {"base_url": [first, second], "group_port": ports, "timeout_s": 60}
        broken = add_attempt(
            tmp_path / "broken", recipe | {"vllm": {"server": servers}}, serving=Serving()
        )

        assert [killing.attempt(run.root) for run in (whole, broken)] == [ExitCode.DONE] * 2

        assert httpx.get(f"{first}/health", trust_env=False).status_code == httpx.codes.OK
    assert drawn(broken) == drawn(whole)
    said = [e["text"] for e in events(broken, "note") if e["code"] == "SERVER_CALL"]
    assert [text.split()[0] for text in said if not text.startswith("retried")] == ["lost", "moved"]
    assert second in next(text for text in said if text.startswith("lost"))
    traced = [e for e in read_trace(broken.trace) if e["name"].startswith("rollout-call")]
    assert {"seed", "decoding", "server", "requests"} <= set(traced[0]["args"])


@pytest.mark.requirement("RM-03")
def test_a_server_that_is_not_there_ends_a_run_before_its_first_rollout(
    served_recipe: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After its `timeout_s`, with what to do instead; nothing is started in its place."""
    url = f"http://127.0.0.1:{free_port()}"
    servers = {"servers": [{"base_url": url, "group_port": 1}], "timeout_s": 0.5}
    run = add_attempt(tmp_path, served_recipe | {"vllm": {"server": servers}}, serving=Serving())

    assert main(["run", str(run.root)]) == ExitCode.CONFIG

    [line] = capfd.readouterr().err.strip().splitlines()
    assert line.startswith(f"vllm.server: {url}/v1 does not answer within 0.5 s; start that server")
    assert "rollout_backend: hf" in line


@pytest.mark.requirement("LN-12", "RL-10")
def test_a_wrong_version_ends_a_run_before_its_first_rollout(
    served_recipe: dict[str, Any], tmp_path: Path, events: Events, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of a config error, one line, and the server left alone."""
    with Canned() as server:
        server.serve(served_recipe["base"])
        run = add_attempt(tmp_path, served_recipe | {"vllm_pin": "0.9.1"}, serving=server.serving)

        code = main(["run", str(run.root)])

        assert server.alive()
    assert code == ExitCode.CONFIG
    assert not list(run.root.glob("rollouts/*"))
    assert capfd.readouterr().err.strip().splitlines() == [
        f"vllm_pin: is pinned, and the server at {server.serving.url} is vLLM 0.32.0+cpu "
        "(got '0.9.1'); serve with vLLM 0.9.1, or set vllm_pin: 0.32.0+cpu"
    ]


@contextmanager
def running(base: str, rank: int, *, dies_after: int = 10**6) -> Iterator[str]:
    """A stand-in that somebody else started; its process ends when it is asked for completions by
    the `dies_after`th adapter."""
    port = free_port()
    words = [sys.executable, stand_in.__file__, base, "--port", str(port)]
    words += ["--max-model-len", "64", "--max-lora-rank", str(rank)]
    env = {**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "DIES_AFTER": str(dies_after)}
    process = subprocess.Popen(words, env=env)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: ServerApi(Serving(url=f"{url}/v1")).healthy(), "it is up", within_s=180)
        yield url
    finally:
        process.kill()
        process.wait()


def kill_a_server_after_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that a run in this process started last, by SIGKILL, when its first step is done."""
    stepped = LoopRecorder.stepped
    killed: list[psutil.Process] = []

    def stepped_and_kill(recorder: LoopRecorder, *given: Any) -> Any:
        if not killed:
            below = psutil.Process().children(recursive=True)
            served = [one for one in below if "--max-num-seqs" in one.cmdline()]
            servers = [one for one in served if "-IS" not in one.cmdline()]  # not its guardian
            killed.append(max(servers, key=psutil.Process.create_time))
            killed[0].kill()
        return stepped(recorder, *given)

    monkeypatch.setattr(LoopRecorder, "stepped", stepped_and_kill)


def _gone(api: ServerApi) -> None:
    """Within the moment that a guardian takes to see its engine's death."""
    eventually(lambda: not api.answers(), "the server is gone", within_s=60)


def _series(metrics: list[Event]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for event in metrics:
        for name, value in event["values"].items():
            found.setdefault(name, {})[event["step"]] = value
    return found


def drawn(run: RunDir) -> list[list[int]]:
    """The ids of every completion that was trained on."""
    files = sorted(run.rollouts.glob("train-*.jsonl"))
    assert files
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [line["completion_ids"] for line in lines]
