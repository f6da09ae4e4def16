"""Sources of rows: files of every format and layout give the same questions and answers."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from engine.contract.errors import RLLoopError
from engine.contract.sources.files.found import ENDINGS
from engine.contract.sources.layouts.plain import ANSWERS, QUESTIONS
from engine.contract.sources.layouts.recognised import LayoutName
from engine.contract.sources.questions import SourceConfig, read_rows, source_cautions, survey
from engine.contract.sources.rows import Row, Rows
from engine.rewards.verifiers import reasoning_gym

ROWS = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, 8)]


def jsonl(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def parquet(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def saved(folder: Path, rows: Sequence[Any]) -> Path:
    """As `Dataset.save_to_disk` has it."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(list(rows))
    for index in range(2):
        name = f"data-{index:05d}-of-00002.arrow"
        half = table.slice(index * 4, 4)
        with (
            pa.OSFile(str(folder / name), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as w,
        ):
            w.write_table(half)
    files = [{"filename": f"data-{index:05d}-of-00002.arrow"} for index in range(2)]
    state = {"_data_files": files, "_fingerprint": "f", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def read(source: Path | str, **named: Any) -> list[Row]:
    return read_rows(SourceConfig(source=str(source), **named))


def pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.prompt, row.answer) for row in rows]


EXPECTED = [(row["prompt"], row["answer"]) for row in ROWS]


def document(folder: Path, value: Any) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(value, indent=1))
    return path


def table(path: Path, separator: str) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["prompt", "answer"], delimiter=separator)
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def packed(path: Path) -> Path:
    inside = path.with_name(path.name + ".gz")
    inside.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return inside


def shards(folder: Path) -> Path:
    for index, part in enumerate((ROWS[:4], ROWS[4:])):
        parquet(folder / "data" / f"train-{index:05d}-of-00002.parquet", part)
    (folder / "README.md").write_text("---\n---\n")
    return folder


def arrow(path: Path) -> Path:
    """As `pyarrow.feather` and `Dataset` cache files have it, by its ending."""
    found = pa.Table.from_pylist(ROWS)
    new = pa.ipc.new_file if path.suffix == ".feather" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, new(sink, found.schema) as writer:
        writer.write_table(found)
    return path


def as_windows(path: Path) -> Path:
    """A mark in front, lines that end in two signs, a blank one last."""
    text = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text + b"\r\n")
    return path


def packed_shards(folder: Path) -> Path:
    for index, part in enumerate((ROWS[:4], ROWS[4:])):
        packed(jsonl(folder / f"part_{index}.jsonl", part))
    return folder / "part_*.jsonl.gz"


