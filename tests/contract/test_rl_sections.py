"""The sections of `rl_run` about prompts, sampling and form: what is refused, and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.registry import cautions, validate
from engine.contract.rl.format import FormatConfig
from engine.contract.rl.prompting import has_chat_template

BASE = {"base": "embedded:qwen3-tiny", "tuning": "full"}


def refusal(raw: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate("rl_run", BASE | raw)
    return str(caught.value)


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """As much of a model folder as a look without torch can see."""
    for name, content in {"config.json": "{}", "tokenizer_config.json": "{}"}.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


@pytest.mark.requirement("EX-04")
def test_a_template_asked_of_a_base_tokenizer_is_refused_before_anything_is_queued(
    model_folder: Path,
) -> None:
    """Seen in the folder's files, torch-free; the embedded base has none either."""
    asked = {"prompting": {"skip_chat_template": False}, "corpus_min": 1}

    for base in (str(model_folder), "embedded:qwen3-tiny"):
        assert refusal({**asked, "base": base}) == (
            "prompting.skip_chat_template: asks for a chat template, which the tokenizer of "
            f"{base} does not have (got False); set it to true and write what the model shall "
            "read with system_prompt, question_format and assistant_prefix; or name an instruct "
            "model"
        )


@pytest.mark.requirement("EX-04")
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", json.dumps({"chat_template": "{{ messages }}"})),
        ("chat_template.jinja", "{{ messages }}"),
        ("chat_template.json", json.dumps({"chat_template": "{{ messages }}"})),
    ],
)
def test_a_template_is_found_wherever_tokenizers_keep_it(
    model_folder: Path, file: str, content: str
) -> None:
    """In the tokenizer's config, or in a file of its own."""
    (model_folder / file).write_text(content)

    assert has_chat_template(model_folder) is True
    validate("rl_run", {
        "base": str(model_folder),
        "data": {"source": "embedded:word_problems"},
        "prompting": {"skip_chat_template": False},
    })  # fmt: skip


