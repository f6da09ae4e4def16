"""The bench `detection`: in the evaluations of a run, and as a job of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from engine.contract.errors import ConfigError
from engine.contract.registry import validate
from engine.contract.run_dir import RunDir
from engine.contract.sources.ground_truth import GTObject
from engine.contract.sources.records import Record, read_records
from engine.models.qwen3_vl import VisionModel, forward, load
from engine.run.stop import Aborted, rl_hooks
from engine.stage2 import detect
from engine.stage2.channel_a import build_segment
from engine.stage2.learn.layout import ModelInputs, padded
from engine.stage2.learn.matching import weighted_sum
from engine.stage2.parse.parser import parse
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.coord_probs import coord_probs
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.stage2_ab import run as stage2_run
from engine.stage2.target.payload import encode
from tests.engine.conftest import opened
from tests.engine.stage2.conftest import QUESTION, changed
from tools.run_outcome import add_attempt, events_of

NewRun = Callable[..., RunDir]


@pytest.fixture
def new_run(tmp_path: Path) -> NewRun:
    def make(raw: dict[str, Any], kind: str, name: str = "run") -> RunDir:
        return add_attempt(tmp_path, raw, name=name, kind=kind)

    return make


SAID = GTObject("red", (100, 100, 499, 499))
"""What the model below answers, whatever it is shown."""
ANSWER_TOKENS = 64


@pytest.fixture(scope="module")
def parrot(vl_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, taught to answer `SAID` to every picture."""
    folder = tmp_path_factory.mktemp("parrot")
    records = read_records(pictures(folder / "data", [[SAID], [SAID]]))
    vlm = load(str(vl_folder), dtype="float32", attn_implementation="sdpa")
    reader = PromptReader(vlm, TokenPieces(vlm.tokenizer), QUESTION)
    _teach(vlm, reader, records)
    vlm.save(folder / "model")
    return folder / "model"


