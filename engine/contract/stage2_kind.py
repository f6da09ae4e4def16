"""What the stage-2 kinds share: the files they read, what they refuse by name, and what they say.

One config for both, whose `custom.trainer_variant` names the trainer; its typed home is
`engine.contract.stage2`.
"""

from __future__ import annotations

import shlex
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.contract.errors import ConfigProblem
from engine.contract.hub import hub_cautions, hub_problems
from engine.contract.kind import Kind
from engine.contract.model_folder import folder_problems, is_bare_adapter
from engine.contract.sources.file_looks import once_a_file
from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.sources.heldout import first_of
from engine.contract.sources.records import each_record, require_good, some
from engine.contract.sources.survey import Survey, survey
from engine.contract.stage2.config import EMBEDDED_DATA, EMBEDDED_MODELS, Stage2Config
from engine.contract.stage2.envelope import stage2_checkpoints, stage2_envelope
from engine.contract.stage2.precision import dtype_of, rounded_updates
from engine.contract.stage2.record_form import RecordForm
from engine.contract.stage2.serving import serving_cautions, serving_problems
from engine.contract.stage2.training_arguments import (
    DECIDED,
    FOLLOWS_SCORE,
    NEEDS,
    is_so_anyway,
    schedule_settings,
)
from engine.contract.stage2.unread import unread

_TRAIN, _VAL, _REPORT = "data.train_jsonl", "data.val_jsonl", "data.report_jsonl"

_SECRET = {"hub_token"}


def _inputs(config: Stage2Config) -> Sequence[Path]:
    """The record files, and what a model folder holds at its top level."""
    files = [path for _, path, _ in _record_files(config)]
    path = config.model.path
    if path and Path(path).is_dir():
        files += sorted(entry for entry in Path(path).iterdir() if entry.is_file())
    return files


def _record_files(config: Stage2Config) -> list[tuple[str, Path, int | None]]:
    """(field, path, limit) of the records that are files."""
    data = config.data
    given = [
        (_TRAIN, data.train_jsonl, data.train_limit),
        (_VAL, data.val_jsonl, data.val_limit),
        (_REPORT, data.report_jsonl, data.report_limit),
    ]
    return [
        (field, Path(path), limit)
        for field, path, limit in given
        if path and not path.startswith("embedded:")
    ]


def _check(config: Stage2Config) -> Sequence[ConfigProblem]:
    """Everything that can be told without a look at the model's weights."""
    rules: Sequence[Callable[[Stage2Config], Sequence[ConfigProblem]]] = (
        serving_problems,
        _check_arguments,
        _check_schedule,
        _check_delay,
        _check_model,
        _check_data,
        _check_records,
    )
    return [problem for rule in rules for problem in rule(config)]


def _variant_problems(config: Stage2Config, kind: str, variant: str) -> Sequence[ConfigProblem]:
    written = config.custom.trainer_variant
    if written == variant:
        return []
    problem, remedy = f"is not run by the kind {kind}", f"set trainer_variant: {variant}"
    return [ConfigProblem("custom.trainer_variant", written, problem, remedy)]


def _check_arguments(config: Stage2Config) -> Sequence[ConfigProblem]:
    given = config.training.passed_on
    evaluates = config.data.val_jsonl is not None
    found = [
        ConfigProblem(f"training.{name}", _shown(name, value), *_split(DECIDED[name]))
        for name, value in sorted(given.items())
        if name in DECIDED and not is_so_anyway(name, value, evaluates=evaluates)
    ]
    for name, needed in NEEDS.items():
        if given.get(name) not in (None, False) and (given.get(needed) or "none") == "none":
            problem = f"is read with training.{needed} alone"
            remedy = f"set {needed}, or remove it"
            value = _shown(name, given[name])
            found.append(ConfigProblem(f"training.{name}", value, problem, remedy))
    if (given.get("max_steps") or 0) < 1 and not given.get("num_train_epochs"):
        found.append(
            ConfigProblem(
                "training.max_steps",
                None,
                "is missing, and num_train_epochs too",
                "say when to stop: set max_steps",
            )
        )
    return found


