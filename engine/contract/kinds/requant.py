"""`requant`: a checkpoint is merged, quantized in several formats, and each is scored beside it.

The typed home of its config; the text under a field is its help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from engine.contract.adapter_folder import adapter_problems, base_cautions
from engine.contract.base_model import (
    EMBEDDED_BASES,
    WEIGHTS,
    base_problems,
    checkpoint_origin,
    folder_files,
    model_reference,
    unreadable_by,
)
from engine.contract.documents import read_json_object
from engine.contract.envelope import FP32, Checkpoints, Envelope, ModelShape, gigabytes
from engine.contract.errors import ConfigProblem, RLLoopError
from engine.contract.hub import hub_cautions
from engine.contract.kind import Kind
from engine.contract.kinds.rl_run import RLRunConfig, data_files
from engine.contract.model_folder import folder_problems
from engine.contract.paths import located
from engine.contract.provenance import run_around
from engine.contract.quantized import (
    FORMATS,
    GGUF_ARCHITECTURES,
    QuantizeConfig,
    quantize_problems,
)
from engine.contract.rl.envelope import PROMPT_TOKENS
from engine.contract.rl.prompting import PromptingConfig, template_cautions, template_problems
from engine.contract.rl.sampling import SamplingConfig
from engine.contract.run_dir import COMPLETE, RunDir, step_of
from engine.contract.sources.benches import BenchConfig
from engine.contract.sources.questions import files_or_source, source_cautions, survey
from engine.contract.verifiers import library_problem

SIXTEEN_BIT = 2
"""Bytes of a weight of the model that the formats are made of and scored beside."""
_AS_TRAINED = (
    "prompting",
    "sampling",
    "max_new_tokens",
    "reward_timeout_s",
    "success_threshold",
    "rollout_batch",
)
"""Settings of a run that mean the same here."""


class RequantConfig(QuantizeConfig):
    """Everything a `requant` can be told."""

    base: str
    """The model: a checkpoint of a run (`runs/7`: what it published, or
    `runs/7/checkpoints/step-000020`) or an adapter, whose base is found; or a Hugging Face folder,
    a hub id, `embedded:qwen3-tiny`."""
    adapter_init: str | None = None
    """A PEFT folder of LoRA or DoRA on it: merged before anything is quantized."""
    base_seed: int = Field(0, ge=0, lt=2**31)
    """Of an embedded model: the seed of its random weights. That of the run for a checkpoint."""
    bench: BenchConfig | None = None
    """The rows that every format answers, greedily; it names its verifier. Without one those of the
    run that the checkpoint is from: its frozen `report` rows, which picked nothing, as that run
    asks and judges them."""
    prompting: PromptingConfig = PromptingConfig()
    """From a question to a prompt; that of the run for a checkpoint."""
    sampling: SamplingConfig = SamplingConfig()
    """Penalties; that of the run for a checkpoint."""
    max_new_tokens: int = Field(16, ge=1, le=131_072)
    """Longest completion, in tokens, where the bench does not say it."""
    success_threshold: float = Field(0.5, allow_inf_nan=False)
    """A reward at or above this counts as solved."""
    reward_timeout_s: float = Field(60.0, gt=0, le=86_400)
    """Seconds that one call of a reward function may take."""
    rollout_batch: int = Field(256, ge=1)
    """Sequences decoded at once."""
    threads: int | None = Field(None, ge=1)
    """CPU threads for torch; all cores by default."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_checkpoint(cls, data: Any) -> Any:
        """A checkpoint is written down as what it is made of: `selected` may move. What is not said
        is as its run has it.
        """
        if not isinstance(data, dict) or not isinstance(data.get("base"), str):
            return data
        if data["base"].startswith("embedded:") or data.get("adapter_init") is not None:
            return data
        try:
            found = checkpoint_origin(located(data["base"]))
        except OSError:
            return data  # said of the folder
        if found is None:
            return data
        told = {n: found.config[n] for n in _AS_TRAINED if n in found.config}
        seed = {"base_seed": found.seed} if found.base in EMBEDDED_BASES else {}
        return {**told, **seed, **data, "base": found.base, "adapter_init": found.adapter}

    @field_validator("base")
    @classmethod
    def _base(cls, base: str) -> str:
        return model_reference(base)

    @field_validator("adapter_init")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        return None if path is None else str(located(path))

    @property
    def checkpoint(self) -> Path | None:
        """The run's checkpoint that the model is from: `runs/7/checkpoints/step-000020`."""
        folder = Path(self.adapter_init or self.base)
        found = (p for p in (folder, folder.parent) if step_of(p.name) is not None)
        return next((p for p in found if p.parent.name == "checkpoints"), None)

    @property
    def step(self) -> int:
        """Of that run; 0 where there is none."""
        found = self.checkpoint
        return 0 if found is None else step_of(found.name) or 0

    @property
    def run(self) -> RunDir | None:
        """The run that it is from."""
        return run_around(self.adapter_init or self.base)


