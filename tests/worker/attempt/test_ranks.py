"""Runs of two learner ranks (gloo) in a real drain: equal to one, and ended together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import usable
from engine.contract.run_dir import Abort, ExitCode, RunDir
from engine.contract.stage2.config import Stage2Config
from engine.run.checkpoint import Checkpoint
from engine.stage2.kept_batch import with_batch_of
from tests.deadline import eventually
from tests.engine.conftest import add_attempt, base_folder, base_recipe, events_of, sevens_file
from tests.engine.rank_process import rank_process
from tests.engine.sampling.vllm.conftest import free_port
from tests.engine.stage2.conftest import (
    ab_recipe,
    changed,
    matching_recipe,
    shapes_file,
    vl_folder,
)
from tests.engine.stage2.rollout.vision_server import VisionServer
from worker.db.connection import Database
from worker.drain import drain
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs

__all__ = ["ab_recipe", "base_folder", "base_recipe", "matching_recipe", "sevens_file"]
__all__ += ["shapes_file", "vl_folder"]

pytestmark = pytest.mark.timeout(1800)
Recipe = dict[str, Any]
_SERVERS = "custom__extra__rollout_matching"


@pytest.fixture
def recipes(base_recipe: Recipe, ab_recipe: Recipe, matching_recipe: Recipe) -> dict[str, Recipe]:
    """Of each kind, two steps: greedy answers, or draws that are a row's own; uneven shares."""
    steps: Recipe = {
        "training__max_steps": 2,
        "training__per_device_train_batch_size": 1,
        "training__gradient_accumulation_steps": None,
        "training__effective_batch_size": 4,
        # plain descent shows gradients as they are
        "training__optim": "sgd",
        "training__learning_rate": 0.1,
        "training__max_grad_norm": 0.0,
        "data__val_jsonl": None,
    }
    rl = base_recipe | {"max_steps": 2, "tasks_per_step": 5, "save_every": 1}
    rl |= {"objective": {"loss": "grpo", "zero_signal": "keep", "minibatches": 2}}
    rl |= {"optim": {"adam_eps": 0.1}}  # far above every gradient: as plain descent
    return {
        "rl_run": rl,
        "stage2_ab": changed(ab_recipe, **steps),
        "rollout_matching_sft": changed(matching_recipe, **steps),
    }


@contextmanager
def beside(run: RunDir, act: Callable[[], None]) -> Iterator[None]:
    """`act` in a thread, while the block waits for the run in the main one; it ends with both."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            raised.append(error)
            run.attempt(1).request_abort(Abort())

    thread = threading.Thread(target=guarded)
    thread.start()
    yield
    thread.join()
    if raised:
        raise raised[0]


@pytest.fixture
def alone(tmp_path: Path, recipes: dict[str, Recipe]) -> Callable[[str], RunDir]:
    """The run of one rank that two are held against."""

    def run(kind: str) -> RunDir:
        found = add_attempt(tmp_path, recipes[kind], name="alone", kind=kind)
        assert main(["run", str(found.root)]) == ExitCode.DONE
        return found

    return run


def run_of(db: Database, number: int) -> RunDir:
    return RunDir(db.settings.runs_dir / str(number))


def drained(db: Database, number: int) -> RunDir:
    """The run directory of a job that ran to its end."""
    drain(db.settings)
    found, run = jobs.get_job(db, number), run_of(db, number)
    assert found.state is State.SUCCEEDED, f"{found.error}\n{run.attempt(1).log.read_text()}"
    return run


def weights(run: RunDir) -> dict[str, torch.Tensor]:
    """Of the last checkpoint."""
    steps = (path.parent for path in run.checkpoints.glob("*/complete.json"))
    newest = max(steps, key=lambda path: int(path.name.rpartition("-")[2]))
    [file] = newest.glob("**/model.safetensors")
    return load_file(file)


def trained(run: RunDir) -> dict[int, dict[str, float]]:
    """The series of each step that was made."""
    metrics = events_of(run, "metric")
    return {e["step"]: e["values"] for e in metrics if "train/loss" in e["values"]}


def apart(one: RunDir, other: RunDir) -> float:
    """The largest difference of two runs' weights."""
    ours, theirs = weights(one), weights(other)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.mark.requirement("LN-14", "RM-07")
