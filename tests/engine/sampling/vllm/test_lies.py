"""A lying server is caught by the name of its lie, or mended by the one retry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from engine.sampling.vllm.checks import SeedProbe, impossible
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import (
    Drawn,
    FalseReplyError,
    Lie,
    RefusedError,
    ServerError,
    ServerLostError,
)
from engine.sampling.vllm.infer import InferApi
from tests.engine.sampling.vllm.lying import UNLIMITED, Liar, running

Api = ServerApi | InferApi
NAMED = {
    "wrong length": Lie.LENGTH,
    "half a JSON": Lie.HALF,
    "no ids": Lie.NO_IDS,
    "no prompt ids": Lie.NO_PROMPT,
    "other prompt": Lie.PROMPT,
    "ids out of vocabulary": Lie.VOCABULARY,
    "other tokenizer": Lie.TEXT,
    "runs on": Lie.END,
}
OPENAI_ALONE = {
    "another model": Lie.MODEL,
    "no log-probs": Lie.LOGPROBS,
    "floor log-probs": Lie.LOGPROBS,
    "sure log-probs": Lie.LOGPROBS,
    "samples alike": Lie.SAMPLES,
    "one seed": Lie.SAMPLES,
}
SAID = {
    "error object": "answers with an error: no slot is free",
    "engine dead": "refused with status 500: EngineCore died",
    "half a reply": "failed .*the server is gone or was restarted",
    "hang": "no answer to (completions|infer) within 1 s; the server hangs",
    "drip": "that began and did not end within 1 s; the server hangs",
}


@pytest.fixture(scope="module")
def liar(chat_base: Path) -> Iterator[Liar]:
    """One process for all lies."""
    with running(AutoTokenizer.from_pretrained(chat_base), chat_base) as one:
        yield one


@pytest.fixture(params=["openai", "infer"])
def api(request: pytest.FixtureRequest, liar: Liar) -> Api:
    """Both kinds of routes."""
    return liar.openai() if request.param == "openai" else liar.infer()


def ask(api: Api, liar: Liar, **settings: Any) -> list[list[Drawn]]:
    return api.complete("policy", liar.requests(3, **settings), at_once=4)


@pytest.mark.parametrize(("lie", "name"), NAMED.items())
def test_a_false_answer_is_caught_by_name(api: Api, liar: Liar, lie: str, name: Lie) -> None:
    """Asked a second time it says the same, and then it is no accident."""
    liar.lie(lie)

    with pytest.raises(FalseReplyError) as caught:
        ask(api, liar)

    assert caught.value.lie == name
    assert str(caught.value).startswith(api.url)


@pytest.mark.parametrize(("lie", "name"), OPENAI_ALONE.items())
def test_what_log_probabilities_give_away_is_caught_by_name(
    liar: Liar, lie: str, name: Lie
) -> None:
    """Six samples of one request that are one completion, once in e^40 draws or never."""
    liar.lie(lie)

    with pytest.raises(FalseReplyError) as caught:
        ask(liar.openai(), liar, k=6)

    assert caught.value.lie == name


@pytest.mark.parametrize(("lie", "said"), SAID.items())
def test_a_server_that_fails_is_said_within_its_time_limit(
    api: Api, liar: Liar, lie: str, said: str
) -> None:
    """One second a try here: the first, the retry, and on `/infer/` the halves of three."""
    liar.lie(lie)
    began = time.monotonic()

    with pytest.raises(ServerError, match=said):
        ask(api, liar)

    assert time.monotonic() - began < 6


@pytest.mark.parametrize("lie", [*NAMED, *SAID])
def test_what_happens_once_is_mended_by_the_retry(api: Api, liar: Liar, lie: str) -> None:
    """With the same seeds: nobody sees it in the rollouts."""
    liar.lie("")
    honest = ask(api, liar)
    liar.lie(lie, times=1)

    assert ask(api, liar) == honest


def test_a_request_that_is_refused_is_not_sent_again(api: Api, liar: Liar) -> None:
    """It is wrong wherever it goes."""
    liar.lie("refusal")

    with pytest.raises(RefusedError, match="maximum context length"):
        api.complete("policy", liar.requests(1), at_once=1)

    assert len(liar.asked()) == 1


def test_a_server_that_wants_a_key_says_where_it_is_set(api: Api, liar: Liar) -> None:
    """Ours is not in the message."""
    liar.lie("locked")

    with pytest.raises(RefusedError, match="Unauthorized; set NIGHTLANE_SERVE_KEY to its key"):
        api.complete("policy", liar.requests(1), at_once=1)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("seeds ignored", "draws other ids with the same seed"),
        ("one seed", "draws the same ids with every seed"),
    ],
)
def test_a_server_that_ignores_seeds_is_named_at_bring_up(
    api: Api, liar: Liar, lie: str, said: str
) -> None:
    """A run on it could be neither repeated nor resumed."""
    liar.lie(lie)

    with pytest.raises(FalseReplyError, match=said) as caught:
        SeedProbe(liar.requests(4))(api, "policy")

    assert caught.value.lie == Lie.SEEDS


def test_a_server_that_goes_by_its_seeds_passes(api: Api, liar: Liar) -> None:
    """A few short draws at temperature 1."""
    liar.lie("")

    SeedProbe(liar.requests(4))(api, "policy")


def test_a_sure_policy_is_not_taken_for_a_deaf_server() -> None:
    """Eight equal answers of probability 0.99 are no lie; eight of e^-30 are."""
    sure = [Drawn((5, 3), (-0.005, -0.005))] * 8
    unsure = [Drawn((5, 3), (-20.0, -10.0))] * 8
    one_pair = [*(Drawn((i, 3), (-20.0, -30.0)) for i in range(7)), Drawn((0, 3), (-20.0, -30.0))]

    assert [impossible(draws) for draws in (sure, unsure, one_pair)] == [False, True, True]


def test_a_server_that_is_stopped_ends_an_unlimited_wait(liar: Liar, chat_base: Path) -> None:
    """SIGSTOP: it takes connections and says nothing; its health is asked beside the call."""
    with running(liar.tokenizer, chat_base) as stopped:
        api = stopped.infer(UNLIMITED)
        stopped.pause()

        with pytest.raises(ServerLostError, match="has not said for 1 s that it lives"):
            api.complete("policy", stopped.requests(1))


@pytest.mark.parametrize("kind", ["openai", "infer"])
def test_a_server_that_calls_itself_sick_ends_an_unlimited_wait(liar: Liar, kind: str) -> None:
    """vLLM says 503 when its engine is dead, and the call may hang on."""
    liar.lie("sick")
    api: Api = getattr(liar, kind)(UNLIMITED)

    with pytest.raises(ServerLostError, match="has not said for 1 s that it lives"):
        api.complete("policy", liar.requests(1), at_once=1)


# --- pictures ---

PICTURE = "data:image/png;base64,aGk="
TURN = ({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "1 2"}]},)
SEEN = (1, 2, len(PICTURE))


def test_a_picture_goes_out_in_its_place_and_ids_come_back(liar: Liar) -> None:
    """With log-probabilities, seeds and the decoding of every other request."""
    liar.lie("")
    [request] = liar.requests(1, messages=TURN, images=(PICTURE,), prompt_ids=SEEN, k=3)

    [drawn] = liar.openai().complete("policy", [request], at_once=1)

    [call] = liar.asked()
    assert call["path"] == "/v1/chat/completions"
    assert call["body"]["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "text", "text": "1 2"},
    ]
    assert (call["body"]["seed"], call["body"]["n"]) == (7000, 3)
    assert len({one.ids for one in drawn}) == 3
    assert all(len(one.ids) == len(one.logprobs) for one in drawn)


@pytest.mark.parametrize(
    ("lie", "name"),
    [
        ("other prompt", Lie.PROMPT),
        ("no prompt ids", Lie.NO_PROMPT),
        ("no ids", Lie.NO_IDS),
        ("wrong length", Lie.LENGTH),
        ("other tokenizer", Lie.TEXT),
        ("no log-probs", Lie.LOGPROBS),
    ],
)
def test_a_false_answer_to_a_picture_is_caught_by_name(liar: Liar, lie: str, name: Lie) -> None:
    """A chat template of its own shows in the ids that it read."""
    liar.lie(lie)
    requests = liar.requests(1, messages=TURN, images=(PICTURE,), prompt_ids=SEEN, k=3)

    with pytest.raises(FalseReplyError) as caught:
        liar.openai().complete("policy", requests, at_once=1)

    assert caught.value.lie == name
