"""`rl_run`: reinforcement learning from verifiable rewards, with a held-out gate.

The typed home of its config. The text under a field is its help and its documentation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from engine.contract.adapter_folder import adapter_problems, is_of_stacks
from engine.contract.base_model import (
    EMBEDDED_BASES,
    WEIGHTS,
    base_problems,
    folder_files,
    model_reference,
    unreadable_by,
)
from engine.contract.documents import number_of
from engine.contract.errors import ConfigError, ConfigProblem, RLLoopError
from engine.contract.evaluate.benches import benches_problems
from engine.contract.evaluate.of_run import judged_as
from engine.contract.evaluate.watching import EvaluateConfig
from engine.contract.golds.survey import unfit_for
from engine.contract.hub import hub_cautions, in_hub_cache
from engine.contract.kind import FollowUp, Kind
from engine.contract.look import Look
from engine.contract.model_folder import asks_for_weights, folder_problems
from engine.contract.paths import located
from engine.contract.problems import problems_of
from engine.contract.provenance import BEGINS, earlier_runs
from engine.contract.quantized import QuantizeConfig, quantize_problems
from engine.contract.ranks import RankCount, ranked_serving_problems
from engine.contract.rl.buffer import BufferConfig
from engine.contract.rl.cautions import cautions
from engine.contract.rl.envelope import Rows, rl_checkpoints, rl_envelope
from engine.contract.rl.format import FormatConfig, format_problems
from engine.contract.rl.guard import GuardConfig
from engine.contract.rl.objective import ObjectiveConfig
from engine.contract.rl.optim import OptimConfig
from engine.contract.rl.prompting import (
    PromptingConfig,
    template_cautions,
    template_problems,
)
from engine.contract.rl.sampling import SamplingConfig
from engine.contract.rl.serving import serving_problems, stacks_problem
from engine.contract.rl.shares import heldout_frac_for, rows_for, sizes
from engine.contract.rl.warnings import WarningsConfig
from engine.contract.section import Section, refusal
from engine.contract.served import SYNC_TOLERANCE, RunVLLMConfig
from engine.contract.sources.asked import (
    form_cautions,
    overlap_cautions,
    prompt_examples,
    shots_problems,
)
from engine.contract.sources.benches import OWN, BenchConfig
from engine.contract.sources.curriculum import curriculum_problems, unread_ids
from engine.contract.sources.mixture import DataConfig, JudgedSource, same_origin
from engine.contract.sources.questions import (
    EMBEDDED_ANSWER,
    EMBEDDED_TASKS,
    Corpus,
    SourceConfig,
    files_or_source,
    read_rows,
    source_cautions,
    survey,
)
from engine.contract.verifiers import VerifierName, library_problem, verifier_problem

BASE_VARIABLE = "FK_RL_BASE_MODEL"
ADAPTER_VARIABLE = "FK_RL_ADAPTER_INIT"
HELDOUT_TEMP_VARIABLE = "FK_RL_HELDOUT_TEMP"
"""Environment of whoever enqueues: what a config that does not say it itself takes for the model
(DEFAULT_BASE where that says nothing either), the adapter that LoRA runs start from, and the
temperature of the held-out gate."""

DEFAULT_BASE = "Qwen/Qwen2.5-7B-Instruct"
"""What a run starts from where neither config nor operator says it; 15 GB, once."""

_TOLD_BY_OPERATORS = frozenset({"adapter_init", "heldout_temp"})
"""Settings that a config may have from the environment without saying anything itself."""

_LARGE_BYTES = 64 * 2**20
"""A whole corpus beyond this is not read for a caution: its rows are many, and the page of a run
would wait for it."""


class GRPOConfig(Section):
    """The knobs of the loop itself. Raises RLLoopError on construction."""

    base: str
    """The model to start from: `embedded:qwen3-tiny`, a Hugging Face model folder, or a hub id."""
    lora_rank: int = Field(16, ge=1, le=1024)
    """Rank of the LoRA matrices (with `tuning: lora` or `dora`)."""
    group_k: int = Field(4, ge=2, le=1024)
    """Completions sampled for each prompt; their rewards are ranked against each other."""
    tasks_per_step: int = Field(8, ge=1)
    """Prompts drawn for one optimizer step."""
    temp: float = Field(0.8, gt=0, le=10)
    """Sampling temperature of the training rollouts; log-probabilities use it too."""
    heldout_every: int = Field(10, ge=1, le=10)
    """At most this many steps lie between two held-out gates; never more than 10."""
    vllm_pin: str | None = None
    """The vLLM version this run was proven with: recorded on the run card and, with
    `rollout_backend: vllm`, asked of the server before the first rollout."""
    max_steps: int = Field(34, ge=1, lt=2**31)
    """Optimizer steps of the run."""
    corpus_min: int = Field(100, ge=1)
    """Fewest rows a corpus may have; small corpora collapse onto one answer."""
    heldout_frac: float = Field(0.2, gt=0, lt=1)
    """Share of the rows carved off before anything trains."""
    kl_coef: float = Field(0.1, ge=0)
    """Weight of the K3 estimate of KL(policy || step-0 policy) in the loss."""
    lr: float = Field(1e-6, ge=0, lt=1)
    """AdamW's learning rate. 0 trains nothing: a control run."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Makes split, draws and sampling repeatable (the split alone: `data.split_seed`)."""
    heldout_patience: int | None = Field(None, ge=1)
    """Stop after this many gates in a row without a new best held-out score; off by default."""

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise RLLoopError(problems_of(error, type(self))) from error