@pytest.mark.parametrize("kind", ["rl_run", "stage2_ab", "rollout_matching_sft"])
def test_two_ranks_from_the_queue_learn_what_one_learns(
    db: Database, recipes: dict[str, Recipe], alone: Callable[[str], RunDir], kind: str
) -> None:
    """On the same global batch, to 1e-6; events, checkpoints and results are the first rank's."""
    number = enqueue(db, kind, recipes[kind] | {"ranks": 2}, actor="test")

    together, one = drained(db, number), alone(kind)

    assert apart(one, together) <= 1e-6
    for type_ in ("started", "gate", "checkpoint", "finished"):
        assert len(events_of(together, type_)) == len(events_of(one, type_)), type_
    metrics = [trained(run) for run in (one, together)]
    assert metrics[0].keys() == metrics[1].keys() == {1, 2}
    for step, values in metrics[0].items():
        for name in ("train/loss", "train/kl", "train/samples", "rollout/f1", "pool/score"):
            if name in values:
                assert metrics[1][step][name] == pytest.approx(values[name], abs=1e-6), name


@pytest.mark.requirement("LN-14")
def test_every_rank_sees_the_accelerators_of_its_lane_alone(
    db: Database, tally: Callable[..., int]
) -> None:
    """Whatever else the machine has."""
    lane = db.settings.model_copy(update={"devices": "2,3"})
    run = run_of(db, tally(ranks=2, steps=1))

    drain(lane)

    [first] = (e["text"] for e in events_of(run, "note"))
    second = usable(run.attempt(1).events_of_rank(1))
    assert [first, *(e["text"] for e in second if e["type"] == "note")] == ["2,3", "2,3"]


@pytest.mark.requirement("LN-14")
def test_a_job_fails_with_the_error_of_the_rank_that_failed(
    db: Database, tally: Callable[..., int]
) -> None:
    number = tally(ranks=2, steps=1, at_end="crash", saves=False)

    drain(db.settings)

    found = jobs.get_job(db, number)
    assert found.state is State.FAILED
    assert "rank 1 of 2: ValueError: the tally fell over" in str(found.error)
    errors = [e["text"] for e in events_of(run_of(db, number), "note") if e["level"] == "error"]
    assert errors == ["ValueError: the tally fell over"]


@pytest.mark.parametrize(("kind", "ranks"), [("rl_run", 2), ("stage2_ab", 1)])
def test_a_run_of_two_ranks_that_was_stopped_goes_on_with_the_same_or_another_number(
    tmp_path: Path, recipes: dict[str, Recipe], kind: str, ranks: int
) -> None:
    """A step has as many samples as before, and the weights are those of an unbroken run."""
    steps: Recipe = {"max_steps": 12} if kind == "rl_run" else {"training__max_steps": 12}
    if kind == "stage2_ab":  # what a step has follows from the ranks that it began with
        steps |= {"training__gradient_accumulation_steps": 2, "training__save_steps": 1}
        steps["training__effective_batch_size"] = None
    recipe = changed(recipes[kind], **steps)
    run = add_attempt(tmp_path, recipe | {"ranks": 2}, kind=kind)
    alone = (
        changed(recipe, training__gradient_accumulation_steps=4) if "training" in recipe else recipe
    )
    whole = add_attempt(tmp_path, alone, name="whole", kind=kind)

    def stop() -> None:
        eventually(lambda: trained(run), "no step was made", 900)
        run.attempt(1).request_abort(Abort())

    with beside(run, stop):
        assert main(["run", str(run.root)]) == ExitCode.ABORTED
    add_attempt(tmp_path, recipe | {"ranks": ranks}, kind=kind)
    assert main(["run", str(run.root)]) == ExitCode.DONE
    assert main(["run", str(whole.root)]) == ExitCode.DONE

    resumed = events_of(run, "started")[-1]["resumed_from"]
    assert 0 < resumed < 12
    assert apart(run, whole) <= 2e-6


def test_a_number_of_ranks_that_does_not_divide_a_step_is_refused_by_name() -> None:
    """The batch that a run began with is kept."""
    before = Checkpoint(1, Path("one"), {"batch": {"ranks": 2, "samples": 4, "rollouts": 4}})
    config = Stage2Config.model_validate(
        {"custom": {"trainer_variant": "rollout_matching_sft"}, "ranks": 3}
    )

    with pytest.raises(ConfigError, match=r"ranks: learn 3 samples in a pass, and a step of this"):
        with_batch_of(before, config, 3)


