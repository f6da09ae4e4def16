"""The register of kinds and the one validation path."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.documents import parse_yaml
from engine.contract.errors import ConfigError, ConfigProblem, RLLoopError
from engine.contract.kinds.rl_run import GRPOConfig, RLRunConfig
from engine.contract.problems import text_problems
from engine.contract.registry import validate
from engine.contract.sources.mixture import DataConfig
from engine.contract.sources.questions import read_rows
from engine.contract.verifiers import READS_TEXT, verifier_names

GOOD = {"base": "embedded:qwen3-tiny"}
STAGE2 = parse_yaml("""
custom: {trainer_variant: stage2_ab_training, extra: {rollout_matching: {rollout_backend: hf}}}
stage2_ab: {schedule: {b_ratio: 0.5}, channel_b: {semantic_desc_gate: {enabled: false}}}
model: {path: "embedded:qwen3-vl-tiny", tuning: full}
training: {learning_rate: 1.0e-3, max_steps: 10}
""")


def _problems(raw: dict[str, Any], kind: str = "rl_run") -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        validate(kind, raw)
    return {problem.field: problem.line() for problem in caught.value.problems}


def test_a_good_config_comes_back_with_every_default_written_out() -> None:
    """What is stored is what will run, whatever the defaults become later."""
    config = validate("rl_run", GOOD)

    assert isinstance(config, RLRunConfig)
    assert config.data.source == "embedded:addition"


def test_every_problem_of_a_config_is_reported_at_once() -> None:
    """Nobody should have to send a config five times to hear of five mistakes."""
    found = _problems(
        GOOD | {"lrr": 1, "group_k": "four", "warmup": {"targt_heldout": 0.5, "lr": -1}}
    )

    assert found == {
        "lrr": "lrr: is not a setting; did you mean lr?",
        "group_k": "group_k: takes a whole number, and this is read as text (got 'four'); "
        "write a whole number, such as 4",
        "warmup.targt_heldout": "warmup.targt_heldout: is not a setting; "
        "did you mean target_heldout?",
        "warmup.lr": "warmup.lr: input should be greater than 0 (got -1); use a larger value",
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base": "/no/such/folder"}, "base"),
        ({"base": "embedded:gpt"}, "base"),
        ({"data": {"source": "/no/such.jsonl"}, "base": "org/model"}, "data.source"),
        ({"data": {"source": "embedded:chess"}}, "data.source"),
        ({"data": {"limit": 42}}, "data"),
        ({"verifier": "exacd"}, "verifier"),
        ({"lr": float("nan")}, "lr"),
        ({"group_k": 1}, "group_k"),
        ({"heldout_every": 0}, "heldout_every"),
        ({"heldout_every": 11}, "heldout_every"),
        ({"adapter_init": "/x", "tuning": "full"}, "(config)"),
        ({"tuning": []}, "tuning"),
        ({"base": []}, "base"),
        ({"heldout_temp": {}}, "heldout_temp"),
    ],
)
def test_a_bad_value_is_named_with_its_field_and_remedy(change: dict[str, Any], field: str) -> None:
    """Field, value, remedy – before anything is written."""
    assert field in _problems(GOOD | change)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """config.json and weights make a model folder; anything else would fail at night."""
    (tmp_path / "config.json").write_text("{}")

    found = _problems({"base": str(tmp_path), "data": {"source": "embedded:addition"}})

    assert "holds no weights" in found["base"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{", "line 2: is not JSON (Expecting property name enclosed in double quotes at char"),
        ("[" * 100_000, "line 2: is nested more than 100 deep"),
        ('{"prompt": "a", "answer": NaN}', "line 2: is not JSON (NaN stands in it)"),
        ("[]", "line 2: is not a JSON object"),
        ("{}", "line 2: has no text under 'prompt': the row is empty"),
        ('{"q": "a", "a": "b"}', "line 2: has no text under 'prompt': its fields are 'q', 'a'"),
        ('{"prompt": "a"}', "line 2: has no text under 'answer': its fields are 'prompt'"),
        ('{"prompt": "", "answer": "b"}', "line 2: has no text under 'prompt': it is empty"),
        (
            '{"prompt": ["a"], "answer": "b"}',
            "has a list under 'prompt' that is no conversation which ends with the user's turn",
        ),
        ('{"prompt": "a", "answer": ["b"]}', "has no text under 'answer': it is a list"),
        ('{"prompt": "a", "answer": {"b": "\\ud83d"}}', r"its answer holds '\ud83d'"),
        (
            '{"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}',
            "the roles are system, user and assistant",
        ),
        ('{"prompt": {}, "answer": "b"}', "under 'prompt': it is an object"),
        ('{"prompt": "a", "answer": null}', "under 'answer': it is null"),
        ('{"prompt": "\\ud83d", "answer": "b"}', r"its prompt holds '\ud83d', half of a surrogate"),
        ('{"prompt": "a", "answer": "\\ud83d"}', r"its answer holds '\ud83d', half of a surrogate"),
        ('{"id": "\\ud83d", "prompt": "a", "answer": "b"}', r"its id holds '\ud83d'"),
        ('{"id": 1, "prompt": "a", "answer": "b"}', "line 2: id '1' stands in line 1 too"),
    ],
)
def test_a_bad_row_of_a_corpus_is_named_by_its_line(tmp_path: Path, row: str, problem: str) -> None:
    """A corpus is read whole at enqueue, not at two in the morning."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1, "prompt": "a", "answer": 3}\n' + row + "\n")

    found = _problems({"base": "org/model", "data": {"source": str(path)}})

    assert problem in found["data.source"]


