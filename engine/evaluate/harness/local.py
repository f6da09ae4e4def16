"""Task files of the harness over rows that are here: each includes the package's own file and names
other data. No hub is asked.

minerva_math and hendrycks_math are groups there, a subtask a subject; so they are here where rows
say their subject, because worked examples are drawn inside of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval.tasks
import yaml
from datasets import Dataset
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks import TaskManager

from engine.contract.golds.instructions import INSTRUCTIONS
from engine.contract.task_rows import Document, asked_by, subject_of
from engine.contract.tasks import Task
from engine.data.rows import Question
from engine.data.shots import never_asked
from engine.evaluate.harness.offline import no_downloads, settle_ifeval

_FILES = {
    "gsm8k": "gsm8k/gsm8k.yaml",
    "gsm8k_cot": "gsm8k/gsm8k-cot.yaml",
    "gsm8k_cot_zeroshot": "gsm8k/gsm8k-cot-zeroshot.yaml",
    "minerva_math": "minerva_math/minerva_math_{}.yaml",
    "hendrycks_math": "hendrycks_math/hendrycks_math_{}.yaml",
    "ifeval": "ifeval/ifeval.yaml",
    "mbpp": "mbpp/mbpp.yaml",
    "humaneval": "humaneval/humaneval.yaml",
}
_SUBJECTS = {
    "algebra": "algebra",
    "counting & probability": "counting_and_prob",
    "geometry": "geometry",
    "intermediate algebra": "intermediate_algebra",
    "number theory": "num_theory",
    "prealgebra": "prealgebra",
    "precalculus": "precalc",
}
"""MATH's subjects by the names of their files. Those differ by nothing but the data they name."""
_ARGUMENTS = sorted({name for names in INSTRUCTIONS.values() for name in names})


class Part(NamedTuple):
    """One subtask with its rows."""

    task: HarnessTask
    rows: Sequence[Question]


def parts_of(
    task: Task, rows: Sequence[Question], pool: Sequence[Question], folder: Path
) -> list[Part]:
    """The task over `rows`, worked examples drawn from `pool`; files are written to `folder`.

    Raises TaskRowError for a row that the task cannot be made of.
    """
    if task.name == "ifeval":
        settle_ifeval()
    left = never_asked(rows, pool) if task.draws else []
    parts = []
    for place, subject in enumerate(dict.fromkeys(subject_of(task, row) for row in rows)):
        own, shown = ([r for r in some if subject_of(task, r) == subject] for some in (rows, left))
        name = f"{task.name}_{place}" if place else task.name
        data = {"test": _written(task, own, folder / f"{name}-test.parquet")}
        if shown:
            data["train"] = _written(task, shown, folder / f"{name}-train.parquet")
        kept = {"data_files": data, "cache_dir": str(folder / "cache")}
        config = _config(task, name, subject, data) | {"dataset_kwargs": kept}
        parts.append(Part(_loaded(task, name, config, folder), own))
    return parts


def _config(task: Task, name: str, subject: str, files: Mapping[str, str]) -> dict[str, Any]:
    """What of the package's own file is said otherwise; `files` are the splits `test`, `train`."""
    package = Path(lm_eval.tasks.__file__).parent
    drawn_from = "train" if "train" in files else None
    return {
        "include": str(
            package / _FILES[task.name].format(_SUBJECTS.get(subject.lower(), "algebra"))
        ),
        "task": name,
        "dataset_path": "parquet",
        "dataset_name": None,
        "test_split": "test",
        "training_split": drawn_from,
        "fewshot_split": drawn_from,
    }


def _loaded(task: Task, name: str, config: Mapping[str, Any], folder: Path) -> HarnessTask:
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    with no_downloads():
        loaded = TaskManager(include_defaults=False).load(str(file))["tasks"][name]
    if task.template.shows_gold:
        _as_text(loaded)
    return loaded


def _as_text(task: Any) -> None:
    """An answer such as `[2,5]` stays text: the harness reads a list in it and then raises."""
    for config in (task.config, task.fewshot_cfg):
        config.doc_to_target = _bare_answer


def _bare_answer(doc: Mapping[str, Any]) -> str:
    return str(doc["answer"])


def _written(task: Task, rows: Sequence[Question], file: Path) -> str:
    Dataset.from_list([_filled(asked_by(task, row).document) for row in rows]).to_parquet(file)
    return str(file)


def _filled(document: Document) -> dict[str, Any]:
    """ifeval's rows as they are published: every set of arguments has every name."""
    if "kwargs" not in document:
        return dict(document)
    every = [dict.fromkeys(_ARGUMENTS) | (given or {}) for given in document["kwargs"]]
    return {**document, "kwargs": every}