class WarmupConfig(Section):
    """Supervised fine-tuning on the training rows until the model can do the task at times."""

    target_heldout: float = Field(0.55, gt=0, lt=1)
    """Stop at this accuracy on the `select` rows; not at a step count, learning is abrupt."""
    max_steps: int = Field(1000, ge=1, lt=2**31)
    """Give up here: the run fails when the target was not reached."""
    batch_size: int = Field(256, ge=1)
    """Rows per step."""
    lr: float = Field(3e-3, gt=0, lt=1)
    """AdamW's learning rate while warming up."""
    eval_every: int = Field(25, ge=1)
    """Steps between two looks at the `select` rows."""


LORA_LR = 2e-5
FULL_LR = 1e-6


class RewardPart(Section):
    """One of several rewards."""

    verifier: str | None = None
    """A verifier by name."""
    function: str | None = None
    """Instead of it a reward function, `module:function`, of a module that the operator allows."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """What it is multiplied by in the sum; negative for a penalty."""

    @property
    def name(self) -> str:
        """Of whichever it is."""
        return self.verifier or self.function or ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.verifier is None) == (self.function is None):
            raise ValueError("must name one verifier or one function; write {verifier: math}")
        if self.function is not None and ":" not in self.function:
            raise ValueError(f"function {self.function!r} is not module:function; use verifier")
        if problem := verifier_problem(self.name):
            raise ValueError(f"{self.name!r} {problem}")
        return self


class JudgedRows(NamedTuple):
    """Rows of one origin with who judges them."""

    where: str
    """Path of the section that describes them: `data`, `data.mix.0`, `heldout.0`."""
    config: SourceConfig
    verifiers: Sequence[str]
    """Empty where each row names its own."""

    @property
    def trains(self) -> bool:
        """False for a bench."""
        return not self.where.startswith("heldout")

    @property
    def prefix(self) -> str:
        """Of its rows' ids, which no other origin has."""
        return f"{self.config.name}/" if isinstance(self.config, JudgedSource) else ""

    @property
    def verifier_setting(self) -> str:
        """Path of the setting that chose them."""
        return "verifier" if self.where == "data" else f"{self.where}.verifier"