def test_a_corpus_that_an_editor_on_windows_saved_is_read(tmp_path: Path) -> None:
    """With a byte order mark, other line ends and empty lines."""
    path = tmp_path / "rows.jsonl"
    rows = ['{"prompt": "a", "answer": 3}', "", '{"prompt": "é", "answer": "b"}', ""]
    path.write_bytes("\r\n".join(rows).encode("utf-8-sig"))

    assert [
        (row.id, row.prompt, row.answer) for row in read_rows(DataConfig(source=str(path)))
    ] == [
        ("1", "a", "3"),
        ("3", "é", "b"),
    ]


def test_a_limit_counts_rows_and_a_whole_number_is_written_as_one(tmp_path: Path) -> None:
    """Empty lines are none; 7.0 is what became of a 7 in a column with an empty cell."""
    path = tmp_path / "rows.jsonl"
    numbers = ["7.0", "-0.5", "1e17", "3", "9"]
    path.write_text("\n\n".join(f'{{"prompt": "{n}", "answer": {n}}}' for n in numbers))

    rows = read_rows(DataConfig(source=str(path), limit=4))

    assert [row.answer for row in rows] == ["7", "-0.5", "1" + 17 * "0", "3"]
    assert [row.id for row in rows] == ["1", "3", "5", "7"]


def test_an_answer_that_is_an_object_is_its_json_text(tmp_path: Path) -> None:
    """As verifiers read rows of more than one answer; the same text as if it stood there as one."""
    path = tmp_path / "rows.jsonl"
    answer = {"pattern": "é (\\d+)", "answer": 12}
    written = [answer, json.dumps(answer, ensure_ascii=False)]
    path.write_text("\n".join(json.dumps({"prompt": "a", "answer": a}) for a in written))

    rows = read_rows(DataConfig(source=str(path), dedupe="off"))

    assert [row.answer for row in rows] == ['{"pattern": "é (\\\\d+)", "answer": 12}'] * 2


@pytest.mark.parametrize(
    ("verifier", "answer", "fits"),
    [
        *((name, {"pattern": "7"}, False) for name in sorted(READS_TEXT)),
        ("regex", {"pattern": "7"}, True),
        ("exact", '{"a": 7}', True),
        ("math", "{1, 2}", True),
    ],
)
def test_rows_of_another_verifier_are_refused_at_enqueue(
    tmp_path: Path, verifier: str, answer: Any, fits: bool
) -> None:
    """They would score nothing all night; a set in LaTeX is no object."""
    path = tmp_path / "rows.jsonl"
    rows = [{"id": f"q{n}", "prompt": f"a{n}", "answer": answer} for n in range(200)]
    path.write_text("\n".join(map(json.dumps, rows)))

    config = {"base": "org/model", "data": {"source": str(path)}, "verifier": verifier}

    assert set(verifier_names()) >= READS_TEXT
    if fits:
        validate("rl_run", config)
    else:
        assert "not an object; 200 of 200 rows" in _problems(config)["verifier"]


