"""Several servers as one: who is asked what, and what is drawn when one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from engine.contract.serving import Serving
from engine.run.stop import Aborted, rl_hooks, telling_of_life
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import (
    Drawn,
    Endpoint,
    FalseReplyError,
    Request,
    ServerError,
    ServerLostError,
)
from engine.sampling.vllm.fleet import Fleet, chunks
from engine.sampling.vllm.line import CallEvent
from tests.engine.sampling.vllm.lying import PATIENCE, UNLIMITED, Liar, running

Ids = list[list[tuple[int, ...]]]


@pytest.fixture(scope="module")
def tokenizer(chat_base: Path) -> Any:
    """The run's own."""
    return AutoTokenizer.from_pretrained(chat_base)


@pytest.fixture(scope="module")
def started(tokenizer: Any, chat_base: Path) -> Iterator[list[Liar]]:
    """Four processes for all tests; one that a test killed comes back for the next."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(tokenizer, chat_base)) for _ in range(4)]


@pytest.fixture
def servers(started: list[Liar]) -> list[Liar]:
    """Honest, and not asked anything yet."""
    for one in started:
        if one.process is None or one.process.poll() is not None:
            one.start()
        one.lie("")
    return started


@pytest.fixture
def events() -> list[CallEvent]:
    """What a fleet told."""
    return []


def ids_of(answers: list[list[Drawn]]) -> Ids:
    return [[drawn.ids for drawn in group] for group in answers]


def alone(server: Liar, requests: list[Request]) -> Ids:
    """What an unbroken step of one server draws."""
    return ids_of(server.openai().complete("policy", requests, at_once=64))


def prompts_at(server: Liar) -> list[list[int]]:
    """In the order of their prompts: calls may overtake each other on the way."""
    return sorted(call["body"]["prompt"] for call in server.asked())


def killer(server: Liar) -> Callable[[Endpoint], None]:
    """`alive` of a fleet: kills the server once it has been asked something."""
    done: list[bool] = []

    def alive(_: Endpoint) -> None:
        if not done and server.asked():
            done.append(True)
            server.kill()

    return alive


# --- who is asked what ---


@pytest.mark.requirement("RM-05", "EX-20")
@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 8])
def test_servers_get_contiguous_chunks_and_the_order_is_kept(
    servers: list[Liar], count: int
) -> None:
    """Four servers: ceil(N/4) each, as long as there are any."""
    requests = servers[0].requests(count)
    size = -(-count // 4)

    for _ in range(2):
        answers = Fleet([one.openai() for one in servers]).complete("policy", requests, at_once=8)
        for place, one in enumerate(servers):
            own = requests[place * size : (place + 1) * size]
            assert prompts_at(one) == [list(request.prompt_ids) for request in own]
            drawn = [group[0].server for group in answers[place * size :][: len(own)]]
            assert drawn == [f"{one.root}/v1"] * len(own)
            one.lie("")
    assert ids_of(answers) == alone(servers[0], requests)


@pytest.mark.requirement("RM-05")
def test_nothing_is_sent_for_nothing(servers: list[Liar]) -> None:
    """No request, no call; and an empty chunk is none."""
    fleet = Fleet([one.openai() for one in servers])

    assert fleet.complete("policy", [], at_once=8) == []

    assert [one.asked() for one in servers] == [[], [], [], []]
    assert chunks([], 3) == []


@pytest.mark.requirement("RM-08")
def test_every_request_carries_its_seed_and_the_decoding_in_force(
    servers: list[Liar], events: list[CallEvent]
) -> None:
    """On either kind of routes; the seed belongs to the request and not to the server."""
    requests = servers[0].requests(4, temp=0.7, top_p=0.9, top_k=20, repetition_penalty=1.1)
    shape = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1}

    Fleet([one.openai() for one in servers[:2]], tell=events.append).complete(
        "policy", requests, at_once=8
    )

    seeds = [sorted(call["body"]["seed"] for call in one.asked()) for one in servers[:2]]
    assert seeds == [[7000, 7001], [7002, 7003]]
    for call in servers[0].asked():
        assert shape.items() <= call["body"].items()
    assert [(e.what, e.server, e.requests, e.seed) for e in events] == [
        ("sent", f"{servers[0].root}/v1", ("q0", "q1"), 7000),
        ("sent", f"{servers[1].root}/v1", ("q2", "q3"), 7002),
    ]
    assert shape.items() <= events[0].decoding.items()


# --- bring-up ---


@pytest.mark.requirement("RM-04")
def test_servers_that_nobody_listens_at_are_named_after_their_time(servers: list[Liar]) -> None:
    """With what to do about it, and not before `timeout_s` is over."""
    servers[1].kill()
    fleet = Fleet([one.infer() for one in servers[:2]])
    began = time.monotonic()

    with pytest.raises(
        ServerLostError, match=f"127.0.0.1:{servers[1].port} does not answer within 1 s; start that"
    ):
        fleet.reach()

    assert time.monotonic() - began >= 1


def test_servers_that_come_up_in_their_time_are_waited_for(servers: list[Liar]) -> None:
    """They may be loading while the run begins."""
    servers[1].kill()
    limits = replace(PATIENCE, timeout_s=60)
    fleet = Fleet([servers[0].infer(limits), servers[1].infer(limits)])
    asked: list[None] = []

    def should_abort() -> bool:
        if not asked:
            asked.append(None)
            servers[1].start()
        return False

    with rl_hooks(should_abort=should_abort):
        fleet.reach()

    assert asked


def test_a_stop_reaches_the_wait_for_a_server(servers: list[Liar]) -> None:
    """Models take minutes to load."""
    servers[0].kill()
    fleet = Fleet([servers[0].openai(replace(PATIENCE, timeout_s=600))])

    with rl_hooks(should_abort=lambda: True), pytest.raises(Aborted):
        fleet.reach()


# --- retry and halving ---


@pytest.mark.requirement("RM-08")
def test_a_retried_call_leaves_an_event_and_keeps_its_seed(
    servers: list[Liar], events: list[CallEvent]
) -> None:
    """Which requests, which try, which seed, what decoding, which server, and why."""
    server = servers[0]
    requests = server.requests(1)
    honest = alone(server, requests)
    server.lie("engine dead", times=1)

    answers = Fleet([server.openai()], tell=events.append).complete("policy", requests, at_once=1)

    assert ids_of(answers) == honest
    assert [call["body"]["seed"] for call in server.asked()] == [7000, 7000]
    [_, retried] = events
    assert (retried.what, retried.attempt, retried.seed) == ("retried", 2, 7000)
    assert (retried.server, retried.requests) == (f"{server.root}/v1", ("q0",))
    assert retried.decoding["temperature"] == 1.0
    assert "EngineCore died" in retried.problem


@pytest.mark.requirement("RM-08")
def test_a_halved_call_keeps_the_seed_rule(servers: list[Liar], events: list[CallEvent]) -> None:
    """`/infer/`: base + index of its first request, also after halving."""
    server = servers[0]
    server.lie("overfull")
    fleet = Fleet([server.infer(batch_size=7)], tell=events.append)

    answers = fleet.complete("policy", server.requests(7, seed=0x7FFFFFFE, temp=0.0), at_once=1)

    assert [len(group) for group in answers] == [1] * 7
    server_asked = [call["body"] for call in server.asked()]
    assert [len(body["infer_requests"]) for body in server_asked] == [7, 7, 3, 1, 2, 4, 2, 2]
    assert [e.what for e in events] == ["sent", "retried", "halved", "halved", "halved"]
    assert events[-1].requests == ("q3", "q4", "q5", "q6")


def test_the_samples_of_a_request_are_halved_with_their_seeds(servers: list[Liar]) -> None:
    """Sample i is drawn with seed + i in whichever part it goes out."""
    server = servers[0]
    requests = server.requests(1, k=5)
    honest = alone(server, requests)
    server.lie("engine dead", times=2)

    answers = Fleet([server.openai()]).complete("policy", requests, at_once=1)

    assert ids_of(answers) == honest
    parts = [(call["body"]["n"], call["body"]["seed"]) for call in server.asked()]
    assert parts == [(5, 7000), (5, 7000), (2, 7000), (3, 7002)]


# --- a server that is lost ---


@pytest.mark.requirement("EX-20")
@pytest.mark.parametrize("temp", [0.0, 1.0], ids=["greedy", "seeded"])
def test_what_a_lost_server_leaves_is_drawn_by_the_others_as_it_would_have_been(
    servers: list[Liar], events: list[CallEvent], temp: float
) -> None:
    """Killed while it was asked; the step's rollouts are an unbroken step's."""
    requests = servers[0].requests(8, temp=temp, k=1 if temp == 0 else 3)
    unbroken = alone(servers[0], requests)
    for one in servers[:3]:
        one.lie("")
    servers[1].lie("hang")
    fleet = Fleet([one.openai(UNLIMITED) for one in servers[:3]], tell=events.append)

    answers = fleet.complete("policy", requests, at_once=8, alive=killer(servers[1]))

    assert ids_of(answers) == unbroken
    assert [endpoint.url for endpoint in fleet.live] == [
        f"{servers[0].root}/v1",
        f"{servers[2].root}/v1",
    ]
    told = [(e.what, e.server, e.requests) for e in events if e.what in {"lost", "moved"}]
    assert told == [
        ("lost", f"{servers[1].root}/v1", ("q3", "q4", "q5")),
        ("moved", f"{servers[0].root}/v1", ("q3", "q4")),
        ("moved", f"{servers[2].root}/v1", ("q5",)),
    ]
    assert ids_of(fleet.complete("policy", requests, at_once=8)) == unbroken


def test_a_lost_infer_servers_calls_keep_their_seeds(servers: list[Liar]) -> None:
    """One seed a call: the calls move whole."""
    requests = servers[0].requests(8)
    fleet = Fleet([one.infer(batch_size=2) for one in servers[:2]])
    unbroken = ids_of(fleet.complete("policy", requests, at_once=1))
    servers[1].kill()

    assert ids_of(fleet.complete("policy", requests, at_once=1)) == unbroken


def test_the_last_server_that_is_lost_ends_the_step(servers: list[Liar]) -> None:
    """With its own last words; and there is nobody to ask afterwards."""
    fleet = Fleet([one.openai() for one in servers[:2]])
    for one in servers[:2]:
        one.kill()

    for _ in range(2):
        with pytest.raises(ServerLostError, match=r"127\.0\.0\.1:.* the server is gone"):
            fleet.complete("policy", servers[0].requests(4), at_once=8)


def test_a_server_that_fails_every_call_is_lost_and_not_the_step(servers: list[Liar]) -> None:
    """Its engine is dead behind routes that still answer."""
    requests = servers[0].requests(4, k=2)
    unbroken = alone(servers[0], requests)
    servers[1].lie("engine dead")
    fleet = Fleet([one.openai() for one in servers[:2]])

    assert ids_of(fleet.complete("policy", requests, at_once=8)) == unbroken
    assert len(fleet.live) == 1


def test_a_false_answer_is_nobody_elses_to_mend(servers: list[Liar]) -> None:
    """It ends the step by its name: what else did this server answer?"""
    servers[1].lie("other prompt")

    with pytest.raises(FalseReplyError, match=f"127.0.0.1:{servers[1].port}/v1 read other prompt"):
        Fleet([one.openai() for one in servers[:2]]).complete(
            "policy", servers[0].requests(4), at_once=8
        )


def test_a_dead_server_of_ours_is_started_again_and_the_step_replays_its_seeds(
    servers: list[Liar], events: list[CallEvent]
) -> None:
    """The others keep their chunks."""
    requests = servers[0].requests(6, k=2)
    unbroken = alone(servers[0], requests)
    servers[1].lie("hang")

    def revive(lost: Endpoint) -> Endpoint:
        assert lost.url == f"{servers[1].root}/v1"
        servers[1].start()
        return servers[1].openai()

    fleet = Fleet([one.openai(UNLIMITED) for one in servers[:2]], tell=events.append, revive=revive)

    answers = fleet.complete("policy", requests, at_once=8, alive=killer(servers[1]))

    assert ids_of(answers) == unbroken
    assert [e.what for e in events if e.what not in {"sent", "retried"}] == ["lost", "revived"]
    assert prompts_at(servers[1]) == [list(request.prompt_ids) for request in requests[3:]]
    assert len(fleet.live) == 2


def test_a_server_that_dies_again_in_the_step_is_not_started_a_third_time(
    servers: list[Liar],
) -> None:
    """Its chunk goes to the others."""
    requests = servers[0].requests(4)
    unbroken = alone(servers[0], requests)
    servers[1].kill()
    starts: list[Endpoint] = []

    def revive(lost: Endpoint) -> Endpoint:
        starts.append(lost)
        return lost

    fleet = Fleet([one.openai() for one in servers[:2]], revive=revive)

    assert ids_of(fleet.complete("policy", requests, at_once=8)) == unbroken
    assert len(starts) == 1


def test_a_process_that_is_dead_ends_the_wait_for_its_answer(servers: list[Liar]) -> None:
    """A connection may hang on for as long as it likes."""
    servers[0].lie("hang")

    def alive(endpoint: Endpoint) -> None:
        raise ServerError(f"{endpoint.url}: the serving process ended with status 137")

    with pytest.raises(ServerLostError, match="status 137"):
        Fleet([servers[0].openai(UNLIMITED)]).complete(
            "policy", servers[0].requests(1), at_once=1, alive=alive
        )


# --- waiting ---


@pytest.mark.parametrize("kind", ["openai", "infer"])
def test_a_stop_reaches_all_servers_within_a_batch(servers: list[Liar], kind: str) -> None:
    """Nobody waits for the calls in flight."""
    for one in servers:
        one.lie("hang")
    fleet = Fleet([getattr(one, kind)(UNLIMITED) for one in servers])

    def should_abort() -> bool:
        return all(one.asked() for one in servers)

    began = time.monotonic()
    with rl_hooks(should_abort=should_abort), pytest.raises(Aborted):
        fleet.complete("policy", servers[0].requests(8), at_once=8)

    assert time.monotonic() - began < 10


@pytest.mark.requirement("RM-04")
@pytest.mark.parametrize("limit", [None, 0, -1.0])
@pytest.mark.parametrize("kind", ["openai", "infer"])
def test_without_a_time_limit_a_slow_answer_is_waited_for(
    servers: list[Liar], limit: float | None, kind: str
) -> None:
    """Longer than `timeout_s`; the health beside it is a sign of life."""
    server, signs = servers[0], list[None]()
    server.lie("late")
    api = getattr(server, kind)(replace(UNLIMITED, infer_timeout_s=limit))

    with telling_of_life(lambda: signs.append(None)):
        answers = Fleet([api]).complete("policy", server.requests(1), at_once=1)

    assert len(answers) == 1
    assert signs


@pytest.mark.requirement("RM-04")
def test_with_a_time_limit_a_slow_answer_is_not_waited_for(servers: list[Liar]) -> None:
    """It holds for the whole call, from sending to the answer's end."""
    server = servers[0]
    server.lie("late")
    limits = replace(PATIENCE, timeout_s=60, infer_timeout_s=0.3)

    with pytest.raises(ServerLostError, match=r"no answer to infer within 0\.3 s"):
        Fleet([server.infer(limits)]).complete("policy", server.requests(1), at_once=1)