class RLRunConfig(GRPOConfig):
    """Everything an `rl_run` can be told."""

    lr: float = Field(LORA_LR, ge=0, lt=1)
    """AdamW's learning rate. 0 trains nothing: a control run. Without one 2e-5 with
    `tuning: lora` or `dora`, whose matrices start at zero, and 1e-6 with `full`."""

    base: str = DEFAULT_BASE
    """The model to start from: `embedded:qwen3-tiny`, a Hugging Face model folder, or a hub id.

    Without one FK_RL_BASE_MODEL counts, where the operator set that; else a hub model of 15 GB.
    """
    objective: ObjectiveConfig = ObjectiveConfig()
    """The loss and its advantages; `reinforce_kl` by default."""
    optim: OptimConfig = OptimConfig()
    """AdamW, learning-rate schedule, precision and memory."""
    buffer: BufferConfig = BufferConfig()
    """How old and how used a rollout may be when it is trained on."""
    guard: GuardConfig = GuardConfig()
    """When the run ends before training, or before its last step."""
    warnings: WarningsConfig = WarningsConfig()
    """What is said at gates while the run goes on."""
    force_headroom: bool = False
    """Train whatever the baseline is, also above `guard.headroom_ceiling` or under the floor."""
    tuning: Literal["lora", "dora", "full"] = "lora"
    """Train LoRA matrices on every linear layer and on stacked experts, DoRA's on linear layers
    alone (their magnitudes too), or all weights.

    Embeddings, head and routers stay as they are; the note ADAPTER_REACH says what share of the
    weights has an adapter.
    """
    lora_alpha: int = Field(32, ge=1)
    """LoRA's scale is lora_alpha / lora_rank."""
    adapter_init: str | None = None
    """A PEFT folder of LoRA or DoRA to start from; its rank, alpha and layers count then.

    Each of its tensors must find its layer in `base`, and each layer its tensor.

    Without one the adapter starts at zero, or at FK_RL_ADAPTER_INIT where the operator set that.
    """
    data: DataConfig = DataConfig()
    """The questions."""
    prompting: PromptingConfig = PromptingConfig()
    """From a question to a prompt: chat template, system prompt, prefix."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are drawn, beside the temperature."""
    format: FormatConfig = FormatConfig()
    """How the form of an answer is taught; all of it off by default."""
    verifier: VerifierName = "exact"
    """Who pays the reward; docs/verifiers.md says what each one's rows hold as `answer`. A reward
    function is `module:function`. Short for `rewards` with this one alone."""
    rewards: list[RewardPart] = Field([])
    """Several of them: `[{verifier: math}, {function: "my_rewards:brevity", weight: 0.1}]`. The
    reward is the weighted sum of what judges the completion."""
    reward_timeout_s: float = Field(60.0, gt=0, le=86_400)
    """Seconds that one call of a reward function may take, all completions of a step together."""
    heldout: list[BenchConfig] = Field([], max_length=32)
    """Benches of your own that every gate scores beside the run's own held-out rows:
    `[{name: gsm8k_test, source: test.jsonl, verifier: gsm8k}]`."""
    decide: str = OWN
    """Who picks the checkpoint and gives the verdict: `own`, the run's own held-out rows, or the
    name of a bench, half of whose rows then pick (`select_frac`) and the rest are scored once."""
    evaluate: EvaluateConfig | None = None
    """Benches that each checkpoint is scored on as it appears, by jobs of their own behind the
    training: `{benches: [{task: gsm8k_cot, source: test.jsonl}], every: 10}`
    (docs/evaluation.md)."""
    success_threshold: float = Field(0.5, allow_inf_nan=False)
    """A reward at or above this counts as solved in the scores."""
    max_new_tokens: int = Field(16, ge=1, le=131_072)
    """Longest completion, in tokens."""
    heldout_temp: float = Field(0.2, ge=0, le=10)
    """Sampling temperature of the held-out gate; 0 is greedy.

    Without one FK_RL_HELDOUT_TEMP counts, where the operator set that.
    """
    select_frac: float = Field(0.5, gt=0, lt=1)
    """Share of the held-out rows that pick the checkpoint (`select`); the rest is scored once."""
    report_min: int = Field(30, ge=1)
    """Fewest `report` rows for a verdict."""
    grad_clip: float = Field(1.0, gt=0)
    """Largest global norm of the gradient."""
    micro_batch: int = Field(64, ge=1)
    """Rollouts in one forward and backward pass of the trainer."""
    rollout_batch: int = Field(256, ge=1)
    """Sequences decoded at once."""
    rollout_backend: Literal["hf", "vllm"] = "hf"
    """Who samples: the trainer's own model (`hf`), or vLLM beside it (`vllm`); docs/serving.md."""
    vllm: RunVLLMConfig = RunVLLMConfig()
    """With `rollout_backend: vllm`: which engine, and how new weights reach it."""
    sync_tolerance: float | None = Field(None, gt=0, le=10)
    """With `rollout_backend: vllm`: nats a token by which the server may differ from the trainer's
    model after its weights were sent, in the mean; the run ends above it. By default 0.01 with
    `optim.precision: fp32` and 0.15 with bf16."""
    save_every: int = Field(1, ge=1)
    """Steps between two checkpoints; gates always write one."""
    keep_checkpoints: int = Field(3, ge=1)
    """How many recent checkpoints stay; step 0 and the selected one always do, and those of gates
    until the report while the disk has room for them."""
    warmup: WarmupConfig | None = None
    """Supervised warm-up before step 0; none by default."""
    requant: QuantizeConfig | None = None
    """Formats of few bits: where the verdict is a gain, a `requant` of what was published is queued
    behind the run, and scores each of them on its report rows. After any other verdict none is."""
    ranks: RankCount = 1
    """Learner processes: they share each step's groups, rank r on device r of the lane."""
    threads: int | None = Field(None, ge=1)
    """CPU threads for torch, of each rank; all cores by default, shared among the ranks."""

    def __init__(self, **data: Any) -> None:
        # Written out for type checkers: a section may come as a mapping, as documents have it.
        super().__init__(**data)

    @model_validator(mode="before")
    @classmethod
    def _operators_defaults(cls, data: Any) -> Any:
        """What the operator's environment says, unless the config says anything itself."""
        if not isinstance(data, dict):
            return data
        told: dict[str, Any] = {"base": os.environ.get(BASE_VARIABLE)}
        # Whatever stands there, a list too, is looked at and not hashed: nothing is checked yet.
        if any(data.get("tuning", "lora") == tuning for tuning in ("lora", "dora")):
            told["adapter_init"] = os.environ.get(ADAPTER_VARIABLE)
        if data.get("tuning") == "full":
            told["lr"] = FULL_LR
        if "heldout_temp" not in data:
            told["heldout_temp"] = _temperature(os.environ.get(HELDOUT_TEMP_VARIABLE))
        return {name: value for name, value in told.items() if value not in {None, ""}} | data

    @field_validator("base")
    @classmethod
    def _base(cls, base: str) -> str:
        return model_reference(base)

    @field_validator("adapter_init")
    @classmethod
    def _adapter(cls, path: str | None) -> str | None:
        return None if path is None else str(located(path))

    @model_validator(mode="before")
    @classmethod
    def _first_reward(cls, data: Any) -> Any:
        """With `rewards`, `verifier` is the first of them: pages and comparisons read it."""
        if not isinstance(data, dict) or data.get("verifier") is not None:
            return data
        match data.get("rewards"):
            case [dict() as first, *_]:
                name = first.get("verifier") or first.get("function")
                return data | {"verifier": name} if isinstance(name, str) else data
        return data

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.rewards and self.verifier != self.rewards[0].name:
            raise ValueError(
                f"verifier: {self.verifier} and rewards say two things; remove verifier, which is "
                "short for rewards with one entry"
            )
        names = [part.name for part in self.rewards]
        if len(set(names)) < len(names):
            raise ValueError("rewards names one of them twice; add their weights up")
        for rows in self.sources:
            if problem := unreadable_by(self.base, rows.config.source):
                where = [*rows.where.split("."), "source"]
                raise refusal(where, rows.config.source, problem)
        benches = [bench.name for bench in self.heldout]
        taken = [*(part.name for part in self.data.mix), *benches]
        twice = next((name for name in taken if taken.count(name) > 1), None)
        if twice is not None:
            raise refusal(
                ["heldout"], twice, f"names {twice!r}, as another one does; give each its own name"
            )
        if self.decide not in {OWN, *benches}:
            known = ", ".join([OWN, *benches])
            raise refusal(["decide"], self.decide, f"is no bench of heldout; use one of: {known}")
        if self.adapter_init and self.tuning == "full":
            raise ValueError("adapter_init needs LoRA; set tuning to lora, or remove adapter_init")
        return self

    @property
    def reward_parts(self) -> Sequence[tuple[str, float]]:
        """Every verifier and function with its weight."""
        return [(part.name, part.weight) for part in self.rewards] or [(self.verifier, 1.0)]

    @property
    def reward_functions(self) -> Sequence[str]:
        """Those that are `module:function`, of the run and of each source and bench."""
        named = [*self._paying, *(name for rows in self.sources for name in rows.verifiers)]
        return [name for name in dict.fromkeys(named) if ":" in name]

    @property
    def sources(self) -> Sequence[JudgedRows]:
        """Everything that rows are read from: what trains, then the benches."""
        return [*self.corpora, *self.benches]

    @property
    def corpora(self) -> Sequence[JudgedRows]:
        """What trains, and is split."""
        if not self.data.mix:
            return [JudgedRows("data", self.data.alone, self._paying)]
        return [self._judged(f"data.mix.{i}", part) for i, part in enumerate(self.data.mix)]

    @property
    def benches(self) -> Sequence[JudgedRows]:
        """What is scored beside the run's own held-out rows."""
        return [self._judged(f"heldout.{i}", bench) for i, bench in enumerate(self.heldout)]

    @property
    def _paying(self) -> Sequence[str]:
        return [name for name, _ in self.reward_parts]

    def _judged(self, where: str, source: JudgedSource) -> JudgedRows:
        own = [source.verifier] if source.verifier else self._paying
        # Rows that name their verifier are looked at as they are read.
        return JudgedRows(where, source, [] if source.verifier_field else own)

    @property
    def split_seed(self) -> int:
        """The one in force."""
        return self.seed if self.data.split_seed is None else self.data.split_seed

    @property
    def serves(self) -> bool:
        """Whether a server beside the trainer samples."""
        return self.rollout_backend == "vllm"

    @property
    def sync_mode(self) -> Literal["full", "adapter"]:
        """How new weights reach a server: adapters are LoRA's alone."""
        auto = self.vllm.sync.mode == "auto"
        return "full" if auto and self.tuning != "lora" else self.vllm.sync_mode

    @property
    def sends_adapters(self) -> bool:
        """Whether a server is sent adapters, which reach no stacked experts there."""
        return self.serves and self.sync_mode == "adapter"

    @property
    def draws_ahead(self) -> bool:
        """Whether rollouts are drawn while a step trains; see `buffer.max_staleness`."""
        return self.serves and self.buffer.max_staleness > 0 and self.buffer.max_reads == 1

    @property
    def needs_server_program(self) -> bool:
        """Whether the run may have to start its server itself."""
        return self.serves and not self.vllm.external

    @property
    def sync_tolerance_used(self) -> float:
        """The one in force, in nats a token."""
        if self.sync_tolerance is not None:
            return self.sync_tolerance
        return SYNC_TOLERANCE[self.optim.precision]