FORMS: dict[str, Callable[[Path], Path]] = {
    "ndjson": lambda folder: jsonl(folder / "rows.ndjson", ROWS),
    "jsonlines": lambda folder: jsonl(folder / "rows.jsonlines", ROWS),
    "no ending": lambda folder: jsonl(folder / "rows", ROWS),
    "windows jsonl": lambda folder: as_windows(jsonl(folder / "rows.jsonl", ROWS)),
    "windows json": lambda folder: as_windows(document(folder, ROWS)),
    "windows csv": lambda folder: as_windows(table(folder / "rows.csv", ";")),
    "arrow": lambda folder: arrow(folder / "rows.arrow"),
    "feather": lambda folder: arrow(folder / "rows.feather"),
    "packed shards": packed_shards,
    "jsonl": lambda folder: jsonl(folder / "rows.jsonl", ROWS),
    "json": lambda folder: document(folder, ROWS),
    "json with a list inside": lambda folder: document(folder, {"version": 1, "data": ROWS}),
    "json that is jsonl": lambda folder: jsonl(folder / "rows.json", ROWS),
    "csv": lambda folder: table(folder / "rows.csv", ","),
    "csv of a spreadsheet": lambda folder: table(folder / "rows.csv", ";"),
    "tsv": lambda folder: table(folder / "rows.tsv", "\t"),
    "jsonl.gz": lambda folder: packed(jsonl(folder / "rows.jsonl", ROWS)),
    "csv.gz": lambda folder: packed(table(folder / "rows.csv", ",")),
    "parquet": lambda folder: parquet(folder / "rows.parquet", ROWS),
    "parquet.gz": lambda folder: packed(parquet(folder / "rows.parquet", ROWS)),
    "shards": lambda folder: shards(folder / "hub"),
    "pattern": lambda folder: shards(folder / "hub") / "data" / "train-*.parquet",
    "saved": lambda folder: saved(folder / "saved", ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_the_same_in_every_format(form: str, tmp_path: Path) -> None:
    """What a user has on the disk is read as it is."""
    source = FORMS[form](tmp_path)

    assert pairs(read(source)) == EXPECTED
    assert survey(SourceConfig(source=str(source))).rows == len(ROWS)
    assert pairs(read(source, limit=5)) == EXPECTED[:5]


# --- layouts ---

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
LAYOUTS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "verl": (
        {
            "data_source": "openai/gsm8k", "prompt": CHAT, "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"index": 0, "split": "train", "answer": "1 + 1 = 2\n#### 2"},
        },
        "read as verl rows: prompt, reward_model.ground_truth",
        "2",
    ),
    "trl": (
        {"prompt": CHAT, "solution": "so $\\boxed{2}$", "difficulty": 1},
        "read as TRL rows: prompt, solution",
        "2",
    ),
    "rlvr": (
        {"messages": CHAT, "ground_truth": "2", "dataset": "gsm8k"},
        "read as RLVR rows: messages, ground_truth",
        "2",
    ),
    "gsm8k": (
        {"question": "1 + 1,799?", "answer": "1 + 1,799 = 1,800\n#### 1,800"},
        "read as GSM8K rows: question, answer",
        "1800",
    ),
    "math": (
        {
            "problem": "Half?", "level": "Level 5", "type": "Algebra",
            "solution": "It is $\\boxed{\\frac{1}{2}}$.",
        },
        "read as MATH rows: problem, solution",
        "\\frac{1}{2}",
    ),
    "humaneval": (
        {
            "task_id": "HumanEval/0", "prompt": "def inc(x):\n", "entry_point": "inc",
            "canonical_solution": "    return x + 1\n", "test": "def check(candidate): ...",
        },
        "read as HumanEval rows: prompt, test",
        {"prompt": "def inc(x):\n", "test": "def check(candidate): ...", "entry_point": "inc"},
    ),
    "mbpp": (
        {
            "task_id": 11, "text": "Write inc.", "code": "def inc(x): return x + 1",
            "test_list": ["assert inc(1) == 2"], "test_setup_code": "", "challenge_test_list": [],
        },
        "read as MBPP rows: text, test_list",
        {"test_list": ["assert inc(1) == 2"], "test_setup_code": ""},
    ),
    "apps": (
        {
            "problem_id": 3, "question": "Double it.", "solutions": '["print(2 * int(input()))"]',
            "input_output": '{"inputs": ["2\\n"], "outputs": ["4\\n"]}', "starter_code": "",
        },
        "read as APPS rows: question, input_output",
        {"inputs": ["2\n"], "outputs": ["4\n"]},
    ),
    "ifeval": (
        {
            "key": 1000, "prompt": "No commas.", "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{"num_words": None, "relation": None}],
        },
        "read as IFEval rows: prompt, instruction_id_list",
        {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    ),
    "reasoning_gym": (
        {"question": "1 + 1?", "answer": "2", "metadata": {"source_dataset": "chain_sum"}},
        "read as reasoning-gym entries: question, answer",
        {"question": "1 + 1?", "answer": "2", "metadata": {"source_dataset": "chain_sum"}},
    ),
    "plain": (
        {"question": "1 + 1?", "final_answer": 2},
        "read as questions and answers: question, final_answer",
        "2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_layout_is_recognised_by_its_columns(name: str, form: str, tmp_path: Path) -> None:
    """And named, with the columns that question and answer came from."""
    row, said, expected = LAYOUTS[name]
    path = tmp_path / f"rows.{form}"
    (jsonl if form == "jsonl" else parquet)(path, [row])

    rows = Rows(SourceConfig(source=str(path)))
    [found] = rows

    assert rows.said()[0] == said
    assert (json.loads(found.answer) if isinstance(expected, dict) else found.answer) == expected
    assert found.columns.keys() == row.keys()
    if row.get("prompt", row.get("messages")) is CHAT:
        assert found.messages == CHAT


@pytest.mark.parametrize("name", LAYOUTS)
def test_how_rows_are_read_is_said_before_a_job_is_queued(name: str, tmp_path: Path) -> None:
    """Unless the config says it, or the columns are prompt and answer."""
    row, said, _ = LAYOUTS[name]
    data = SourceConfig(source=str(jsonl(tmp_path / "rows.jsonl", [row])))
    told = data.model_copy(update={"layout": name})
    own = SourceConfig(source=str(jsonl(tmp_path / "own.jsonl", ROWS)))

    found = {
        where: [one.problem for one in source_cautions(where, one, survey(one))]
        for where, one in (("data", data), ("told", told), ("own", own))
    }

    assert found == {"data": [said], "told": [], "own": []}


def test_what_the_config_names_wins_over_the_layout(tmp_path: Path) -> None:
    """And is taken as it is; a dotted name is inside another."""
    row, *_ = LAYOUTS["verl"]
    path = jsonl(tmp_path / "rows.jsonl", [row])

    [found] = read(path, answer_field="extra_info.answer")
    assert found.answer == "1 + 1 = 2\n#### 2"
    [found] = read(path, layout="trl", answer_field="data_source")
    assert found.answer == "openai/gsm8k"


def test_a_layout_that_does_not_fit_says_what_it_wants(tmp_path: Path) -> None:
    """With the columns that there are."""
    path = jsonl(tmp_path / "rows.jsonl", ROWS)

    with pytest.raises(RLLoopError) as refused:
        read(path, layout="verl")

    assert (
        "data.layout: wants columns prompt, reward_model.ground_truth; the columns are 'prompt', "
        "'answer' (got 'verl')" in str(refused.value)
    )


# --- splits ---


def test_where_there_are_several_splits_one_is_asked_for(tmp_path: Path) -> None:
    """Train and test are never joined."""
    folder = tmp_path / "hub"
    jsonl(folder / "data" / "train.jsonl", ROWS[:4])
    jsonl(folder / "data" / "test.jsonl", ROWS[4:])

    with pytest.raises(RLLoopError, match=r"data\.split: has 2 splits: test, train"):
        read(folder)
    assert pairs(read(folder, split="train")) == EXPECTED[:4]
    assert pairs(read(folder, split="test")) == EXPECTED[4:]
    with pytest.raises(RLLoopError, match=r"has no split 'tests'; it has: test, train.*did you"):
        read(folder, split="tests")
    with pytest.raises(RLLoopError, match=r"data\.split: has 2 splits: test, train"):
        read(str(folder / "data" / "*.jsonl"))


def test_the_splits_of_a_saved_dict_and_of_a_document_are_asked_for_too(tmp_path: Path) -> None:
    """`DatasetDict.save_to_disk`, and an object of several lists."""
    whole = tmp_path / "saved"
    for name, rows in (("train", ROWS), ("test", ROWS[:2])):
        saved(whole / name, rows)
    (whole / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    document = tmp_path / "rows.json"
    document.write_text(json.dumps({"train": ROWS, "test": ROWS[:2]}))

    for source in (whole, document):
        with pytest.raises(RLLoopError, match="has 2 splits: train, test"):
            read(source)
        assert pairs(read(source, split="test")) == EXPECTED[:2]


def test_a_missing_shard_and_subsets_side_by_side_are_refused(tmp_path: Path) -> None:
    """Half a dataset, or two of them, would train without a word."""
    lone = tmp_path / "lone"
    jsonl(lone / "train-00000-of-00002.jsonl", ROWS)
    both = tmp_path / "both"
    for subset in ("main", "socratic"):
        jsonl(both / subset / "train.jsonl", ROWS)

    with pytest.raises(RLLoopError, match="lacks 1 of its 2 shards: train-00001-of-00002"):
        read(lone)
    with pytest.raises(RLLoopError, match="holds that split in 2 folders: main, socratic"):
        read(both)
    assert pairs(read(both / "main")) == EXPECTED


# --- rows that are broken ---


def test_broken_rows_are_named_all_at_once(tmp_path: Path) -> None:
    """By line and field; the same of several lines is one sentence."""
    path = jsonl(tmp_path / "rows.jsonl", ROWS)
    with path.open("a") as stream:
        stream.write('{"prompt": "a"}\n' * 9 + "{\n" + '{"prompt": "", "answer": 1}\n')

    with pytest.raises(RLLoopError) as refused:
        read(path)

    lines = str(refused.value).splitlines()
    assert lines[0].startswith(
        "data.source: lines 8, 9, 10, 11, 12 and 4 more: has no text under 'answer': "
        "its fields are 'prompt'"
    )
    assert "line 17: is not JSON" in lines[1]
    assert "line 18: has no text under 'prompt': it is empty" in lines[2]
    rows = Rows(SourceConfig(source=str(path), bad_rows="drop"))
    assert pairs(list(rows)) == EXPECTED
    assert rows.left_out()[0].startswith(
        "left 11 rows out (bad_rows: drop): lines 8, 9, 10, 11, 12"
    )


def test_a_row_of_a_shard_is_named_with_its_file(tmp_path: Path) -> None:
    """A line number alone would not find it."""
    jsonl(tmp_path / "d" / "train-00000-of-00002.jsonl", ROWS)
    jsonl(tmp_path / "d" / "train-00001-of-00002.jsonl", [*ROWS[:1], {"prompt": "a"}])

    with pytest.raises(RLLoopError, match=r"train-00001-of-00002\.jsonl line 2: has no text"):
        read(tmp_path / "d")


# --- filters ---

LEVELS = [
    {
        "problem": f"Find {n}.", "answer": str(n), "level": f"Level {level}", "rate": n / 10,
        "type": "Algebra" if n % 2 else "Counting & Probability", "extra": {"level": n, "ok": True},
    }
    for n, level in enumerate("12345?", 1)
]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        *(("level >= 3", "345"), ("level > 3", "45"), ("level == 3", "3"), ("level != 3", "1245")),
        *(("level in 2..4", "234"), ("2 <= level <= 4", "234"), ("level in [1, 5]", "15")),
        *(("not level < 3", "345"), ("level not in 2..4", "15"), ("level <3 or level> 4", "125")),
        *(("type = Algebra", "135"), ("type != Algebra", "246"), ("extra.level >= 5", "56")),
        *(("type == 'Counting & Probability' and level>=4", "4"), ("extra.ok == true", "123456")),
        *(("rate <= 0.3", "123"), ("`rate` in .1..0.2", "12"), ("level == 'Level ?'", "6")),
        *(("(level < 3 or level > 4) and type == Algebra", "15"), ("answer != null", "123456")),
    ],
)
def test_a_filter_is_a_condition_over_columns(where: str, kept: str, tmp_path: Path) -> None:
    """Ranges include their ends; a value that is no number is outside every numeric filter."""
    path = jsonl(tmp_path / "rows.jsonl", LEVELS)

    assert "".join(row.answer for row in read(path, where=where)) == kept


def test_what_a_filter_leaves_out_is_counted(tmp_path: Path) -> None:
    """Rows without a number beside the others, with what stands there."""
    rows = Rows(SourceConfig(source=str(jsonl(tmp_path / "r.jsonl", LEVELS)), where="level >= 3"))

    assert len(list(rows)) == 3
    assert rows.left_out() == [
        "where: level >= 3 keeps 3 of 6 rows",
        "1 row is outside the filter for a value that is no number ('Level ?')",
    ]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (
            "levle >= 3",
            "names levle, which no row has; the columns are 'problem', 'answer', 'level'",
        ),
        ("extra.levl >= 3", "names extra.levl, which no row has"),
        ("level >= 9", "leaves none of 6 rows: level holds 'Level 1', 'Level 2', 'Level 3'"),
        (
            "type == algebra",
            "leaves none of 6 rows: type holds 'Algebra', 'Counting & Probability'",
        ),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(where: str, words: str, tmp_path: Path) -> None:
    """With the columns, or the values, that there are."""
    with pytest.raises(RLLoopError) as refused:
        read(jsonl(tmp_path / "rows.jsonl", LEVELS), where=where)

    assert f"data.where: {words}" in str(refused.value)


@pytest.mark.parametrize(
    "where",
    [
        *("", "level", "level >=", "level >= 3 and", "(level >= 3", "level >= 3)", "level in [3"),
        *("__import__('os')", "level >= 3; x", "level > Algebra", "3 <= 4", "and", "a == b c", "]"),
        *("(" * 100 + "a == 1" + ")" * 100, "a == 1 or " * 400 + "a == 1"),
    ],
)
def test_a_condition_that_is_none_is_refused_where_it_is_written(where: str) -> None:
    """With an example of one."""
    with pytest.raises(ValidationError, match="Value error"):
        SourceConfig(source="rows.jsonl", where=where)


def test_a_filter_spares_the_rows_that_it_leaves_out(tmp_path: Path) -> None:
    """What is not used may be broken."""
    path = jsonl(tmp_path / "rows.jsonl", [*LEVELS, {"level": "Level 1"}])

    assert len(read(path, where="level >= 3")) == 3


def test_a_shuffle_comes_before_the_limit_and_is_the_same_each_time(tmp_path: Path) -> None:
    """By its seed; a survey looks at the same rows."""
    path = jsonl(tmp_path / "rows.jsonl", ROWS)
    whole = read(path, shuffle=7)

    assert sorted(row.id for row in whole) == [str(n) for n in range(1, 8)]
    assert [row.id for row in whole] != sorted(row.id for row in whole)
    assert read(path, shuffle=7, limit=3) == whole[:3]
    assert survey(SourceConfig(source=str(path), shuffle=7, limit=3)).rows == 3


def test_the_same_question_and_answer_is_one_row(tmp_path: Path) -> None:
    """To the letter, or however it is written."""
    asked = ["What is 1 + 1?", "What is 1 + 1?", "what is  1 + 1", "What is 2 + 2?"]
    answers = ["2", "2", " 2", "4"]
    rows = [{"prompt": q, "answer": a} for q, a in zip(asked, answers, strict=True)]
    path = jsonl(tmp_path / "rows.jsonl", rows)

    ids = {how: "".join(row.id for row in read(path, dedupe=how)) for how in DEDUPE}
    assert ids == {"off": "1234", "exact": "134", "normalized": "14", "n-gram": "14"}
    left = Rows(SourceConfig(source=str(path)))
    assert len(list(left)) == 3
    assert left.left_out() == ["left 1 row out that repeat an earlier one (dedupe: exact)"]


DEDUPE = ("off", "exact", "normalized", "n-gram")


def test_rows_that_share_most_of_their_words_and_the_answer_are_one(tmp_path: Path) -> None:
    """A template that many rows share does not make them one, nor another answer."""
    template = "Read the task, think about it step by step and write the number behind four hashes"
    story = (
        "a farmer had twelve red hens and sold {} of them to a neighbour on a rainy Monday in {}"
    )
    rows = [
        {"prompt": f"{template} {story.format(n, n * 7)} case {n}", "answer": str(12 - n)}
        for n in range(50)
    ]
    near = {"prompt": "Please! " + rows[3]["prompt"], "answer": rows[3]["answer"]}
    other = {"prompt": "Please! " + rows[4]["prompt"], "answer": "0"}
    path = jsonl(tmp_path / "rows.jsonl", [*rows, near, other])

    kept = read(path, dedupe="n-gram")

    assert [row.id for row in kept] == [str(n) for n in range(1, 51)] + ["52"]


def test_the_same_question_with_another_answer_is_named(tmp_path: Path) -> None:
    """With both lines, unless that is meant."""
    path = jsonl(tmp_path / "rows.jsonl", [*ROWS, ROWS[2] | {"answer": "7"}])

    with pytest.raises(RLLoopError) as refused:
        read(path)
    assert "line 8: asks the same as line 3 and has another answer" in str(refused.value)
    assert len(read(path, conflicts="keep")) == 8
    assert len(read(path, bad_rows="drop")) == 7


# --- generated rows ---

CHAINS = "reasoning_gym:chain_sum?size=40&seed=1"


@pytest.mark.requirement("EX-07")
def test_rows_of_reasoning_gym_are_made_by_name_and_the_same_each_time() -> None:
    """Settings of the task stand behind the question mark; its own scorer reads the answer."""
    rows = read(CHAINS + "&min_terms=3&max_terms=3&min_digits=2")

    assert [row.id for row in rows][:2] == ["1", "2"]
    assert rows == read(CHAINS + "&min_terms=3&max_terms=3&min_digits=2")
    assert pairs(rows) != pairs(read("reasoning_gym:chain_sum?size=40&seed=2&min_terms=3"))
    assert json.loads(rows[0].answer)["metadata"]["source_dataset"] == "chain_sum"
    assert reasoning_gym.verify(json.loads(rows[0].answer)["answer"], rows[0].answer).reward == 1
    looked = survey(SourceConfig(source=CHAINS), ["reasoning_gym"])
    assert (looked.rows, looked.unfit) == (40, ())
    assert looked.said == ("read as reasoning-gym entries: question, answer",)
    assert len(read(CHAINS, limit=7)) == 7


def test_a_question_that_is_made_twice_is_one_row() -> None:
    """Its entries differ in their number alone, and are no contradiction."""
    rows = Rows(SourceConfig(source="reasoning_gym:chain_sum?size=300&max_terms=2&max_digits=1"))

    kept = list(rows)

    assert len({row.prompt for row in kept}) == len(kept) < 300
    assert "that repeat an earlier one" in rows.left_out()[0]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("chain_sun", "no task of reasoning-gym (got 'reasoning_gym:chain_sun'); did you mean"),
        ("nothing_like_it", "known: "),
        ("chain_sum?sise=3", "no setting of reasoning-gym"),
        ("chain_sum?size=0", "has size 0, which is no whole number from 1"),
        ("chain_sum?size=1e99", "has size "),
        ("chain_sum?size", "has 'size' behind its '?'"),
        ("chain_sum?size=1&size=2", "sets size twice"),
        ("chain_sum?min_terms=9&max_terms=2", "takes no such settings"),
        ("word_ladder", "in each process, and a run goes on with its own"),
        ("composite", "Must specify at least one dataset"),
    ],
)
def test_a_task_that_there_is_not_is_refused(source: str, words: str) -> None:
    """By its name and what is near it, its settings in the task's own words."""
    with pytest.raises(RLLoopError) as refused:
        survey(SourceConfig(source=f"reasoning_gym:{source}"))

    assert words in str(refused.value)
    with pytest.raises(RLLoopError, match="has no splits"):
        read(CHAINS, split="train")


# --- the page about it ---


def test_the_page_about_data_names_every_format_layout_and_setting() -> None:
    """And each layout that it names is one that is tested here."""
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()

    assert set(get_args(LayoutName)) == set(LAYOUTS)
    missing = [f"`{name}`" for name in (*get_args(LayoutName), *ENDINGS) if f"`{name}`" not in page]
    missing += [name for name in SourceConfig.model_fields if f"`{name}" not in page]
    missing += [f"`{name}`" for name in (*QUESTIONS, *ANSWERS) if f"`{name}`" not in page]
    assert missing == []
    assert [form for form in ENDINGS if form.removeprefix(".") not in FORMS] == []