# --- ms-swift's routes ---


@pytest.mark.requirement("RM-08")
def test_a_call_of_infer_has_one_seed_of_31_bits(servers: list[Liar]) -> None:
    """(base + index of its first request) & 0x7FFFFFFF."""
    base = 0x7FFFFFFF - 3
    server = servers[0]
    requests = server.requests(8)
    seeded = [replace(one, seed=base + place) for place, one in enumerate(requests)]

    server.infer(batch_size=3).complete("policy", seeded)

    configs = [call["body"]["request_config"] for call in server.asked()]
    assert [config["seed"] for config in configs] == [base, 0x7FFFFFFF, 2]


def test_a_prompt_never_stands_twice_in_a_call_under_a_sampling_seed(servers: list[Liar]) -> None:
    """One seed a call would make the two samples one."""
    server = servers[0]
    requests = server.requests(3, k=2)

    answers = server.infer(batch_size=4).complete("policy", requests)

    calls = [
        [one["messages"][0]["content"] for one in call["body"]["infer_requests"]]
        for call in server.asked()
    ]
    assert calls == [["1 2 30", "1 2 31", "1 2 32"]] * 2
    assert all(first.ids != second.ids for first, second in answers)

    server.lie("")
    server.infer(batch_size=4).complete("policy", server.requests(2, k=2, temp=0.0))
    assert [len(call["body"]["infer_requests"]) for call in server.asked()] == [4]