def run_config(config: RequantConfig) -> RLRunConfig | None:
    """Of the `rl_run` that the model is from, as it was resolved; None where none is known."""
    run = config.run
    if run is None:
        return None
    try:
        job = read_json_object(run.attempt(run.latest_attempt()).job_file)
        return RLRunConfig.model_validate(job["config"]) if job.get("kind") == "rl_run" else None
    except (OSError, LookupError, ValidationError, RLLoopError):
        return None


def _inputs(config: RequantConfig) -> Sequence[Path]:
    """The rows, and what a model or adapter folder holds at its top level."""
    models = folder_files(config.base, config.adapter_init)
    if config.bench is not None:
        pools = [] if config.bench.pool is None else files_or_source(config.bench.pool)
        return [*files_or_source(config.bench), *pools, *models]
    run = run_config(config)
    return models if run is None else [*data_files(run), *models]


def _check(config: RequantConfig) -> Sequence[ConfigProblem]:
    found = [*base_problems("base", config.base), *_check_adapter(config), *_check_whole(config)]
    found += quantize_problems("formats", config.formats)
    if found:
        return found
    found += template_problems(config.prompting, config.base)
    return [*found, *_check_architecture(config), *_check_bench(config)]


def _check_adapter(config: RequantConfig) -> Sequence[ConfigProblem]:
    if config.adapter_init is None:
        return []
    folder = Path(config.adapter_init)
    wrong = folder_problems(
        "adapter_init", folder, marker="adapter_config.json", what="PEFT adapter", weights=WEIGHTS
    )
    return wrong or adapter_problems("adapter_init", folder, tuning=None)


def _check_whole(config: RequantConfig) -> Sequence[ConfigProblem]:
    """A checkpoint whose writer died before it was complete."""
    checkpoint = config.checkpoint
    if checkpoint is None or (checkpoint / COMPLETE).is_file():
        return []
    problem = f"is no complete checkpoint: {COMPLETE} is missing"
    return [ConfigProblem("base", str(checkpoint), problem, "name another step of that run")]


def _check_architecture(config: RequantConfig) -> Sequence[ConfigProblem]:
    """GGUF has names of its own for the tensors of each architecture."""
    gguf = next((name for name in config.formats if FORMATS[name].library == "gguf"), None)
    told = config.base if config.base in EMBEDDED_BASES else _architecture(config.base)
    if gguf is None or told is None or told in GGUF_ARCHITECTURES:
        return []
    problem = f"is not written for {told}; known: {', '.join(GGUF_ARCHITECTURES)}"
    remedy = "leave it out, or convert the merged model with llama.cpp"
    return [ConfigProblem("formats", gguf, problem, remedy)]


def _architecture(base: str) -> str | None:
    try:
        told = read_json_object(Path(base) / "config.json").get("architectures")
    except OSError:
        return None
    return str(told[0]) if isinstance(told, list) and told else None


def _check_bench(config: RequantConfig) -> Sequence[ConfigProblem]:
    bench = config.bench
    if bench is None:
        return _check_run(config)
    if wrong := _check_asking(config, bench):
        return [wrong]
    if bench.source.startswith("embedded:"):
        return []
    try:
        corpus = survey(bench, () if bench.verifier is None else (bench.verifier,))
    except RLLoopError as error:
        return error.problems
    if corpus.rows == 0:
        return [ConfigProblem("bench.source", bench.source, "has no rows", "name another file")]
    unfit = [one for one in corpus.unfit if one.refuses]
    return [one.as_problem("bench.verifier", corpus.answer_column) for one in unfit]