def test_a_folder_whose_tokenizer_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    """Loading it will."""
    assert has_chat_template(tmp_path) is None


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            {"prompting": {"question_format": "Q:"}},
            "prompting.question_format: must hold {prompt} once",
        ),
        (
            {"prompting": {"template_variables": {"thinking": False}}},
            "set skip_chat_template to false",
        ),
        ({"sampling": {"top_p": 0}}, "sampling.top_p: input should be greater than 0"),
        ({"sampling": {"topk": 4}}, "did you mean top_k?"),
        ({"format": {"pattern": "("}}, "format.pattern: is no regular expression"),
        ({"format": {"lenient": "gsm8k_all"}}, "format.lenient: is not a verifier"),
        ({"format": {"shape": "boxed", "pattern": "x"}}, "keep one of them"),
        ({"format": {"demonstration": "x"}}, "format.demonstration: must hold {answer} once"),
        ({"format": {"reward": 0.6}}, "format.reward: would count as solved"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_the_way_out(
    raw: dict[str, Any], said: str
) -> None:
    """Field, value, remedy."""
    assert said in refusal(raw)


@pytest.mark.requirement("EX-06")
@pytest.mark.parametrize("name", ["reward", "lenient", "shots"])
def test_form_must_fade_before_the_run_ends(name: str) -> None:
    """What the last steps pay is what the gate counts."""
    value = {"reward": 0.1, "lenient": "gsm8k_any", "shots": 2}[name]
    faded = {"format": {name: value, f"{name}_until": 19}, "max_steps": 20}
    lasting = {"format": {name: value, f"{name}_until": 20}, "max_steps": 20}

    validate("rl_run", BASE | faded)

    assert f"format.{name}_until: lasts to the end of a run of max_steps=20" in refusal(lasting)


@pytest.mark.requirement("EX-06")
def test_by_default_form_fades_over_half_of_the_run() -> None:
    """Nothing of it is left from there on."""
    config = FormatConfig(reward=0.1, lenient="gsm8k_any", shots=3)

    at = [
        (config.reward_at(step, 20), config.lenient_at(step, 20), config.shots_at(step, 20))
        for step in (1, 6, 11, 20)
    ]

    assert at == [(0.1, 1.0, 3), (0.05, 0.5, 2), (0.0, 0.0, 0), (0.0, 0.0, 0)]


@pytest.mark.requirement("EX-04")
def test_a_chat_template_that_nobody_mentions_is_said_and_not_used(model_folder: Path) -> None:
    """Instruct model or base model with a template on board: only its owner knows."""
    (model_folder / "chat_template.jinja").write_text("{{ messages }}")
    data = {"source": "embedded:word_problems"}
    raw = {"base": str(model_folder), "tuning": "full", "data": data}

    silent = cautions("rl_run", raw)
    said = cautions("rl_run", raw | {"prompting": {"skip_chat_template": True}})

    assert [caution.field for caution in silent] == ["prompting.skip_chat_template"]
    assert "set it to false for an instruct model" in silent[0].line()
    assert said == []


ENDED = ("{{ m.content }}<|im_end|>", "{{ m.content + eos_token }}")


@pytest.mark.requirement("EX-04")
@pytest.mark.parametrize("template", [*ENDED, "{{ m.content }}<|eot|>"])
@pytest.mark.parametrize("in_config", [False, True], ids=["a file", "the tokenizer's config"])
def test_a_template_that_does_not_write_the_models_end_is_said_by_name(
    template: str, in_config: bool, model_folder: Path
) -> None:
    """A base model with ChatML on board: its turns end in a token that it was not trained on."""
    tokenizer = {
        "eos_token": {"content": "<|endoftext|>"},
        "added_tokens_decoder": {"7": {"content": "<|endoftext|>"}, "8": {"content": "<|eot|>"}},
    } | ({"chat_template": template} if in_config else {})
    (model_folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    if not in_config:
        (model_folder / "chat_template.jinja").write_text(template)

    def said(eos: object) -> list[str]:
        (model_folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
        raw = asking_of(str(model_folder), {"skip_chat_template": False})
        return [caution.line() for caution in cautions("rl_run", raw)]

    writes_another = "eos_token" not in template
    assert [line for line in said(7) if "never writes" in line] == said(7)
    assert len(said(7)) == writes_another
    assert all("the model's end '<|endoftext|>', as that of a base" in line for line in said(7))
    assert len(said([7, 8])) == (writes_another and "<|eot|>" not in template)


@pytest.mark.requirement("EX-04")
@pytest.mark.parametrize(
    ("base", "counts"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", True),
        ("google/gemma-2-2b-it", True),
        ("meta-llama/Llama-2-7b-chat-hf", True),
        ("Qwen/Qwen2.5-0.5B", False),
        ("someone/bitter-fruit", False),
    ],
)
@pytest.mark.parametrize("prompting", [{}, {"skip_chat_template": True}])
def test_an_instruct_model_by_its_name_is_not_asked_bare_in_silence(
    base: str, counts: bool, prompting: dict[str, Any]
) -> None:
    """A form of its own in question_format is a decision."""

    def said(prompting: dict[str, Any]) -> list[str]:
        found = cautions("rl_run", asking_of(base, prompting))
        return [c.line() for c in found if c.field == "prompting.skip_chat_template"]

    assert [base in line for line in said(prompting)] == [True] * counts
    assert said(prompting | {"skip_chat_template": True, "question_format": "Q: {prompt}"}) == []


@pytest.mark.requirement("EX-04")
@pytest.mark.parametrize(("template", "counts"), [("<|im_end|>", True), ("<|other|>", False)])
def test_a_folder_trained_on_its_template_is_not_asked_bare_in_silence(
    template: str, counts: bool, model_folder: Path
) -> None:
    """Its template writes the model's own end; that of a base model writes another one."""
    (model_folder / "chat_template.jinja").write_text(template)
    (model_folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')

    found = cautions("rl_run", asking_of(str(model_folder), {"skip_chat_template": True}))

    assert [str(model_folder) in caution.line() for caution in found] == [True] * counts


def asking_of(base: str, prompting: dict[str, Any]) -> dict[str, Any]:
    data = {"source": "embedded:word_problems"}
    return {"base": base, "tuning": "full", "data": data, "prompting": prompting}


def corpus(folder: Path, rows: int) -> str:
    """A JSONL file of so many questions."""
    path = folder / f"{rows}.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(rows))
    )
    return str(path)


@pytest.mark.requirement("RL-04")
@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        (
            150,
            {},
            "heldout_frac: leaves 15 of 150 rows for the report, under report_min=30: the run will "
            "end without a verdict and publish its base (got 0.2); set it to 0.4, or have 298 "
            "rows, or set report_min to 15 knowingly",
        ),
        (
            100,
            {},
            "heldout_frac: leaves 10 of 100 rows for the report, under report_min=30: the run will "
            "end without a verdict and publish its base (got 0.2); have 298 rows, or set "
            "report_min to 10 knowingly",
        ),
        (150, {"heldout_frac": 0.4}, None),
        (100, {"report_min": 10}, None),
        (298, {}, None),
    ],
)
def test_a_run_that_cannot_have_a_verdict_is_cautioned_with_what_would_do(
    model_folder: Path, rows: int, settings: dict[str, Any], said: str | None
) -> None:
    """Before its night, not after it."""
    data = {"source": corpus(model_folder, rows)}
    raw = {"base": str(model_folder), "tuning": "full", "data": data} | settings

    validate("rl_run", raw)

    assert [found.line() for found in cautions("rl_run", raw)] == ([said] if said else [])


@pytest.mark.requirement("EX-07")
@pytest.mark.parametrize(
    ("decide", "where"),
    [
        ("own", {"data.mix.1.limit": "15 of which", "heldout.0.limit": "20 of which"}),
        ("large", {"data.mix.1.limit": "15 of which", "heldout.0.limit": "20 of which"}),
        ("small", {"data.mix.1.limit": "15 of which", "heldout.0.limit": "10 of which"}),
    ],
)
def test_a_source_or_bench_too_small_for_a_verdict_of_its_own_is_said(
    model_folder: Path, decide: str, where: dict[str, str]
) -> None:
    """Half of the bench that decides picks."""
    source = corpus(model_folder, 400)
    raw = {
        "base": str(model_folder),
        "tuning": "full",
        "data": {
            "mix": [
                {"name": "much", "source": source},
                {"name": "little", "source": source, "limit": 150},
            ]
        },
        "heldout": [
            {"name": "small", "source": source, "limit": 20},
            {"name": "large", "source": source, "limit": 60},
        ],
        "decide": decide,
    }

    found = {
        one.field: one.problem for one in cautions("rl_run", raw) if "report_min" in one.line()
    }

    assert found.keys() == where.keys()
    assert all(said in found[field] for field, said in where.items())


def test_a_large_corpus_is_not_read_for_a_caution(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of each of its runs asks; the first rows of it are read all the same."""
    monkeypatch.setattr("engine.contract.kinds.rl_run._LARGE_BYTES", 1000)
    data = {"source": corpus(model_folder, 150)}
    raw = {"base": str(model_folder), "tuning": "full"}

    assert not cautions("rl_run", raw | {"data": data})
    [caution] = cautions("rl_run", raw | {"data": data | {"limit": 120}})
    assert "leaves 12 of 120 rows" in caution.problem