def _teach(vlm: VisionModel, reader: PromptReader, records: Sequence[Record]) -> None:
    prompts = [reader(record) for record in records]
    whole = [build_segment(one.ids, [SAID], 1.0, reader.pieces) for one in prompts]
    shown = [ModelInputs(part.ids, one.pictures) for part, one in zip(whole, prompts, strict=True)]
    layout = padded(shown, vlm, reader.pad_id)
    optimizer = torch.optim.AdamW(vlm.model.parameters(), lr=3e-3)
    for _ in range(60):
        logits = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
        loss = logits.new_zeros(())
        for part, prompt, logits_TV in zip(whole, prompts, layout.split(logits), strict=True):
            learnt = torch.zeros(len(part.ids))
            learnt[len(prompt.ids) :] = 1.0  # coord tokens too
            loss = loss + weighted_sum(logits_TV, torch.tensor(part.ids), learnt)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def pictures(folder: Path, objects: Sequence[Sequence[GTObject]]) -> Path:
    """A JSONL of pictures with these objects."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, there in enumerate(objects):
        Image.new("RGB", (64, 64), (40 * number % 255, 90, 200)).save(folder / f"{number}.png")
        boxes = [{"desc": one.desc, "bbox_2d": list(one.box)} for one in there]
        lines.append({"images": [f"{number}.png"], "objects": boxes, "width": 640, "height": 480})
    path = folder / "val.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


ELSEWHERE = GTObject("red", (600, 600, 900, 900))
OTHER = GTObject("blue", SAID.box)
THERE = [[SAID], [SAID], [ELSEWHERE], [OTHER], []]
"""Two hits; one box elsewhere; one of another class; a picture with nothing to find."""


@pytest.fixture
def asked(parrot: Path, tmp_path: Path) -> dict[str, Any]:
    """An eval_rerun of that model on those pictures."""
    source = pictures(tmp_path / "data", THERE)
    return {
        "base": str(parrot),
        "benches": [
            {
                "task": "detection",
                "source": str(source),
                "prompt": QUESTION,
                "max_new_tokens": ANSWER_TOKENS,
                "batch_size": 2,
            }
        ],
        "threads": 1,
    }


def scores_of(run: RunDir) -> dict[str, dict[str, Any]]:
    """By metric, the last told."""
    told = [event["score"] for event in events_of(run, "score")]
    return {one["metric"]: one for one in told}


@pytest.mark.requirement("EX-26")
def test_a_checkpoint_is_scored_on_pictures_by_a_job_of_its_own(
    asked: dict[str, Any], new_run: NewRun
) -> None:
    """Every picture is answered with the same red box: 2 of 5 answers are right, 2 of 4 objects
    are found; of red 2 of 3, of blue none."""
    run = new_run(asked, kind="eval_rerun")

    with opened(run) as attempt:
        result = detect.run(attempt)

    found = scores_of(run)
    assert found["F1@0.5"]["score"] == pytest.approx(2 * 2 / (5 + 4))
    assert found["mean IoU"]["score"] == 1.0
    by = {(one["by"], one["name"]): one for one in found["F1@0.5"]["parts"]}
    assert by["class", "red"]["score"] == pytest.approx(2 * 2 / (5 + 3))
    assert (by["class", "blue"]["score"], by["class", "blue"]["n"]) == (0.0, 1)
    assert by["size", "large"]["n"] == 4
    assert 0 < found["mAP"]["score"] < 1
    assert {one["bench"] for one in found.values()} == {"detection"}
    assert {one["n"] for one in found.values()} == {5}
    assert [one["metric"] for one in result["scores"]] == [*found]
    lines = (run.rollouts / "heldout-val-000000.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [
        f"val.jsonl line {n}" for n in range(1, 6)
    ]


def test_a_job_that_was_stopped_goes_on_and_ends_with_the_same_scores(
    asked: dict[str, Any], new_run: NewRun
) -> None:
    """What was answered is not answered again."""
    whole, cut = new_run(asked, kind="eval_rerun"), new_run(asked, kind="eval_rerun", name="cut")
    with opened(whole) as attempt:
        detect.run(attempt)
    part = cut.rollouts / "parts" / "val-000000.jsonl"
    with opened(cut) as attempt, rl_hooks(should_abort=part.exists), pytest.raises(Aborted):
        detect.run(attempt)
    assert len(part.read_text().splitlines()) == 2

    new_run(asked, kind="eval_rerun", name="cut")
    with opened(cut) as attempt:
        detect.run(attempt)

    assert scores_of(cut) == scores_of(whole)


def test_the_probability_of_the_coord_tokens_orders_boxes_and_names_the_bench(
    asked: dict[str, Any], new_run: NewRun, parrot: Path
) -> None:
    asked["benches"][0]["score"] = "coord_prob"
    run = new_run(asked, kind="eval_rerun")

    with opened(run) as attempt:
        detect.run(attempt)

    assert scores_of(run)["mAP"]["bench"] == "detection-coord_prob"
    lines = (run.rollouts / "heldout-val-000000.jsonl").read_text().splitlines()
    told = [json.loads(line)["said"][0][2] for line in lines]
    assert all(0.5 < score < 1 for score in told)
    vlm = load(str(parrot), dtype="float32", attn_implementation="sdpa")
    reader = PromptReader(vlm, TokenPieces(vlm.tokenizer), QUESTION)
    record = read_records(Path(asked["benches"][0]["source"]))[0]
    ids = encode(reader.pieces, [SAID])
    predictions = parse(ids, reader.pieces).predictions
    assert coord_probs(reader, reader(record), ids, predictions)[0] == pytest.approx(told[0], 1e-4)


def test_a_run_measures_it_at_every_gate_and_may_be_picked_by_it(
    ab_recipe: dict[str, Any], parrot: Path, new_run: NewRun, tmp_path: Path
) -> None:
    """`training.metric_for_best_model: detection_map`: gates, verdict and result are mAP's."""
    source = str(pictures(tmp_path / "data", THERE))
    raw = changed(
        ab_recipe,
        model__path=str(parrot),
        custom__extra__rollout_matching__max_new_tokens=ANSWER_TOKENS,
        data={"train_jsonl": source, "val_jsonl": source},
        training__max_steps=2,
        training__eval_steps=2,
        training__learning_rate=1e-6,
        training__metric_for_best_model="detection_map",
    )
    run = new_run(raw, kind="stage2_ab")

    with opened(run) as attempt:
        result = stage2_run(attempt)

    gates = {event["step"]: event["score"] for event in events_of(run, "gate")}
    told = [event for event in events_of(run, "score") if event["score"]["metric"] == "mAP"]
    assert gates == {one["step"]: one["score"]["score"] for one in told}
    assert 0 < gates[0] < 1
    assert result["selected_on"] == "eval_detection_map"
    assert all(one["score"]["picked"] for one in told)
    series = [event["values"] for event in events_of(run, "metric") if event["step"] == 0]
    assert series[0]["eval_detection_map"] == gates[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": "embedded:qwen3-tiny"}, "base: is no vision-language model"),
        ({"rollout_backend": "vllm"}, "does not answer detection"),
        ({"verifier": "math_verify"}, "does nothing beside detection"),
        ({"benches": ["detection"]}, r"detection\.0\.source"),
        ({"detection": [{"source": "x.jsonl", "image_dirs": ["y"]}]}, "names image_dirs"),
        ({"detection": [{"source": "nowhere.json"}]}, "nowhere.json"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_queued(
    change: dict[str, Any], message: str, asked: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=message):
        validate("eval_rerun", asked | change)