@pytest.mark.parametrize("kind", ["rl_run", "stage2_ab"])
def test_what_has_no_end_is_no_corpus(kind: str, tmp_path: Path) -> None:
    """A pipe would be waited for, and a device read until the memory is full."""
    pipe = tmp_path / "rows.jsonl"
    os.mkfifo(pipe)
    refused = {
        pipe: "is a pipe, and no regular file",
        Path("/dev/zero"): "is a device, and no regular file",
        # a folder of rows is read file by file
        tmp_path: {"rl_run": "is a pipe", "stage2_ab": "cannot be read: Is a directory"}[kind],
    }
    for path, words in refused.items():
        field, raw = {
            "rl_run": ("data.source", {"base": "org/model", "data": {"source": str(path)}}),
            "stage2_ab": ("data.train_jsonl", STAGE2 | {"data": {"train_jsonl": str(path)}}),
        }[kind]
        assert words in _problems(raw, kind)[field]


def test_a_question_may_stand_in_a_chat_of_its_own(tmp_path: Path) -> None:
    """As in data sets made for TRL and verl."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": [{"role": "user", "content": "1+1?"}], "answer": 2}')

    [row] = read_rows(DataConfig(source=str(path)))

    assert (row.id, row.prompt, row.answer) == ("1", "1+1?", "2")
    assert row.messages == row.columns["prompt"]


@pytest.mark.requirement("RL-05")
def test_a_corpus_under_its_floor_is_refused_at_enqueue(tmp_path: Path) -> None:
    """Small corpora collapse onto one answer."""
    path = tmp_path / "rows.jsonl"
    rows = [json.dumps({"prompt": str(n), "answer": str(n)}) for n in range(42)]
    path.write_text("\n".join(rows))

    found = _problems({"base": "org/model", "data": {"source": str(path)}})

    assert "has 42 rows, under the floor corpus_min=100" in found["data"]


def test_a_corpus_that_repeats_itself_is_under_its_floor_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [json.dumps({"prompt": str(n % 42), "answer": str(n % 42)}) for n in range(120)]
    path.write_text("\n".join(rows))

    found = _problems({"base": "org/model", "data": {"source": str(path)}})

    assert "has 42 rows, under the floor corpus_min=100; left 78 rows out that" in found["data"]


def test_the_operators_environment_fills_what_a_config_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FK_RL_BASE_MODEL and FK_RL_HELDOUT_TEMP are defaults: a config that speaks is obeyed."""
    monkeypatch.setenv("FK_RL_BASE_MODEL", "Qwen/Qwen2.5-7B-Instruct")
    monkeypatch.setenv("FK_RL_HELDOUT_TEMP", "0.35")

    told = RLRunConfig.model_validate({"data": {"source": "embedded:word_problems"}})
    own = RLRunConfig.model_validate(GOOD | {"heldout_temp": 0})

    assert (told.base, told.heldout_temp) == ("Qwen/Qwen2.5-7B-Instruct", 0.35)
    assert (own.base, own.heldout_temp) == ("embedded:qwen3-tiny", 0.0)


