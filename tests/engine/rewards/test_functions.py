"""Reward functions written for TRL run unchanged, in a process that can be killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.rewards.adapter import Reason, RewardAdapter, load_rewards
from engine.rewards.case import Case
from engine.rl.look import look
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]

MODULE = "tests.engine.rewards.trl_rewards"


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "tests.engine.rewards")


@pytest.fixture
def reward() -> Iterator[Callable[..., RewardAdapter]]:
    """Functions of the module by their names, with weights; their process ends with the test."""
    made: list[Any] = []

    def load(*names: str, weights: Sequence[float] = (1.0,), **settings: Any) -> RewardAdapter:
        paths = [name if name == "exact" else f"{MODULE}:{name}" for name in names]
        parts = list(zip(paths, weights, strict=True))
        verifier: Any = load_rewards(parts, 0.5, **settings)
        made.append(verifier)
        return RewardAdapter(verifier)

    yield load
    for one in made:
        one.functions.close()


def said(*completions: str, **more: Any) -> list[Case]:
    return [Case(completion, "7", "3+4=", (5, 12), **more) for completion in completions]


@pytest.mark.requirement("RL-17")
def test_a_function_is_given_what_it_takes(reward: Callable[..., RewardAdapter]) -> None:
    """Token ids alone; no keyword that it does not know."""
    verdicts = reward("length_penalty").judge_all(said("7", "8"))

    assert [v.reward for v in verdicts] == [-0.2, -0.2]


@pytest.mark.requirement("RL-17")
def test_with_kwargs_it_is_given_every_column_and_all_that_trl_passes(
    reward: Callable[..., RewardAdapter],
) -> None:
    """Each as a list; `prompt` and `completion` are TRL's own."""
    row = {"prompt": "3+4=", "answer": 7, "level": "Level 3", "completion": "x"}

    [verdict] = reward("columns_seen").judge_all(said("7", columns=row))

    assert verdict.reward == 7.0
    assert verdict.extra["names"] == (
        "answer,completion_ids,level,log_extra,log_metric,prompts,solution,trainer_state"
    )


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize(
    ("prompt", "prompt_seen", "completion_seen"),
    [
        ("3+4=", "'3+4='", "'7'"),
        (
            [{"role": "system", "content": "Add."}, {"role": "user", "content": "3+4="}],
            "[{'role': 'system', 'content': 'Add.'}, {'role': 'user', 'content': '3+4='}]",
            "[{'role': 'assistant', 'content': '7'}]",
        ),
    ],
)
def test_prompts_and_completions_come_as_the_data_has_them(
    reward: Callable[..., RewardAdapter], prompt: Any, prompt_seen: str, completion_seen: str
) -> None:
    """A text as text, a conversation as messages with its system turn; all in one call."""
    cases = [Case("7", "7", prompt), Case("8", "7", prompt)]

    first, second = reward("prompts_seen").judge_all(cases)

    assert (first.extra["prompt"], first.extra["completion"]) == (prompt_seen, completion_seen)
    assert (first.reward, second.reward) == (2.0, 2.0)


def test_the_steps_are_counted_as_trl_counts_them(reward: Callable[..., RewardAdapter]) -> None:
    """0 while the first step's completions are judged."""
    adapter = reward("by_step")

    assert [adapter.judge_all(said("7", step=step))[0].reward for step in (0, 1)] == [0.0, 1.0]


@pytest.mark.requirement("RL-17")
def test_several_functions_are_summed_by_weight_and_none_is_left_out(
    reward: Callable[..., RewardAdapter],
) -> None:
    """Sync and async, with what each gave and logged; all None is not judged."""
    adapter = reward("accuracy_reward", "judge", weights=[2.0, 0.5])
    gold, no_gold = ({"answer": "7"}, {"answer": None})

    both, one = adapter.judge_all(
        [Case("7", "7", "3+4=", columns=gold), Case("7", "7", "3+4=", columns=no_gold)]
    )
    [neither] = reward("accuracy_reward").judge_all(said("7", columns=no_gold))

    assert (both.reward, one.reward) == (2.25, 0.25)
    assert one.parts == {"accuracy_reward": None, "judge": 0.5}
    assert both.logged == {"judge/sure": 0.75}
    assert both.extra == {"gold": "7"}
    assert neither.reason is Reason.UNJUDGED


@pytest.mark.requirement("RL-17")
def test_a_verifier_of_ours_and_a_function_are_one_reward(
    reward: Callable[..., RewardAdapter],
) -> None:
    """The verifier says what was read; the function adds its share."""
    adapter = reward("exact", "length_penalty", weights=[1.0, 1.0])

    right, wrong = adapter.judge_all(said("7", "8"))

    assert (right.reward, right.answer, right.reason) == (0.8, "7", Reason.CORRECT)
    assert (wrong.reward, wrong.reason) == (-0.2, Reason.WRONG)