def test_infer_sends_what_the_protocol_says(
    servers: list[Liar], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below an address with a path, with the key of the environment, past every proxy."""
    monkeypatch.setenv("NIGHTLANE_SERVE_KEY", "secret")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = servers[0]
    api = server.infer(path="/box/7/")

    assert api.answers()
    assert api.world_size() == 2
    api.complete("policy", server.requests(1, images=("aGk=",), top_k=5))

    [call] = server.asked()
    assert (call["path"], call["key"]) == ("/box/7/infer/", "Bearer secret")
    assert call["body"] == {
        "infer_requests": [
            {"messages": [{"role": "user", "content": "1 2 30"}], "images": ["aGk="]}
        ],
        "request_config": {
            "max_tokens": 24, "temperature": 1.0, "top_p": 1.0, "top_k": 5,
            "repetition_penalty": 1.0, "stop": ["<|im_end|>"], "return_details": True,
            "logprobs": True, "seed": 7000,
        },
    }  # fmt: skip


def test_openai_routes_below_a_path_are_reached_past_every_proxy(
    servers: list[Liar], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy for this machine's own address answers everything with its own errors."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    api = ServerApi(Serving(url=f"{servers[0].root}/box/v1"), limits=PATIENCE)

    assert api.answers()
    assert len(api.complete("policy", servers[0].requests(1), at_once=1)) == 1
    assert [call["path"] for call in servers[0].asked()] == ["/box/v1/completions"]


def test_a_server_without_a_world_is_no_rollout_server(servers: list[Liar]) -> None:
    """The weight sync would wait for nobody."""
    servers[0].lie("no world")

    with pytest.raises(ServerError, match="names no world_size; is it an ms-swift rollout server"):
        servers[0].infer().world_size()


def test_infer_takes_no_ids(servers: list[Liar]) -> None:
    """Said before anything is sent."""
    with pytest.raises(ServerError, match="takes conversations, and request 'q0' has token ids"):
        servers[0].infer().complete("policy", servers[0].requests(1, messages=()))

    assert servers[0].asked() == []