@pytest.fixture
def server(vl_folder: Path) -> Iterator[VisionServer]:
    with VisionServer(vl_folder, free_port()) as server:
        yield server


def served_by(recipe: Recipe, server: VisionServer, **vllm: Any) -> Recipe:
    """The recipe with two ranks and a server that somebody else started."""
    one = {"base_url": server.serving.root, "group_port": 51216}
    section = {"mode": "server", "server": {"servers": [one]}} | vllm
    settings = {f"{_SERVERS}__rollout_backend": "vllm", f"{_SERVERS}__vllm": section, "ranks": 2}
    return changed(recipe, **settings)


@pytest.mark.requirement("RM-07")
def test_the_first_rank_alone_brings_servers_the_weights_between_two_barriers(
    db: Database, recipes: dict[str, Recipe], alone: Callable[[str], RunDir], server: VisionServer
) -> None:
    """All ranks ask, none while weights are on their way; they learn what one rank learns."""
    kind = "rollout_matching_sft"
    number = enqueue(db, kind, served_by(recipes[kind], server), actor="test")

    run = drained(db, number)

    assert apart(run, alone(kind)) <= 1e-6
    synced = [e["step"] for e in events_of(run, "span") if e["name"] == "weight-sync"]
    assert synced == [0, 1]
    assert "weight-sync" not in run.attempt(1).events_of_rank(1).read_text()
    chat = "v1/chat/completions"
    order = [call for call in server.calls if call in {"update_weights", chat}]
    assert order == ["update_weights", chat, chat, chat, chat] * 2


@pytest.mark.requirement("LN-14", "RM-07")
def test_a_rank_that_is_killed_beside_a_server_leaves_nobody_waiting(
    db: Database, recipes: dict[str, Recipe], server: VisionServer
) -> None:
    """The job ends within seconds, not by the others' patience, with the name of who was killed."""
    endless = changed(recipes["rollout_matching_sft"], training__max_steps=10_000)
    number = enqueue(db, "rollout_matching_sft", served_by(endless, server), actor="test")
    run, killed = run_of(db, number), [0.0]

    def kill() -> None:
        eventually(lambda: len(server.asked) > 6, "nobody asked", 900)
        rank_process(run, 1).kill()
        killed[0] = time.monotonic()

    with beside(run, kill):
        drain(db.settings)

        assert time.monotonic() - killed[0] < 60
    words = "rank 1 of 2 was killed by SIGKILL, and the others were ended with it"
    found = jobs.get_job(db, number)
    assert (found.state, words in str(found.error)) == (State.FAILED, True)
    errors = [e["text"] for e in events_of(run, "note") if e["level"] == "error"]
    assert errors == [words]


@pytest.mark.requirement("RM-07")
def test_adapters_and_several_ranks_are_refused_when_a_job_is_sent(
    db: Database, recipes: dict[str, Recipe], server: VisionServer
) -> None:
    """By name, with what to set; a colocated engine too."""
    adapters = {"sync": {"mode": "auto"}, "enable_lora": True}
    lora = changed(served_by(recipes["stage2_ab"], server, **adapters), model__tuning="lora")
    rl = recipes["rl_run"] | {"ranks": 2, "tuning": "lora", "rollout_backend": "vllm"}

    with pytest.raises(
        ConfigError, match="an adapter, which 2 learner ranks cannot do safely"
    ) as no:
        enqueue(db, "stage2_ab", lora, actor="test")
    assert "custom.extra.rollout_matching.vllm.sync.mode" in str(no.value)
    assert "set sync.mode: full" in str(no.value)
    with pytest.raises(ConfigError, match=r"vllm.sync.mode: syncs an adapter, which 2 learner"):
        enqueue(db, "rl_run", rl | {"vllm": {"enable_lora": True}}, actor="test")
    with pytest.raises(ConfigError, match=r"vllm.mode: shares one device with the learner"):
        enqueue(db, "rl_run", rl | {"vllm": {"mode": "colocate"}}, actor="test")