@pytest.mark.parametrize("name", ["predicted_is", "predicted_soon"])
def test_the_other_form_is_a_verifier_of_predicted_and_expected(
    reward: Callable[..., RewardAdapter], name: str
) -> None:
    """Told apart by its signature; of a conversation it reads the text."""
    chat = [{"role": "user", "content": "3+4="}]

    verdicts = reward(name).judge_all([*said("7", "8"), Case("7", "7", chat)])

    assert [v.reward for v in verdicts] == [1.0, 0.0, 1.0]


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize(
    ("what", "reward_", "reason"),
    [
        *((what, 0.25, Reason.WRONG) for what in ("tensor", "bf16", "numpy", "tensors")),
        ("generator", 0.25, Reason.WRONG),
        ("bools", 1.0, Reason.CORRECT),
        ("none", 0.0, Reason.UNJUDGED),
        *((what, 0.0, Reason.CRASH) for what in ("nan", "inf", "text", "string", "dict", "dicts")),
        *((what, 0.0, Reason.CRASH) for what in ("nothing", "scalar", "two", "empty")),
    ],
)
def test_what_may_be_returned(
    shared: RewardAdapter, what: str, reward_: float, reason: Reason
) -> None:
    """What TRL takes for a list of numbers; anything else is a crash of each completion."""
    for verdict in shared.judge_all(said(what, what, what)):
        assert (verdict.reward, verdict.reason) == (reward_, reason)


@pytest.fixture(scope="module")
def shared() -> Iterator[RewardAdapter]:
    """`returns`, loaded once: it imports torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTLANE_REWARD_MODULES", "tests.engine.rewards")
        verifier: Any = load_rewards([("tests.engine.rewards.trl_returns:returns", 1.0)], 0.5)
    yield RewardAdapter(verifier)
    verifier.functions.close()


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("picky", "odd", Reason.CRASH),
        ("dies", "die", Reason.CRASH),
        ("sleepy", "hang", Reason.TIMEOUT),
    ],
)
def test_one_completion_that_breaks_a_call_costs_the_others_nothing(
    reward: Callable[..., RewardAdapter], name: str, bad: str, reason: Reason
) -> None:
    """The call is made again row by row; its process is killed and started anew."""
    verdicts = reward(name, timeout_s=2.5).judge_all(said("a", bad, "b"))

    assert [v.reason for v in verdicts] == [Reason.CORRECT, reason, Reason.CORRECT]
    assert [v.reward for v in verdicts] == [1.0, 0.0, 1.0]


def test_of_many_that_hang_the_last_are_not_waited_for(
    reward: Callable[..., RewardAdapter],
) -> None:
    """Three prove it."""
    adapter = reward("sleepy", timeout_s=0.5)

    verdicts = adapter.judge_all(said(*["hang"] * 30))

    assert {v.reason for v in verdicts} == {Reason.TIMEOUT}


def test_sys_exit_is_a_crash(reward: Callable[..., RewardAdapter]) -> None:
    """It ends no process."""
    verdicts = reward("exits").judge_all(said("a"))

    assert [(v.reason, v.answer) for v in verdicts] == [(Reason.CRASH, "SystemExit: 3")]


def test_a_stop_is_heard_inside_a_call(reward: Callable[..., RewardAdapter]) -> None:
    """A call may take an hour where the config says so."""
    adapter = reward("sleepy", timeout_s=3600)

    with pytest.raises(Aborted), rl_hooks(should_abort=lambda: True):
        adapter.judge_all(said("hang"))


# --- the config ---


def _config(**settings: Any) -> RLRunConfig:
    return RLRunConfig(base="org/model", **settings)


def test_the_short_form_and_the_list_say_the_same() -> None:
    """A list's first entry is what pages read as the verifier."""
    many = _config(rewards=[{"verifier": "exact"}, {"function": f"{MODULE}:judge", "weight": 0.5}])

    assert many.reward_parts == [("exact", 1.0), (f"{MODULE}:judge", 0.5)]
    assert many.verifier == "exact"
    assert RLRunConfig(**many.model_dump()) == many
    assert _config(verifier="math").reward_parts == [("math", 1.0)]


@pytest.mark.parametrize(
    ("rewards", "said_"),
    [
        ([{}], "must name one verifier or one function"),
        ([{"verifier": "exact", "function": f"{MODULE}:judge"}], "must name one"),
        ([{"function": "exact"}], "is not module:function"),
        ([{"verifier": "exacd"}], "is not a verifier"),
        ([{"function": "os:system"}], "does not allow"),
        ([{"verifier": "exact", "weight": float("nan")}], "finite"),
        ([{"verifier": "exact"}, {"verifier": "exact"}], "names one of them twice"),
    ],
)
def test_a_list_of_rewards_that_cannot_be_is_refused(rewards: Any, said_: str) -> None:
    """By what is wrong with it."""
    with pytest.raises(ConfigError, match=said_):
        _config(rewards=rewards)


def test_a_threshold_may_be_any_finite_number() -> None:
    """Rewards of penalties are negative."""
    assert _config(success_threshold=-1.5).success_threshold == -1.5
    with pytest.raises(ConfigError, match="finite"):
        _config(success_threshold=float("inf"))