def _check_delay(config: Stage2Config) -> Sequence[ConfigProblem]:
    """Of a run of so many epochs the engine knows how many steps they are."""
    given = config.training.passed_on
    delay, steps = given.get("eval_delay", 0), given.get("max_steps", -1)
    if config.data.val_jsonl is None or not 0 < steps < delay:
        return []
    problem = f"is more than the run's {steps} steps: none of them would be scored"
    return [ConfigProblem("training.eval_delay", delay, problem, "lower it, or leave it out")]


def _check_schedule(config: Stage2Config) -> Sequence[ConfigProblem]:
    """A schedule that follows the score needs one, and must hold a rise for good."""
    given = config.training.passed_on
    schedule = given.get("lr_scheduler_type")
    if schedule not in FOLLOWS_SCORE:
        return []
    found = []
    if config.data.val_jsonl is None:
        problem = "follows the F1 on data.val_jsonl, which is missing"
        remedy = "name validation records, or choose another schedule"
        found.append(ConfigProblem("training.lr_scheduler_type", schedule, problem, remedy))
    mode = (schedule_settings(given) or {}).get("mode", "max")
    if mode != "max":
        problem = f"has mode {mode!r}, which lowers the learning rate because F1 rises"
        remedy = "set mode: max, or leave it out"
        found.append(ConfigProblem("training.lr_scheduler_kwargs", None, problem, remedy))
    return found


def _split(rule: str) -> tuple[str, str]:
    problem, _, remedy = rule.partition("; ")
    return problem, remedy


def _shown(name: str, value: Any) -> Any:
    shown = isinstance(value, str | int | float | bool) and name not in _SECRET
    return value if shown else None


def _check_model(config: Stage2Config) -> Sequence[ConfigProblem]:
    path = config.model.path
    if path is None:
        remedy = f"name a Qwen3-VL folder or hub id, or {EMBEDDED_MODELS[0]}"
        return [ConfigProblem("model.path", None, "is missing", remedy)]
    if path in EMBEDDED_MODELS:
        return _check_embedded(config)
    if path.startswith("embedded:"):
        known = ", ".join(EMBEDDED_MODELS)
        return [ConfigProblem("model.path", path, "is not an embedded model", f"known: {known}")]
    folder = Path(path)
    if folder.is_dir():
        return _check_folder(folder)
    if folder.is_absolute() or path.startswith(("~", ".")):
        return [ConfigProblem("model.path", path, "does not exist", "name a model folder")]
    return hub_problems("model.path", path)


def _check_folder(folder: Path) -> Sequence[ConfigProblem]:
    if is_bare_adapter(folder):
        problem = "is an adapter, and no whole model"
        merging = f"python -m engine export {shlex.quote(str(folder))} OUT"
        remedy = f"merge it into its base: {merging}; name OUT"
        return [ConfigProblem("model.path", str(folder), problem, remedy)]
    return folder_problems("model.path", folder, marker="config.json", what="model")


def _check_embedded(config: Stage2Config) -> Sequence[ConfigProblem]:
    found = []
    if config.warmup is None:
        problem = "is missing; the embedded model begins with random weights"
        found.append(ConfigProblem("warmup", None, *_split(problem)))
    if config.model.tuning != "full":
        found.append(
            ConfigProblem(
                "model.tuning",
                config.model.tuning,
                "has nothing to adapt in the embedded model",
                "set tuning: full",
            )
        )
    return found


def _check_data(config: Stage2Config) -> Sequence[ConfigProblem]:
    data = config.data
    found = []
    if data.train_jsonl is None:
        remedy = f"name a JSONL file, or {EMBEDDED_DATA[0]}"
        found.append(ConfigProblem("data.train_jsonl", None, "is missing", remedy))
    for field in ("train_jsonl", "val_jsonl", "report_jsonl"):
        path = getattr(data, field)
        if path and path.startswith("embedded:") and path not in EMBEDDED_DATA:
            known = ", ".join(EMBEDDED_DATA)
            problem = "is not an embedded data set"
            found.append(ConfigProblem(f"data.{field}", path, problem, f"known: {known}"))
    if config.warmup is not None and data.val_jsonl is None:
        problem = "is missing; warmup stops at an F1 on it"
        found.append(ConfigProblem("data.val_jsonl", None, *_split(problem)))
    return found


