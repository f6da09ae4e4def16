"""Rollouts of stage-2 from servers: the same prompts, pictures, seeds and answers as by `hf`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import VisionModel
from engine.sampling.contradiction import SamplerContradicted
from engine.sampling.vllm.checks import ReplyCheck
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Drawn, FalseReplyError, Request
from engine.sampling.vllm.infer import InferApi
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.pictures import DataURLs
from engine.stage2.rollout.prompts import PromptReader, Unread
from engine.stage2.rollout.vllm import VLLMSampler
from tests.engine.sampling.vllm.conftest import free_port
from tests.engine.stage2.rollout.vision_server import VisionServer


@pytest.fixture(scope="module")
def server(vl_folder: Path) -> Iterator[VisionServer]:
    """One for the module: starting it loads a model."""
    with VisionServer(vl_folder, free_port()) as server:
        yield server


class Straight:
    """A lane of one server that has the weights already."""

    def __init__(self, server: VisionServer, vlm: VisionModel, routes: str = "openai") -> None:
        vocabulary = int(vlm.core.config.text_config.vocab_size)
        check = ReplyCheck(vocabulary, vlm.tokenizer)
        root = server.serving.root
        self._api: ServerApi | InferApi = (
            ServerApi(server.serving, check=check)
            if routes == "openai"
            else InferApi(root, batch_size=2, check=check)
        )
        self._model = str(server.base)
        self.asked: list[Request] = []

    def bring(self) -> None:
        """They are there."""

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        self.asked = list(requests)
        return self._api.complete(self._model, requests, at_once=4)


@pytest.fixture(params=["openai", "infer"])
def lane(request: pytest.FixtureRequest, server: VisionServer, vlm: VisionModel) -> Straight:
    """By vLLM's routes, and by ms-swift's."""
    return Straight(server, vlm, request.param)


NewSampler = Callable[..., VLLMSampler]


@pytest.fixture
def new_sampler(lane: Straight, reader: PromptReader) -> NewSampler:
    def make(**settings: object) -> VLLMSampler:
        return VLLMSampler(lane, reader, rollouts(**settings), limit=1e-4)

    return make


def rollouts(**settings: object) -> RolloutMatchingConfig:
    known = {"rollout_backend": "hf", "max_new_tokens": 6, "decode_batch_size": 4}
    return RolloutMatchingConfig.model_validate(known | settings)


@pytest.mark.requirement("RM-02", "AB-13")
def test_greedy_answers_are_those_of_hf(
    new_sampler: NewSampler, vlm: VisionModel, pieces: TokenPieces, reader: PromptReader,
    records: list[Record],
) -> None:  # fmt: skip
    """Ids without the end token, and prompts that a server wrote as the run does."""
    prompts = [reader(record) for record in records[:4]]

    served = new_sampler()(prompts, 7)

    assert served == HFSampler(vlm, pieces, rollouts())(prompts, 7)
    assert all(pieces.end_id not in answer.ids for answer in served)


@pytest.mark.requirement("AB-13", "RM-08")
def test_each_request_has_the_seed_of_its_place(
    new_sampler: NewSampler, lane: Straight, reader: PromptReader, records: list[Record]
) -> None:
    """(base + place) & 0x7FFFFFFF, and the decoding of the config."""
    decoding = {"temperature": 0.7, "top_p": 1.0, "top_k": -1}
    prompts = [reader(record) for record in records[:3]]
    sampler = new_sampler(decoding=decoding)

    first = sampler(prompts, 0x7FFFFFFE)

    assert [request.seed for request in lane.asked] == [0x7FFFFFFE, 0x7FFFFFFF, 0]
    assert {(r.temp, r.top_p, r.top_k) for r in lane.asked} == {(0.7, 1.0, 0)}
    assert sampler(prompts, 0x7FFFFFFE) == first
    told = sampler.decoding()
    assert (told["backend"], told["temperature"], told["top_k"]) == ("vllm", 0.7, -1)


def test_pictures_of_an_evaluation_are_read_when_they_are_sent(
    new_sampler: NewSampler, reader: PromptReader, records: list[Record]
) -> None:
    """Prompts that are read anew each time they are taken give the same answers."""
    kept = [reader(record) for record in records[:3]]

    assert new_sampler()(Unread(reader, records[:3]), 0) == new_sampler()(kept, 0)


@pytest.mark.requirement("RM-02")
def test_a_prompt_that_the_server_writes_otherwise_is_refused(
    new_sampler: NewSampler, reader: PromptReader, records: list[Record]
) -> None:
    """Strictly: one id more is another prompt."""
    prompt = reader(records[0])
    other = replace(prompt, ids=(*prompt.ids[:-1], prompt.ids[0], prompt.ids[-1]))

    with pytest.raises(FalseReplyError, match="read other prompt ids than it was sent"):
        new_sampler()([other], 0)


@pytest.mark.parametrize(("routes", "part"), [("openai", "visual"), ("infer", "language_model")])
def test_a_server_with_other_weights_is_contradicted(
    routes: str, part: str, server: VisionServer, vlm: VisionModel, reader: PromptReader,
    records: list[Record], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its vision tower, which no text would show; and its text, where no log-probabilities are
    told. Before anything is trained.
    """
    monkeypatch.setattr(server, "tells", False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in getattr(vlm.core, part).parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    sampler = VLLMSampler(Straight(server, vlm, routes), reader, rollouts(), limit=1e-4)
    prompts = [reader(record) for record in records[:4]]

    with pytest.raises(SamplerContradicted, match=r"drawn by the weights of step 0: .* nats"):
        sampler(prompts, 0)


def test_filters_and_penalties_are_read_again_as_the_server_applies_them(
    reader: PromptReader, records: list[Record]
) -> None:
    """The trainer's numbers are of the distribution that the token was drawn from."""
    config = rollouts(decoding={"temperature": 0.8, "top_p": 0.6, "top_k": 9})
    told = _Told(reader)
    sampler = VLLMSampler(told, reader, config, limit=1e-4)

    told.shape = lambda logits: (logits / 0.8).log_softmax(-1)
    with pytest.raises(SamplerContradicted):
        sampler([reader(records[0])], 0)


def test_an_answer_that_repeats_itself_is_cut_where_hf_would_cut_it(
    reader: PromptReader, records: list[Record], pieces: TokenPieces
) -> None:
    """A server draws on to its limit; what stands behind the cut is not kept."""
    guard = {"min_new_tokens": 3, "max_consecutive_token_repeats": 3}
    sampler = VLLMSampler(_Told(reader), reader, rollouts(repeat_terminate=guard), limit=1.0)
    token = pieces.encode("a")[0]

    found = sampler._response(Drawn((token,) * 6, ()))

    assert found == Response((token,) * 3, ended=False, guarded=True)


def test_an_answer_that_shows_a_picture_is_cut_in_front_of_it(
    reader: PromptReader, records: list[Record], pieces: TokenPieces
) -> None:
    """It could not be taught as it is: a picture token wants a picture."""
    told = _Told(reader)
    told.says = (pieces.encode("a")[0], min(pieces.placeholders), pieces.encode("a")[0])
    sampler = VLLMSampler(told, reader, rollouts(), limit=1000.0)

    assert sampler([reader(records[0])], 0) == [Response(told.says[:1], ended=False)]


class _Told:
    """A lane that draws from the trainer's own model, and tells what `shape` makes of it."""

    def __init__(self, reader: PromptReader) -> None:
        self._reader = reader
        self.shape: Callable[[torch.Tensor], torch.Tensor] = lambda logits: logits.log_softmax(-1)
        self.says: tuple[int, ...] = ()

    def bring(self) -> None:
        """Its own weights."""

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        model = self._reader.vlm.model
        if self.says:
            return [[Drawn(self.says, ())] for _ in requests]
        found = []
        for request in requests:
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([request.prompt_ids])).logits[0, -1].clone()
            log_p = self.shape(logits)
            token = int(log_p.argmax())
            found.append([Drawn((token,), (float(log_p[token]),))])
        return found


@pytest.mark.parametrize(
    ("mode", "name", "kind"),
    [("RGB", "a.jpg", "jpeg"), ("RGB", "a.png", "png"), ("RGBA", "b.png", "png")],
)
def test_a_server_is_sent_what_training_sees(
    mode: str, name: str, kind: str, tmp_path: Path
) -> None:
    """A JPEG as it lies there; all else as training reads it, transparent places white."""
    path = tmp_path / name
    Image.new(mode, (4, 3), (200, 10, 10, 0)[: len(mode)]).save(path)

    [url] = DataURLs((path,))

    assert url.startswith(f"data:image/{kind};base64,")