def _temperature(told: str | None) -> float | None:
    """Raises ValueError that names the variable: its reader never wrote the field."""
    found = number_of(told.strip()) if told else None
    if told and found is None:
        raise ValueError(
            f"{HELDOUT_TEMP_VARIABLE} is {told!r}; set it to a number from 0 to 10, or unset it"
        )
    return found


def _inputs(config: RLRunConfig) -> Sequence[Path]:
    """The data files, and what a model or adapter folder holds at its top level."""
    files = [*data_files(config)]
    if config.data.curriculum_file is not None:
        files.append(Path(config.data.curriculum_file))
    return files + folder_files(config.base, config.adapter_init)


def data_files(config: RLRunConfig) -> Sequence[Path]:
    """Of every source and bench, and of the worked examples of benches."""
    sources = [rows.config for rows in config.sources]
    pools = [bench.pool for bench in config.heldout if bench.pool is not None]
    return [path for source in (*sources, *pools) for path in files_or_source(source)]


def _check(config: RLRunConfig) -> Sequence[ConfigProblem]:
    """Missing files, folders that are no model, a corpus under its floor."""
    if config.model_fields_set <= _TOLD_BY_OPERATORS:
        problem = f"is missing: the config is empty, and {BASE_VARIABLE} is not set"
        return [ConfigProblem("base", None, problem, "add it")]
    found: list[ConfigProblem] = [*serving_problems(config), *_check_staleness(config)]
    found += ranks_problems(config, config.ranks)
    found += base_problems("base", config.base)
    if config.adapter_init:
        folder = Path(config.adapter_init)
        wrong = folder_problems(
            "adapter_init",
            folder,
            marker="adapter_config.json",
            what="PEFT adapter",
            weights=WEIGHTS,
        )
        found += wrong or _check_adapter(config, folder)
    found += template_problems(config.prompting, config.base)
    found += format_problems(
        config.format, max_steps=config.max_steps, success_threshold=config.success_threshold
    )
    named = [
        (rows.verifier_setting, rows.config.verifier)
        for rows in config.sources
        if isinstance(rows.config, JudgedSource)
    ]
    for field, verifier in (
        ("verifier", config.verifier),
        ("format.lenient", config.format.lenient),
        *named,
        *((f"heldout.{i}.also", one) for i, b in enumerate(config.heldout) for one in b.also),
    ):
        if verifier and (lacks := library_problem(verifier)):
            found.append(ConfigProblem(field, verifier, *lacks))
    found += _check_overlong(config)
    found += shots_problems(config)
    if config.requant is not None:
        found += quantize_problems("requant.formats", config.requant.formats)
    found += _check_evaluate(config)
    found += _check_corpus(config)
    return found