def _check_asking(config: RequantConfig, bench: BenchConfig) -> ConfigProblem | None:
    """How it is asked and judged, before a row is read."""
    if bench.verifier is None and bench.verifier_field is None:
        return ConfigProblem("bench.verifier", None, "is missing", "say who judges: math")
    if problem := unreadable_by(config.base, bench.source):
        return ConfigProblem("bench.source", bench.source, problem, "name other rows")
    if bench.temp:
        problem = "must be 0: formats are compared on greedy answers"
        return ConfigProblem("bench.temp", bench.temp, problem, "leave it out")
    lacks = library_problem(bench.verifier) if bench.verifier else None
    return ConfigProblem("bench.verifier", bench.verifier, *lacks) if lacks else None


def _check_run(config: RequantConfig) -> Sequence[ConfigProblem]:
    """Without a bench the model must be an `rl_run`'s that held rows out for its report."""
    remedy = "set bench: {name: …, source: …, verifier: …}"
    run = config.run
    if run is None or run_config(config) is None:
        problem = "is missing, and base is no checkpoint of an rl_run, whose rows would serve"
        return [ConfigProblem("bench", None, problem, remedy)]
    try:
        report = read_json_object(run.split).get("report")
    except OSError:
        report = None
    if report:
        return []
    return [ConfigProblem("bench", None, f"is missing, and {run.root} has no report rows", remedy)]


def _cautions(config: RequantConfig) -> Iterator[ConfigProblem]:
    if not (config.base in EMBEDDED_BASES or Path(config.base).is_absolute()):
        yield from hub_cautions("base", config.base)
    if config.adapter_init is not None and config.run is None:
        yield from base_cautions("adapter_init", Path(config.adapter_init), config.base)
    yield from template_cautions(config.prompting, config.base)
    if config.bench is not None and not config.bench.source.startswith("embedded:"):
        with suppress(RLLoopError):
            yield from source_cautions("bench", config.bench, survey(config.bench))


def _shape(config: RequantConfig) -> ModelShape | None:
    return ModelShape.of_folder(Path(config.base)) if Path(config.base).is_absolute() else None


def _envelope(config: RequantConfig) -> Envelope | None:
    """The base in fp32 while its adapter is merged; None for a model of unknown size."""
    shape = _shape(config)
    if shape is None:
        return None
    tokens = config.rollout_batch * (PROMPT_TOKENS + config.max_new_tokens)
    return Envelope(
        weights=gigabytes(shape.parameters * (FP32 + SIXTEEN_BIT)),
        kv_cache=gigabytes(shape.kv_bytes(tokens, SIXTEEN_BIT)),
        logits=gigabytes(config.rollout_batch * shape.vocabulary * FP32),
    )


def requant_checkpoints(config: RequantConfig) -> Checkpoints | None:
    """The 16-bit model and each format, none of which is larger; all of them stay."""
    shape = _shape(config)
    if shape is None:
        return None
    written = 1 + len(config.formats)
    return Checkpoints(gigabytes(shape.parameters * SIXTEEN_BIT), written, written)


_LOWERS: Mapping[str, str] = {"weights": "base", "kv_cache": "rollout_batch"}

KIND = Kind(
    name="requant",
    summary="Quantize a checkpoint in several formats, each scored beside the 16-bit model.",
    config=RequantConfig,
    entry="engine.requant.requant:run",
    inputs=_inputs,
    model="base",
    indifferent=frozenset({"threads"}),
    check=_check,
    cautions=lambda config: [*_cautions(config)],
    rows="bench.source",
    asks_first=("base", "formats", "bench.source", "bench.verifier", "max_new_tokens"),
    smaller=("rollout_batch", "max_new_tokens"),
    envelope=_envelope,
    lowers=_LOWERS,
    checkpoints=requant_checkpoints,
)
"""`requant`: what a run published, in formats of few bits."""
