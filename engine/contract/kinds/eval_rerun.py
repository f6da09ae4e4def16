"""`eval_rerun`: checkpoints answer the rows of benches, and are scored; nothing is trained.

Either `benches`, each asked as it says, or the rows of `data` n times each: pass@k and a curriculum
(`cockpit passk`). The typed home of its config; the text under a field is its help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.adapter_folder import adapter_problems
from engine.contract.base_model import (
    EMBEDDED_BASES,
    WEIGHTS,
    base_problems,
    checkpoint_origin,
    folder_files,
    model_reference,
    unreadable_by,
)
from engine.contract.envelope import FP32, Envelope, ModelShape, gigabytes
from engine.contract.errors import ConfigProblem, RLLoopError
from engine.contract.evaluate.benches import (
    Asked,
    EvalBench,
    asked_benches,
    benches_cautions,
    benches_problems,
    limit_of,
    named_twice,
)
from engine.contract.evaluate.checkpoints import ALL, EvalCheckpoint, checkpoints_of, require_whole
from engine.contract.evaluate.detection import (
    DetectionBench,
    as_the_run,
    detection_problems,
    is_detection,
)
from engine.contract.golds.survey import unfit_for
from engine.contract.hub import hub_cautions, in_hub_cache
from engine.contract.kind import Kind
from engine.contract.look import Look
from engine.contract.model_folder import asks_for_weights, folder_problems
from engine.contract.paths import located
from engine.contract.rl.envelope import PROMPT_TOKENS
from engine.contract.rl.prompting import PromptingConfig, template_cautions, template_problems
from engine.contract.rl.sampling import SamplingConfig
from engine.contract.rl.serving import served_problems
from engine.contract.section import Section, refusal
from engine.contract.served import RunVLLMConfig
from engine.contract.sources.questions import (
    EMBEDDED_ANSWER,
    EMBEDDED_TASKS,
    SourceConfig,
    files_or_source,
    source_cautions,
    survey,
)
from engine.contract.verifiers import VerifierName, library_problem


class EvalRerunConfig(Section):
    """Everything an `eval_rerun` can be told."""

    base: str
    """The model: `embedded:qwen3-tiny`, a Hugging Face folder, a hub id; or a checkpoint of a run
    (`runs/7`, `runs/7/checkpoints/step-000020`) or adapter, whose base is found. By default the
    first of `checkpoints`, where that is named."""
    checkpoints: list[EvalCheckpoint] = Field([], max_length=1000)
    """Several, the first one being what the others are compared with: `all` or steps `[0, 20, 40]`
    of the run that `base` names, or models and checkpoints as `base` takes them."""
    benches: list[EvalBench] = Field([], max_length=64)
    """What they are scored on instead of `data`: `[{task: gsm8k_cot, source: test.jsonl, shots: [0,
    4, 8]}, "run:runs/7", {bench: math_qwen.yaml, source: math.jsonl}]` (docs/evaluation.md)."""
    detection: list[DetectionBench] = Field([], max_length=16)
    """Instead of `benches`, of vision-language models: pictures with boxes, scored by COCO's mAP,
    F1 and mean IoU; `{task: detection, source: val.jsonl}` in `benches` is the same."""
    adapter_init: str | None = None
    """A PEFT folder of LoRA or DoRA on it."""
    base_seed: int = Field(0, ge=0, lt=2**31)
    """Of an embedded model: the seed of its random weights. That of the run for a checkpoint."""
    data: SourceConfig = SourceConfig()
    """The rows."""
    prompting: PromptingConfig = PromptingConfig()
    """From a question to a prompt: chat template, system prompt, prefix."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are drawn, beside the temperature."""
    verifier: VerifierName = "exact"
    """Who judges the answers; a reward function is `module:function`."""
    reward_timeout_s: float = Field(60.0, gt=0, le=86_400)
    """Seconds that one call of a reward function may take."""
    success_threshold: float = Field(0.5, allow_inf_nan=False)
    """A reward at or above this counts as solved."""
    samples: int = Field(8, ge=1, le=4096)
    """Completions of each row (n); pass@k is estimated for every k up to it."""
    temp: float = Field(0.8, ge=0, le=10)
    """Sampling temperature; 0 is greedy, and then one completion is all there is."""
    max_new_tokens: int = Field(16, ge=1, le=131_072)
    """Longest completion, in tokens."""
    bands: list[float] = Field([0.0, 0.1, 0.5, 0.9, 1.0], min_length=2, max_length=101)
    """Edges of the bands of pass rates, from 0 to 1: rows are counted in them, and those of a bench
    are parted by what the first checkpoint solves."""
    keep: list[float] = Field([0.1, 0.9], min_length=2, max_length=2)
    """Rows whose pass rate is in this range, ends included, go into the curriculum file."""
    curriculum_out: str | None = None
    """A file that the ids of those rows are written to as well, once the job is done; one that is
    there is replaced."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Makes the completions repeatable."""
    rollout_batch: int = Field(256, ge=1)
    """Sequences decoded at once; a step of the run is the rows that fill one batch."""
    keep_checkpoints: int = Field(2, ge=1)
    """How many marks of how far it is stay; they hold no weights."""
    rollout_backend: Literal["hf", "vllm"] = "hf"
    """Who answers: the model itself (`hf`), or a vLLM server that is brought each checkpoint
    (`vllm`); docs/serving.md. Benches with `runner: harness` always ask the model itself."""
    vllm: RunVLLMConfig = RunVLLMConfig()
    """With `rollout_backend: vllm`: which server."""
    tensor_parallel: int = Field(1, ge=1, le=1)
    """Devices that one model is spread over. Scores of a model that is spread may differ."""
    threads: int | None = Field(None, ge=1)
    """CPU threads for torch; all cores by default."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_checkpoint(cls, data: Any) -> Any:
        """A checkpoint is written down as what it is made of: `selected` may move."""
        data = _with_detection(_with_base(data))
        if not isinstance(data, dict) or not isinstance(data.get("base"), str):
            return data
        if data.get("checkpoints") not in (None, []):
            data = {**data, "checkpoints": _resolved(data["base"], data["checkpoints"])}
        if data["base"].startswith("embedded:") or data.get("adapter_init") is not None:
            return data
        try:
            require_whole(located(data["base"]))
            found = checkpoint_origin(located(data["base"]))
        except OSError:
            return data  # said of the folder
        except ValueError as error:
            raise refusal(["base"], data["base"], str(error)) from error
        if found is None:
            return data
        seed = {"base_seed": found.seed} if found.base in EMBEDDED_BASES else {}
        return {**seed, **data, "base": found.base, "adapter_init": found.adapter}

    @field_validator("base")
    @classmethod
    def _base(cls, base: str) -> str:
        return model_reference(base)

    @field_validator("adapter_init", "curriculum_out")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        return None if path is None else str(located(path))

    @field_validator("bands")
    @classmethod
    def _bands(cls, bands: list[float]) -> list[float]:
        if bands[0] != 0 or bands[-1] != 1 or any(a >= b for a, b in pairwise(bands)):
            raise ValueError("must rise from 0 to 1; write e.g. [0, 0.1, 0.5, 0.9, 1]")
        return bands

    @field_validator("keep")
    @classmethod
    def _keep(cls, keep: list[float]) -> list[float]:
        if not 0 <= keep[0] <= keep[1] <= 1:
            raise ValueError("must be two shares that rise; write e.g. [0.1, 0.9]")
        return keep

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.detection:
            self._check_detection()
            return self
        if self.benches:
            self._check_benches()
            return self
        for one in self.scored:
            if problem := unreadable_by(one.base, self.data.source):
                raise refusal(["data", "source"], self.data.source, problem)
        if self.temp == 0 and self.samples > 1:
            raise ValueError(
                f"samples: {self.samples} are all alike with temp: 0; set samples: 1, or a temp"
            )
        return self

    def _check_detection(self) -> None:
        if self.benches:
            problem = "asks text beside pictures of detection; score them in two jobs"
            raise refusal(["benches"], self.benches[0].name, problem)
        if self.serves:
            problem = "does not answer detection; set rollout_backend: hf"
            raise refusal(["rollout_backend"], self.rollout_backend, problem)
        names = [Path(one.source).stem for one in self.detection]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            problem = f"has two files called {twice}; score them in two jobs, or rename one"
            raise refusal(["detection"], twice, problem)
        self._refuse_spare("detection")

    def _refuse_spare(self, beside: str) -> None:
        said = _OF_ROWS & self.model_fields_set
        spare = [name for name in _OF_ROWS if name in said and not self._is_default(name)]
        if spare:
            problem = f"does nothing beside {beside}, each of which says its own {spare[0]}"
            raise refusal([spare[0]], getattr(self, spare[0]), f"{problem}; remove it")

    def _check_benches(self) -> None:
        twice = named_twice(self.benches)
        if twice is not None:
            raise refusal(["benches"], twice, f"has {twice!r} twice; give each bench its own name")
        unjudged = next((one for one in self.benches if not one.judged), None)
        if unjudged is not None:
            problem = f"{unjudged.name!r} names nobody who judges all of its rows"
            raise refusal(["benches"], unjudged.name, f"{problem}; name its verifier or its task")
        self._refuse_spare("benches")

    def _is_default(self, name: str) -> bool:
        default = type(self).model_fields[name].default
        return bool(getattr(self, name) == default)

    @property
    def scored(self) -> Sequence[EvalCheckpoint]:
        """Those that are scored, the one that others are compared with first."""
        if self.checkpoints:
            return self.checkpoints
        label = Path(self.adapter_init or self.base).name
        own = EvalCheckpoint(
            label=label,
            base=self.base,
            adapter_init=self.adapter_init,
            base_seed=self.base_seed,
        )
        return [own]

    @property
    def serves(self) -> bool:
        """Whether a server answers."""
        return self.rollout_backend == "vllm"

    @property
    def asked(self) -> Sequence[Asked]:
        """Every bench at each of its numbers of shots."""
        return [*asked_benches(self.benches)]


def _with_base(data: Any) -> Any:
    """Checkpoints that are named need no `base` beside them; steps and `all` are of one run."""
    if not isinstance(data, dict) or data.get("base") is not None:
        return data
    asked = data.get("checkpoints")
    first = asked[0] if isinstance(asked, list) and asked else asked
    if isinstance(asked, list) and isinstance(first, str):
        return {**data, "base": first}
    if asked == ALL or (isinstance(first, int) and not isinstance(first, bool)):
        problem = "is missing, and checkpoints are steps of the run that it names"
        raise refusal(["base"], None, f"{problem}; write base: runs/7")
    return data


def _with_detection(data: Any) -> Any:
    """Entries of `benches` that are the bench `detection` stand in a section of their own."""
    if not isinstance(data, dict):
        return data
    benches, told = data.get("benches"), data.get("detection")
    if isinstance(benches, list) and any(map(is_detection, benches)):
        moved = [one for one in benches if is_detection(one)]
        told = [*(told if isinstance(told, list) else ()), *moved]
        data = {**data, "benches": [one for one in benches if not is_detection(one)]}
    if not isinstance(told, list):
        return data
    return {**data, "detection": [as_the_run(one, data.get("base")) for one in told]}


def _resolved(base: str, asked: Any) -> list[dict[str, Any]]:
    try:
        return checkpoints_of(base, asked)
    except OSError as error:
        raise refusal(["checkpoints"], asked, f"cannot be looked at: {error}") from error
    except ValueError as error:
        raise refusal(["checkpoints"], asked, str(error)) from error


_OF_ROWS = {"data", "verifier", "samples", "temp", "curriculum_out"}
"""Settings of the rows of `data`, which a bench has of its own."""


def _inputs(config: EvalRerunConfig) -> Sequence[Path]:
    """The data files, and what model and adapter folders hold at their top level."""
    folders = dict.fromkeys(
        place for one in config.scored for place in (one.base, one.adapter_init)
    )
    models = [file for folder in folders for file in folder_files(folder)]
    if config.detection:
        return [*dict.fromkeys(Path(one.source) for one in config.detection), *models]
    if not config.benches:
        return [*files_or_source(config.data), *models]
    rows = [bench.rows for bench in config.benches if bench.run is None]
    pools = [bench.pool for bench in config.benches if bench.pool is not None]
    files = dict.fromkeys(file for one in (*rows, *pools) for file in files_or_source(one))
    return [*files, *models]


def asked_of(config: EvalRerunConfig) -> Sequence[tuple[str, EvalCheckpoint]]:
    """Checkpoints of which only whoever builds the model can tell whether it fits, each with the
    setting that its fields stand under. A hub id that is not on this machine can be told nothing
    of.
    """
    return [
        (f"checkpoints.{place}." if config.checkpoints else "", one)
        for place, one in enumerate(config.scored)
        if one.adapter_init is not None or asks_for_weights(one.base)
        if Path(one.base).is_absolute() or in_hub_cache(one.base)
    ]


def _asks(config: EvalRerunConfig) -> Mapping[str, Any]:
    """What `engine.eval_rerun.look` looks at, and nothing where it would find nothing to do."""
    asks = not config.detection and asked_of(config)
    named = {"base", "adapter_init", "checkpoints"} if asks else set()
    return config.model_dump(mode="json", include=named) if named else {}


def _check(config: EvalRerunConfig) -> Sequence[ConfigProblem]:
    if config.detection:
        return [*_check_seeing(config), *detection_problems(config.detection)]
    found: list[ConfigProblem] = []
    for place, one in enumerate(config.scored):
        where = f"checkpoints.{place}." if config.checkpoints else ""
        found += base_problems(f"{where}base", one.base)
        found += _check_adapter(one, f"{where}adapter_init")
        found += template_problems(config.prompting, one.base)
    found += served_problems(config, {"temp": config.temp})
    if config.benches:
        return [*found, *benches_problems(config.benches)]
    if lacks := library_problem(config.verifier):
        found.append(ConfigProblem("verifier", config.verifier, *lacks))
    return [*found, *_check_out(config), *_check_rows(config)]


def _check_seeing(config: EvalRerunConfig) -> Iterator[ConfigProblem]:
    """Models that look at pictures: a folder or a hub id, with an adapter or without."""
    for place, one in enumerate(config.scored):
        where = f"checkpoints.{place}." if config.checkpoints else ""
        if one.base in EMBEDDED_BASES:
            problem = "is no vision-language model"
            remedy = "name a Qwen3-VL folder or hub id, or a stage-2 run"
            yield ConfigProblem(f"{where}base", one.base, problem, remedy)
        elif Path(one.base).is_absolute():
            yield from folder_problems(
                f"{where}base", Path(one.base), marker="config.json", what="model"
            )
        yield from _check_adapter(one, f"{where}adapter_init")


def _check_out(config: EvalRerunConfig) -> Sequence[ConfigProblem]:
    """Hours later would be too late to say it."""
    if config.curriculum_out is None:
        return []
    file = Path(config.curriculum_out)
    if file.parent.is_dir() and (file.is_file() or not file.exists()):
        return []
    problem = "is not a file" if file.exists() else f"cannot be written: {file.parent} is no folder"
    remedy = "name a file in a folder that is there"
    return [ConfigProblem("curriculum_out", str(file), problem, remedy)]


def _check_adapter(one: EvalCheckpoint, field: str) -> Sequence[ConfigProblem]:
    if one.adapter_init is None:
        return []
    folder = Path(one.adapter_init)
    wrong = folder_problems(
        field, folder, marker="adapter_config.json", what="PEFT adapter", weights=WEIGHTS
    )
    return wrong or adapter_problems(field, folder, tuning=None)


def _check_rows(config: EvalRerunConfig) -> Sequence[ConfigProblem]:
    """Rows that cannot be read, or that the verifier can never call right."""
    data = config.data
    column = "answer"
    if data.source in EMBEDDED_TASKS:
        unfit = unfit_for((config.verifier,), EMBEDDED_ANSWER)
    elif data.source.startswith("embedded:"):
        known, problem = ", ".join(EMBEDDED_TASKS), "is not an embedded data set"
        return [ConfigProblem("data.source", data.source, problem, f"known: {known}")]
    else:
        try:
            corpus = survey(data, (config.verifier,))
        except RLLoopError as error:
            return error.problems
        if corpus.rows == 0:
            return [ConfigProblem("data.source", data.source, "has no rows", "name another file")]
        unfit, column = corpus.unfit, corpus.answer_column
    return [one.as_problem("verifier", column) for one in unfit if one.refuses]


def _cautions(config: EvalRerunConfig) -> Sequence[ConfigProblem]:
    found: list[ConfigProblem] = []
    for base in dict.fromkeys(one.base for one in config.scored):
        hub_id = not (base in EMBEDDED_BASES or Path(base).is_absolute())
        found += hub_cautions("base", base) if hub_id else ()
        found += () if config.detection else template_cautions(config.prompting, base)
    if config.benches or config.detection:
        return [*found, *benches_cautions(config.benches)]
    return [*found, *_rows_cautions(config.data, config.verifier)]


def _rows_cautions(data: SourceConfig, verifier: str) -> Iterator[ConfigProblem]:
    """How the rows were read; what cannot be read is refused."""
    if data.source.startswith("embedded:"):
        return
    with suppress(RLLoopError):
        yield from source_cautions("data", data, survey(data, (verifier,)))


def _envelope(config: EvalRerunConfig) -> Envelope | None:
    """Weights, and the cache of one batch; None for a model whose sizes are not known here."""
    bases = {one.base for one in config.scored if Path(one.base).is_absolute()}
    shapes = [shape for base in bases if (shape := ModelShape.of_folder(Path(base))) is not None]
    if not shapes:
        return None
    shape = max(shapes, key=lambda one: one.parameters)
    longest = max((limit_of(one, config.max_new_tokens) for one in config.benches), default=0)
    tokens = config.rollout_batch * (PROMPT_TOKENS + (longest or config.max_new_tokens))
    servers = 0 if config.vllm.external else config.vllm.launch.replicas
    return Envelope(
        weights=gigabytes(shape.parameters * FP32),
        kv_cache=0.0 if config.serves else gigabytes(shape.kv_bytes(tokens)),
        serving=servers * shape.served_gb(tokens) if config.serves else 0.0,
        logits=gigabytes(config.rollout_batch * shape.vocabulary * FP32),
    )


def _entry(config: EvalRerunConfig) -> str | None:
    """Pictures are answered by what stage 2 trains with."""
    return "engine.stage2.detect:run" if config.detection else None


_LOWERS: Mapping[str, str] = {"weights": "base", "kv_cache": "rollout_batch"}

KIND = Kind(
    name="eval_rerun",
    summary="Scores of checkpoints on benches; pass@k, and which rows are worth training on.",
    config=EvalRerunConfig,
    entry="engine.eval_rerun.eval_rerun:run",
    entry_of=_entry,
    inputs=_inputs,
    seed="seed",
    model="base",
    indifferent=frozenset({"keep_checkpoints", "threads"}),
    check=_check,
    look=Look("engine.eval_rerun.look:look", _asks),
    cautions=_cautions,
    rows="data.source",
    asks_first=("base", "data.source", "verifier", "samples", "temp", "max_new_tokens"),
    smaller=("rollout_batch", "max_new_tokens"),
    envelope=_envelope,
    lowers=_LOWERS,
    serves=lambda config: config.serves,
    needs_server_program=lambda config: config.serves and not config.vllm.external,
)