def _asks(config: RLRunConfig) -> Mapping[str, Any]:
    """What `engine.rl.look` looks at, and nothing where it would find nothing to do."""
    asked = set()
    if config.reward_functions:
        asked |= {"verifier", "rewards", "data", "heldout", "decide"}
        asked |= {"reward_timeout_s", "success_threshold"}
    if config.adapter_init is not None or asks_for_weights(config.base):
        asked |= {"base", "adapter_init", "rollout_backend"}
    return config.model_dump(mode="json", include=asked) if asked else {}


def _cautions(config: RLRunConfig) -> Sequence[ConfigProblem]:
    return [
        *_download_caution(config.base),
        *_unread_caution(config),
        *cautions(config),
        *_report_caution(config),
        *_line_cautions(config),
        *_source_cautions(config),
        *_unfit_cautions(config),
        *_curriculum_cautions(config),
        *template_cautions(config.prompting, config.base),
        *form_cautions(config),
        *overlap_cautions(config),
        *_buffer_caution(config),
        *_evaluate_cautions(config),
        *_descent_cautions(config),
    ]


def _sweep_cautions(config: RLRunConfig, axes: Collection[str]) -> Sequence[ConfigProblem]:
    if "seed" not in axes or config.data.split_seed is not None:
        return []
    problem = "holds out other rows at each value: these runs cannot be compared row by row"
    remedy = "set data.split_seed to one number, or write seeds: [0, 1]"
    return [ConfigProblem("sweep.seed", None, problem, remedy)]


def _download_caution(base: str) -> Sequence[ConfigProblem]:
    """A model whose gigabytes would come as the run starts: one that nobody named, or a hub id
    that was perhaps meant as a folder.
    """
    if base in EMBEDDED_BASES or Path(base).is_absolute() or in_hub_cache(base):
        return []
    if base != DEFAULT_BASE:
        return hub_cautions("base", base)
    problem = "is not on this machine: the run begins with its download (15 GB)"
    remedy = f"set base to a model folder, or {BASE_VARIABLE} to what is meant where none is given"
    return [ConfigProblem("base", base, problem, remedy)]


def _unread_caution(config: RLRunConfig) -> Sequence[ConfigProblem]:
    if config.vllm_pin is None or config.serves:
        return []
    problem = "is recorded and not checked: the trainer's own model samples"
    remedy = "set rollout_backend: vllm, or leave it out"
    return [ConfigProblem("vllm_pin", config.vllm_pin, problem, remedy)]


def _report_caution(config: RLRunConfig) -> Sequence[ConfigProblem]:
    """A run whose verdict is known beforehand: none."""
    corpus = _known_corpus(config)
    if corpus is None or config.decide != OWN:
        return []
    rows = corpus.rows
    report = sizes(rows, config.heldout_frac, config.select_frac).report
    if report >= config.report_min:
        return []
    share = heldout_frac_for(config.report_min, rows, config.select_frac)
    enough = rows_for(config.report_min, config.heldout_frac, config.select_frac)
    ways = [f"set it to {share:g}"] if share else []
    ways.append(f"have {enough} rows")
    if report:
        ways.append(f"set report_min to {report} knowingly")
    problem = (
        f"leaves {report} of {rows} rows for the report, under report_min={config.report_min}: "
        "the run will end without a verdict and publish its base"
    )
    return [ConfigProblem("heldout_frac", config.heldout_frac, problem, ", or ".join(ways))]