# --- the look before a job is queued ---


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize(
    ("name", "said_"),
    [
        ("no_such", "has no attribute 'no_such'"),
        ("needs_a_column", "asks for 'difficulty', and the columns of the rows are: answer, id"),
        ("three", "takes a, b, c: neither (predicted, expected) nor any of TRL's names"),
        ("exits", "on the first row ('q0') with its own answer: SystemExit: 3"),
        ("strict", "KeyError: '7'"),
    ],
)
def test_a_function_that_cannot_work_is_refused_at_enqueue(
    sevens_file: Path, name: str, said_: str
) -> None:
    """Imported, held against the columns, and tried on the first row."""
    found = look(_config(verifier=f"{MODULE}:{name}", data={"source": str(sevens_file)}))

    assert said_ in found.problems[0].line()
    assert any(file.endswith("trl_rewards.py") for file in found.files)


@pytest.mark.parametrize("name", ["accuracy_reward", "judge", "length_penalty", "predicted_is"])
def test_a_function_that_works_is_not(sevens_file: Path, name: str) -> None:
    """Nor is it cautioned."""
    rewards = [{"verifier": "exact"}, {"function": f"{MODULE}:{name}"}]

    found = look(_config(rewards=rewards, data={"source": str(sevens_file)}))

    assert (list(found.problems), list(found.cautions)) == ([], [])


@pytest.mark.requirement("EX-07")
def test_a_function_of_one_source_or_bench_is_tried_on_its_own_rows(
    sevens_file: Path, tmp_path: Path
) -> None:
    """By the path of the setting that names it; what works on every source is not cautioned."""
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "o", "prompt": "3+4=", "answer": "7", "difficulty": 2}\n', "utf-8")
    bench = {"name": "mine", "source": str(other), "verifier": f"{MODULE}:exits"}
    column = f"{MODULE}:needs_a_column"
    mix = [
        {"name": "a", "source": str(sevens_file), "verifier": column},
        {"name": "b", "source": str(other), "verifier": column},
        {"name": "c", "source": str(sevens_file)},
    ]

    found = look(_config(verifier=f"{MODULE}:judge", data={"mix": mix}, heldout=[bench]))

    assert [problem.field for problem in found.problems] == [
        "data.mix.0.verifier",
        "heldout.0.verifier",
    ]
    assert "asks for 'difficulty'" in found.problems[0].line()
    assert "on the first row ('o') with its own answer" in found.problems[1].line()


# --- whole runs ---


@pytest.mark.requirement("RL-17")
def test_functions_of_trl_run_through_a_whole_run(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    tmp_path: Path,
) -> None:
    """Accuracy, a penalty on length and an async judge, with weights, on rows of messages."""
    path = tmp_path / "rows.jsonl"
    rows = [
        {
            "prompt": [
                {"role": "user", "content": f"{i:03d}="},
            ],
            "answer": "7",
            "level": i,
        }
        for i in range(120)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe |= {
        "data": {"source": str(path)},
        "rewards": [
            {"function": f"{MODULE}:accuracy_reward"},
            {"function": f"{MODULE}:length_penalty", "weight": 0.5},
            {"function": f"{MODULE}:judge", "weight": 0.2},
        ],
    }
    run = new_attempt(recipe)

    result = rl_run(open_newest(run))

    [first, *_] = [e["values"] for e in events(run, "metric") if "pool/score" in e["values"]]
    assert first["rewards/length_penalty"] == pytest.approx(-0.1)
    assert first["rewards/judge"] == 0.5
    assert first["logged/judge/sure"] == 0.75
    assert first["pool/crash"] == first["pool/unjudged"] == 0.0
    assert events(run, "gate")[0]["values"]["rewards/judge"] == 0.5
    [row, *_] = [
        json.loads(line)
        for line in (run.rollouts / "train-000001.jsonl").read_text("utf-8").splitlines()
    ]
    assert row["extra"] == {"gold": "7"}
    assert set(row["parts"]) == {"accuracy_reward", "length_penalty", "judge"}
    assert result["alerts"] == []
    scores = list(result["heldout_scores"].values())
    assert scores[-1] > scores[0]


@pytest.mark.requirement("RL-17")
def test_the_example_of_the_documentation_runs_as_it_is(
    sevens_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied out, allowed, named in the YAML beside it."""
    page = (Path(__file__).resolve().parents[3] / "docs/verifiers.md").read_text("utf-8")
    section = page.split("## Your own reward function")[1]
    module, settings = (
        section.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "yaml")
    )
    (tmp_path / "my_rewards.py").write_text(module, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "my_rewards")
    config = _config(**yaml.safe_load(settings), data={"source": str(sevens_file)})

    found = look(config)
    verifier: Any = load_rewards(config.reward_parts, 0.5)
    with closing(verifier.functions):
        right, none = RewardAdapter(verifier).judge_all(
            [Case("7", "7", "", (1, 2), {"answer": gold}) for gold in ("7", None)]
        )

    assert (list(found.problems), list(found.cautions)) == ([], [])
    assert right.parts == {"accuracy_reward": 1.0, "short_reward": -0.002, "math": 1.0}
    assert none.parts["accuracy_reward"] is None
    assert right.logged == {"longest": 2.0}