def test_a_bad_default_of_the_operator_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reader never wrote `heldout_temp`."""
    monkeypatch.setenv("FK_RL_HELDOUT_TEMP", "warm")

    (said,) = _problems(GOOD).values()

    assert "FK_RL_HELDOUT_TEMP is 'warm'" in said


@pytest.mark.requirement("RL-01")
def test_grpo_config_has_the_proven_defaults() -> None:
    """The knobs that the loop was proven with."""
    config = GRPOConfig(base="org/model")

    assert config.model_dump() == {
        "base": "org/model",
        "lora_rank": 16,
        "group_k": 4,
        "tasks_per_step": 8,
        "temp": 0.8,
        "heldout_every": 10,
        "vllm_pin": None,
        "max_steps": 34,
        "corpus_min": 100,
        "heldout_frac": 0.2,
        "kl_coef": 0.1,
        "lr": 1e-6,
        "seed": 0,
        "heldout_patience": None,
    }


@pytest.mark.requirement("RL-01")
@pytest.mark.parametrize(
    "bad",
    [{"group_k": 1}, {"heldout_every": 0}, {"heldout_frac": 1.0}, {"lr": -1}, {"seed": -1}, {}],
)
def test_grpo_config_is_validated_on_construction(bad: dict[str, Any]) -> None:
    """A bad knob is an RLLoopError with its field, not a crash at step 9."""
    with pytest.raises(RLLoopError) as caught:
        GRPOConfig(**({"base": "org/model"} | bad if bad else {}))

    assert caught.value.problems[0].field == (next(iter(bad)) if bad else "base")


@given(text=st.text(max_size=200))
def test_any_text_is_a_mapping_or_a_config_error(text: str) -> None:
    """Hostile YAML is refused in our words, whatever it is."""
    value: object = {}
    with contextlib.suppress(ConfigError):
        value = parse_yaml(text)
    assert isinstance(value, dict)


def test_yaml_is_read_as_people_mean_it() -> None:
    """1e-6 is a number; a key given twice is an error, not the last one's."""
    assert parse_yaml("lr: 1e-6\nseed: 3") == {"lr": 1e-6, "seed": 3}
    with pytest.raises(ConfigError, match="the key 'lr' stands twice"):
        parse_yaml("lr: 1\nlr: 2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"steps: {'9' * 5000}", "a whole number has 5000 digits; at most 100 are read"),
        ("warmup: {1: a, lr: b}", "has a key that is no text (got '1')"),
        ("rows: [{a: 1}, {true: 2}]", "has a key that is no text (got 'True')"),
        ("a: !!bool foo", "at line 1, column 4: 'foo' cannot be read as bool"),
        ("a: 1\nb: !!int ''", "at line 2, column 4: '' cannot be read as int"),
        ("a: !!float ''", "'' cannot be read as float"),
        ("a: !!timestamp x", "'x' cannot be read as timestamp"),
        ("a: !!int 0x1f", "'0x1f' cannot be read as int"),
        (f"a: !!float {'1:' * 200}1.5", "cannot be read as float"),
    ],
)
def test_yaml_that_no_json_can_say_is_refused_in_words(text: str, words: str) -> None:
    """A job's config is kept as JSON; the line names what is wrong, not how it is stored."""
    with pytest.raises(ConfigError) as refusal:
        parse_yaml(text)

    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_a_few_merge_keys_do_not_stand_for_more_than_a_machine_holds() -> None:
    """Each line names the one before ten times: refused before it is written out."""
    lines = ["l0: &l0 {k: 1}"]
    lines += [f"l{n}: &l{n} {{<<: [{','.join([f'*l{n - 1}'] * 10)}]}}" for n in range(1, 12)]

    with pytest.raises(ConfigError, match="too many values behind merge keys"):
        parse_yaml("\n".join(lines))


def test_merge_keys_are_read_as_people_mean_them() -> None:
    """What stands beside them counts, then what is named first."""
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: {<<: *a}"

    found = parse_yaml(text)

    assert (found["c"], found["d"]) == ({"x": 3, "y": 1, "z": 2}, {"x": 1, "y": 1})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/" + "x" * 5000, "'/" + "x" * 198 + "…'"),
        (-(10**5000), "'a number of about 5000 digits'"),
        (10**150, "1" + "0" * 150),
        (True, "True"),
    ],
    ids=["a path", "a huge number", "a long number", "a word"],
)
def test_a_problem_shows_as_much_of_a_value_as_a_line_holds(value: Any, shown: str) -> None:
    """Also of a number that Python refuses to write out; programs get the same."""
    problem = ConfigProblem("reads", value, "is wrong", "correct it")

    assert problem.line() == f"reads: is wrong (got {shown}); correct it"
    assert repr(problem.as_dict()["value"]) == shown


def test_text_that_only_looks_like_a_null_byte_is_text() -> None:
    """What JSON writes for a null byte may stand in a text, also beside one that is none."""
    assert text_problems({"a": "\\u0000"}) == []
    assert [one.line() for one in text_problems({"a": "\\u0000", "b": ["x\0"], "c\0": 1})] == [
        "(config): holds a null byte (got 'c\\x00'); leave that character out"
    ]


def test_yaml_that_builds_objects_is_refused() -> None:
    """A config is data; it never names code."""
    with pytest.raises(ConfigError):
        parse_yaml("base: !!python/object/apply:os.system [id]")


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deeply_nested_yaml_is_refused(depth: int) -> None:
    """Neither the parser's stack nor our patience is the limit."""
    with pytest.raises(ConfigError):
        parse_yaml("a: " + "[" * depth)


def test_a_kind_is_one_file(tmp_path: Path) -> None:
    """A file in an operator's directory is a kind, with no registration elsewhere."""
    (tmp_path / "sleep.py").write_text(
        "from pydantic import BaseModel\n"
        "from engine.contract.kind import Kind\n"
        "class Config(BaseModel):\n    seconds: float = 1.0\n"
        "KIND = Kind('sleep', 'Rest.', Config, 'engine.contract.kinds.sleep:run')\n"
    )
    code = "from engine.contract.registry import validate; print(validate('sleep', {'seconds': 2}))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"NIGHTLANE_KINDS_PATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.strip() == "seconds=2.0"