def _line_cautions(config: RLRunConfig) -> Iterator[ConfigProblem]:
    """Sources and benches that are too small for a verdict of their own."""
    for rows in (*config.corpora, *config.benches):
        corpus = _known(rows, config)
        if corpus is None or not isinstance(rows.config, JudgedSource):
            continue
        share = "all"
        report = corpus.rows
        if rows.trains:
            share = f"heldout_frac={config.heldout_frac:g}"
            report = sizes(corpus.rows, config.heldout_frac, config.select_frac).report
        elif rows.config.name == config.decide:
            share = f"select_frac={config.select_frac:g}"
            report = corpus.rows - max(1, round(corpus.rows * config.select_frac))
        if report < config.report_min:
            problem = (
                f"{rows.config.name} has {corpus.rows} rows, {report} of which are reported "
                f"({share}), under report_min={config.report_min}: it will have no verdict"
            )
            remedy = "have more rows of it, hold more of them out, or lower report_min knowingly"
            yield ConfigProblem(f"{rows.where}.limit", rows.config.limit, problem, remedy)


def _source_cautions(config: RLRunConfig) -> Iterator[ConfigProblem]:
    for rows in config.sources:
        corpus = _known(rows, config)
        if corpus is not None:
            yield from source_cautions(rows.where, rows.config, corpus)


def _known_corpus(config: RLRunConfig) -> Corpus | None:
    """Of all that trains together; None where a part of it is not known."""
    found = [_known(rows, config) for rows in config.corpora]
    known = [corpus for corpus in found if corpus is not None]
    if len(known) < len(found):
        return None
    lengths = [corpus.longest for corpus in known]
    longest = max((one for one in lengths if one is not None), default=None)
    return Corpus(sum(c.rows for c in known), longest=None if None in lengths else longest)


def _rows(config: RLRunConfig) -> Rows | None:
    corpus = _known_corpus(config)
    return None if corpus is None else Rows(corpus.rows, corpus.longest)


def _is_large(source: SourceConfig) -> bool:
    try:
        return sum(path.stat().st_size for path in files_or_source(source)) > _LARGE_BYTES
    except OSError:
        return False  # embedded, or gone


def _check_staleness(config: RLRunConfig) -> Sequence[ConfigProblem]:
    """Rollouts of older weights, uncorrected, pull the policy towards what it was."""
    if not config.draws_ahead or config.objective.sampler_correction == "tis":
        return []
    problem = "trains on rollouts that older weights drew, and nothing corrects for that"
    remedy = "set objective.sampler_correction: tis, or max_staleness: 0"
    return [ConfigProblem("buffer.max_staleness", config.buffer.max_staleness, problem, remedy)]


def _buffer_caution(config: RLRunConfig) -> Sequence[ConfigProblem]:
    """The ratio of a loss is to the weights of the step, not to those that drew the rollout."""
    reads, staleness = config.buffer.max_reads, config.buffer.max_staleness
    if reads > 1 and staleness > 0:
        if config.objective.sampler_correction == "tis":
            return []
        problem = "trains on rollouts of older weights, and nothing corrects for that"
        remedy = "set objective.sampler_correction: tis, or leave buffer as it is by default"
        return [ConfigProblem("buffer.max_reads", reads, problem, remedy)]
    if reads > 1:
        problem, remedy = "does nothing without max_staleness", "set buffer.max_staleness"
        return [ConfigProblem("buffer.max_reads", reads, problem, remedy)]
    if staleness > 0 and not config.draws_ahead:
        problem, remedy = "does nothing while a rollout is read once", "set buffer.max_reads"
        return [ConfigProblem("buffer.max_staleness", staleness, problem, remedy)]
    return []


def _descent_cautions(config: RLRunConfig) -> Iterator[ConfigProblem]:
    """Held-out rows that the base was trained on say nothing."""
    data = config.data
    for earlier in earlier_runs(config.model_dump(include=set(BEGINS))):
        if not same_origin(earlier.data, data):
            continue
        share = earlier.config.get("heldout_frac", 0.0)
        apart = {
            "data.split_seed": (earlier.split_seed, config.split_seed),
            "data.split": (earlier.data.get("split"), data.split),
            "data.where": (earlier.data.get("where"), data.where),
            "data.shuffle": (earlier.data.get("shuffle"), data.shuffle),
            "data.limit": (earlier.data.get("limit"), data.limit),
            # The first rows of the shuffle are held out: fewer of them are among those of before.
            "heldout_frac": (share, max(share, config.heldout_frac)),
        }
        differing = {name: pair for name, pair in apart.items() if pair[0] != pair[1]}
        if not differing:
            continue
        said = ", ".join(f"{name} {was}, here {now}" for name, (was, now) in differing.items())
        problem = (
            f"comes from a run that trained on rows which are held out here ({earlier.run.root}: "
            f"{said}): the verdict would rest on what it has seen"
        )
        remedy = " and ".join(f"{name}: {_yaml(was)}" for name, (was, _) in differing.items())
        yield ConfigProblem(earlier.field, None, problem, f"set {remedy}")