@once_a_file
def _survey(path: Path, limit: int | None, form: RecordForm) -> Survey:
    """Each record judged on the way. Raises GroundTruthError, with the lines of all bad ones."""
    bad: list[GroundTruthError] = []
    found = survey(each_record(path, limit, bad, form))
    require_good(bad)
    some(len(found.pictures), found.objects, path)
    return found


def _check_records(config: Stage2Config) -> Sequence[ConfigProblem]:
    """Each record by the rules of training: what is wrong with one is not for the night to find."""
    found = []
    shown = {}
    for field, path, limit in _record_files(config):
        try:
            shown[field] = _survey(path, limit, config.data.form).pictures
        except GroundTruthError as error:
            found.append(ConfigProblem(field, str(path), error.what, error.remedy))
    return found or _check_held_out(config, shown)


def _check_held_out(
    config: Stage2Config, shown: Mapping[str, array[int]]
) -> Sequence[ConfigProblem]:
    """A verdict is given on pictures that neither trained nor picked."""
    report = next((given for given in _record_files(config) if given[0] == _REPORT), None)
    if report is None:
        return []
    field, path, limit = report
    for other in (_TRAIN, _VAL):
        both = set(shown[field]).intersection(shown.get(other, ()))
        if both:
            first = first_of(path, limit, both, config.data.form)
            problem = (
                f"shares {len(both)} of its {len(shown[field])} pictures with {other} ({first})"
            )
            remedy = "give it pictures of its own, or leave it out: a verdict needs unseen ones"
            return [ConfigProblem(field, str(path), problem, remedy)]
    return []


def _cautions(config: Stage2Config) -> Sequence[ConfigProblem]:
    path, rounded = config.model.path, rounded_updates(config, dtype_of(config))
    here = path is None or path.startswith("embedded:") or Path(path).is_absolute()
    return [
        *([] if here or path is None else hub_cautions("model.path", path)),
        *([] if rounded is None else [rounded]),
        *unread(config),
        *serving_cautions(config),
        *_record_cautions(config),
    ]


def _record_cautions(config: Stage2Config) -> Iterator[ConfigProblem]:
    """What trains all night and teaches what nobody meant."""
    for field, path, limit in _record_files(config):
        with suppress(GroundTruthError):  # said by `_check_records`
            for caution in _survey(path, limit, config.data.form).cautions:
                yield ConfigProblem(field, str(path), caution.problem, caution.remedy)


def stage2_kind(name: str, summary: str, *, variant: str, entry: str) -> Kind:
    """The kind that runs one `trainer_variant`."""
    return Kind(
        name=name,
        summary=summary,
        config=Stage2Config,
        entry=entry,
        inputs=_inputs,
        seed="training.seed",
        model="model.path",
        steps="training.max_steps",
        saves="training.save_steps",
        rows="data.train_jsonl",
        asks_first=(
            *("model.path", "model.tuning", "data.train_jsonl", "data.val_jsonl"),
            *("training.max_steps", "training.learning_rate"),
        ),
        check=lambda config: [*_variant_problems(config, name, variant), *_check(config)],
        cautions=_cautions,
        envelope=stage2_envelope,
        smaller=(
            "training.per_device_train_batch_size",
            "global_max_length",
            "custom.extra.rollout_matching.decode_batch_size",
            "custom.extra.rollout_matching.max_new_tokens",
        ),
        lowers={
            "weights": "model.path",
            "gradients": "model.tuning",
            "optimizer": "model.tuning",
            "kv_cache": "custom.extra.rollout_matching.decode_batch_size",
            "logits": "global_max_length",
            "activations": "global_max_length",
            "checkpoints": "training.save_steps",
        },
        checkpoints=stage2_checkpoints,
        serves=lambda config: config.serves,
        needs_server_program=lambda config: config.needs_server_program,
    )