def _yaml(value: Any) -> str:
    return "null" if value is None else str(value)


def _check_adapter(config: RLRunConfig, folder: Path) -> Sequence[ConfigProblem]:
    found = adapter_problems("adapter_init", folder, tuning=config.tuning)
    if not found and config.sends_adapters and is_of_stacks(folder):
        return [stacks_problem(str(folder))]
    return found


def _check_overlong(config: RLRunConfig) -> Sequence[ConfigProblem]:
    buffer, longest = config.objective.overlong_buffer, config.max_new_tokens
    if buffer is None or buffer < longest:
        return []
    problem = f"takes reward from every completion: max_new_tokens is {longest}"
    remedy = f"set it below, DAPO takes a fifth ({longest // 5}); 0 is off"
    return [ConfigProblem("objective.overlong_buffer", buffer, problem, remedy)]


def _check_evaluate(config: RLRunConfig) -> Sequence[ConfigProblem]:
    if config.evaluate is None:
        return []
    run = config.model_dump(mode="json", include={"rewards", "verifier"})
    try:
        benches = judged_as(run, config.evaluate.benches)
    except ConfigError as error:
        return error.problems
    found = benches_problems(benches)
    return [replace(one, field=f"evaluate.{one.field}") for one in found]


_MANY_SCORED = 20
"""Checkpoints; so many evaluations may take longer than the run."""


def _evaluate_cautions(config: RLRunConfig) -> Iterator[ConfigProblem]:
    """Far more evaluations than somebody may mean."""
    if config.evaluate is None:
        return
    every = config.evaluate.every
    saved = math.lcm(every, config.save_every)
    gated = math.lcm(every, config.heldout_every)
    both = math.lcm(saved, gated)
    scored = sum(config.max_steps // one for one in (saved, gated)) - config.max_steps // both + 1
    if scored > _MANY_SCORED:
        problem = f"scores {scored} checkpoints, and each is kept until it is scored"
        remedy = f"set it to {config.heldout_every} for those of gates, unless all are meant"
        yield ConfigProblem("evaluate.every", every, problem, remedy)


def _check_corpus(config: RLRunConfig) -> Sequence[ConfigProblem]:
    unread: list[ConfigProblem] = []
    known: list[tuple[JudgedRows, Corpus]] = []
    for rows in config.sources:
        try:
            known.append((rows, _corpus(rows, config)))
        except RLLoopError as error:
            unread += [_moved(problem, rows.where) for problem in error.problems]
    if unread:
        return unread
    trains = [(rows, corpus) for rows, corpus in known if rows.trains]
    left_out = [told for _, corpus in trains for told in corpus.left_out]
    few = corpus_problems(sum(corpus.rows for _, corpus in trains), config, left_out)
    alike = [
        _moved(alike_problem(corpus.rows), rows.where)
        for rows, corpus in trains
        if corpus.alike and corpus.rows > 1
    ]
    if alike:
        return [*few, *alike]
    return (
        [
            found.as_problem(rows.verifier_setting, corpus.answer_column)
            for rows, corpus in known
            for found in corpus.unfit
            if found.verifier in rows.verifiers and found.refuses
        ]
        or few
        or _check_curriculum(config)
    )


def _moved(problem: ConfigProblem, where: str) -> ConfigProblem:
    """A problem of section `data`, as one of the section that the rows are described in."""
    if where == "data" or problem.field.partition(".")[0] != "data":
        return problem
    return replace(problem, field=where + problem.field.removeprefix("data"))


def _check_curriculum(config: RLRunConfig) -> Sequence[ConfigProblem]:
    """Rows that are made in the engine are held against a curriculum file when the run begins."""
    if config.data.curriculum == "none" or not _are_files(config.corpora):
        return []
    return curriculum_problems(config.data, _training_rows(config))


def _curriculum_cautions(config: RLRunConfig) -> Sequence[ConfigProblem]:
    if config.data.curriculum != "file" or not _are_files(config.corpora):
        return []
    try:
        return unread_ids(config.data, [id_ for id_, _ in _training_rows(config)])
    except RLLoopError:
        return []


def _are_files(corpora: Sequence[JudgedRows]) -> bool:
    return not any(rows.config.source.startswith("embedded:") for rows in corpora)


def _training_rows(config: RLRunConfig) -> list[tuple[str, Mapping[str, Any]]]:
    """Id, as the run names it, and columns of every row."""
    return [
        (f"{rows.prefix}{row.id}", row.columns)
        for rows in config.corpora
        for row in read_rows(rows.config)
    ]


def _unfit_cautions(config: RLRunConfig) -> Sequence[ConfigProblem]:
    """Rows that earn nothing where others do, and those of the lenient verifier."""
    return [
        found.as_problem(
            rows.verifier_setting if found.verifier in rows.verifiers else "format.lenient",
            corpus.answer_column,
        )
        for rows in config.sources
        for corpus in [_known(rows, config) or Corpus(0)]
        for found in corpus.unfit
        if found.verifier not in rows.verifiers or not found.refuses
    ]


def _known(rows: JudgedRows, config: RLRunConfig) -> Corpus | None:
    """None for a file that is too large to look at, or gone: that is refused at the door."""
    if rows.config.limit is None and _is_large(rows.config):
        return None
    try:
        return _corpus(rows, config)
    except RLLoopError:
        return None


def _corpus(rows: JudgedRows, config: RLRunConfig) -> Corpus:
    """What a run has of a source. Raises RLLoopError where it cannot be read."""
    source = rows.config
    lenient = config.format.lenient if rows.trains else None
    asked = tuple(dict.fromkeys(filter(None, (*rows.verifiers, lenient))))
    if not source.source.startswith("embedded:"):
        return survey(source, asked)
    if source.source not in EMBEDDED_TASKS:
        known = ", ".join(EMBEDDED_TASKS)
        problem = "is not an embedded data set"
        raise RLLoopError.of("data.source", source.source, problem, f"known: {known}")
    count = EMBEDDED_TASKS[source.source]
    unfit = unfit_for(asked, EMBEDDED_ANSWER)
    return Corpus(min(count, source.limit) if source.limit else count, unfit)


def as_run(config: GRPOConfig) -> RLRunConfig:
    """A plain loop's config as that of a run that takes every group as it comes: no collapse guard,
    no warnings, no headroom check, no group left out or refilled.
    """
    if isinstance(config, RLRunConfig):
        return config
    return RLRunConfig(
        **config.model_dump(),
        force_headroom=True,
        guard=GuardConfig(collapse=False),
        warnings=WarningsConfig(enabled=False),
        objective=ObjectiveConfig(zero_signal="keep"),
    )


def corpus_problems(
    rows: int, config: GRPOConfig, left_out: Sequence[str] = ()
) -> Sequence[ConfigProblem]:
    """The corpus floor (RL-05), asked at enqueue and again by the loop; `left_out`: what is known
    of rows that are not counted.
    """
    if rows >= config.corpus_min:
        return []
    problem = f"has {rows} rows, under the floor corpus_min={config.corpus_min}"
    problem = "; ".join([problem, *left_out])
    return [ConfigProblem("data", None, problem, "add rows, or lower corpus_min knowingly")]


def alike_problem(rows: int) -> ConfigProblem:
    """A corpus that nothing can be held out of, whatever the share."""
    problem = f"has {rows} rows that all ask the same question: no row can be held out"
    return ConfigProblem("data", None, problem, "add rows with other questions")


def ranks_problems(config: RLRunConfig, ranks: int) -> Sequence[ConfigProblem]:
    """What so many learner ranks cannot ask of servers."""
    if not config.serves:
        return []
    adapters = config.sends_adapters
    return ranked_serving_problems(config.vllm, ranks, "vllm", sends_adapters=adapters)


def _follows(config: RLRunConfig, result: Mapping[str, Any], run: Path) -> FollowUp | None:
    """What the bench that decides calls a gain is quantized; a pool that rose is none."""
    if config.requant is None or result.get("verdict") != "gain":
        return None
    raw = {"base": str(run), **config.requant.model_dump(mode="json")}
    return FollowUp("requant", raw, "its verdict is a gain")


_LOWERS = {
    "weights": "base",
    "gradients": "tuning",
    "optimizer": "tuning",
    "reference": "kl_coef",
    "kv_cache": "rollout_batch",
    "serving": "rollout_batch",
    "logits": "optim.logit_chunk_mib",
    "activations": "micro_batch",
    "checkpoints": "save_every",
}


KIND = Kind(
    name="rl_run",
    summary="Reinforcement learning from verifiable rewards, with a held-out gate.",
    config=RLRunConfig,
    entry="engine.rl.rl_run:run",
    inputs=_inputs,
    seed="seed",
    split_seed="data.split_seed",
    model="base",
    steps="max_steps",
    saves="save_every",
    indifferent=frozenset({"save_every", "keep_checkpoints", "threads", "requant", "evaluate"}),
    check=_check,
    look=Look("engine.rl.look:look", _asks),
    cautions=_cautions,
    examples=prompt_examples,
    sweep_cautions=_sweep_cautions,
    rows="data.source",
    asks_first=(
        *("base", "tuning", "data.source", "verifier", "lr", "max_steps"),
        *("tasks_per_step", "group_k", "max_new_tokens"),
    ),
    smaller=("micro_batch", "rollout_batch", "max_new_tokens"),
    envelope=lambda config: rl_envelope(config, _rows(config)),
    lowers=_LOWERS,
    checkpoints=rl_checkpoints,
    evaluate=lambda config: config.evaluate,
    serves=lambda config: config.serves,
    needs_server_program=lambda config: config.needs_server_program,
    follows=_follows,
)
