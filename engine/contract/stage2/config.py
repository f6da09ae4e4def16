"""The whole stage-2 config: `custom.trainer_variant` selects the trainer, each section is typed.

Every rule fails when the config is read, naming field, value and remedy. Knows no device and no
file; `world_size_problems` asks what only a running job can tell.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from engine.contract.documents import parse_yaml
from engine.contract.errors import MOST_PROBLEMS, ConfigError, ConfigProblem
from engine.contract.paths import located
from engine.contract.problems import nearest, problems_of
from engine.contract.ranks import RankCount, ranked_serving_problems
from engine.contract.section import StrictSection, absent, refusal, refusals
from engine.contract.stage2.coord_soft_ce_w1 import CoordSoftCEW1Config
from engine.contract.stage2.detection import BEST_BY, BestBy, DetectionConfig
from engine.contract.stage2.record_form import RecordForm, RecordSource
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.contract.stage2.stage2_ab import Stage2ABConfig
from engine.contract.stage2.training_arguments import TRAINING_ARGUMENTS, objection


class ExtraChannelBConfig(StrictSection):
    """Another spelling of two knobs of `stage2_ab.channel_b`."""

    mode: Literal["step"] | None = None
    rollouts_per_step: int | None = Field(None, ge=1)


class ExtraStage2ABConfig(StrictSection):
    """Another spelling; `stage2_ab` is the canonical one."""

    channel_b: ExtraChannelBConfig = ExtraChannelBConfig()


class ExtraConfig(StrictSection):
    """What the trainers read beside the harness's own settings."""

    rollout_matching: RolloutMatchingConfig = Field(default_factory=absent, validate_default=True)
    """Rollouts and matching."""
    stage2_ab: SkipJsonSchema[ExtraStage2ABConfig | None] = Field(None, exclude=True)


def _ignored(_: Any) -> None:
    return None


class CustomConfig(StrictSection):
    """Which trainer, and its extras."""

    trainer_variant: Literal["stage2_ab_training", "rollout_matching_sft"]
    """The trainer."""
    extra: ExtraConfig = Field(default_factory=absent, validate_default=True)
    """Rollouts and matching."""
    coord_soft_ce_w1: CoordSoftCEW1Config = CoordSoftCEW1Config()
    """The coord loss of `rollout_matching_sft`."""
    coord_loss: Annotated[SkipJsonSchema[None], BeforeValidator(_ignored)] = Field(
        None, exclude=True
    )


EMBEDDED_MODELS = ("embedded:qwen3-vl-tiny",)
"""Models built on the spot, with random weights: no download. They need a `warmup`."""
EMBEDDED_DATA = ("embedded:shapes",)
"""Data sets drawn on the spot; validation and report rows are scenes that never train."""


class ModelConfig(StrictSection):
    """The model to train, and how."""

    path: str | None = None
    """A stage-1 checkpoint: a folder, a hub id, or `embedded:qwen3-vl-tiny`."""
    dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    """Precision of the weights; auto keeps the checkpoint's."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention kernel."""
    tuning: Literal["full", "lora", "dora"] = "dora"
    """All weights, or low-rank matrices on every linear layer of the language model (with `lora`
    on stacked experts too); the note ADAPTER_REACH says what share of it."""
    lora_rank: int = Field(16, ge=1)
    """Rank of the low-rank matrices."""
    lora_alpha: int = Field(32, ge=1)
    """Their scale is lora_alpha / lora_rank."""
    max_pixels: int | None = Field(None, ge=1, lt=2**31)
    """A picture with more pixels (width × height) is made smaller; by default the model's own."""
    min_pixels: int | None = Field(None, ge=1, lt=2**31)
    """A picture with fewer is made larger; by default the model's own."""

    @model_validator(mode="after")
    def _pixels_in_order(self) -> Self:
        if self.min_pixels and self.max_pixels and self.min_pixels > self.max_pixels:
            raise refusal(
                ["min_pixels"],
                self.min_pixels,
                f"is more than max_pixels {self.max_pixels}; lower it, or raise max_pixels",
            )
        return self

    @field_validator("path")
    @classmethod
    def _absolute_folder(cls, path: str | None) -> str | None:
        """A hub id stays as it is."""
        if path is None or path.startswith("embedded:"):
            return path
        folder = located(path)
        named = folder.exists() or path.startswith(("/", ".", "~"))
        return str(folder) if named else path


class DataConfig(StrictSection):
    """Records with images, objects, width and height: one JSON object a line, or COCO files."""

    train_jsonl: str | None = None
    """Records to train on: a JSONL file, or `embedded:shapes`."""
    val_jsonl: str | None = None
    """Records that pick the checkpoint, by rollout F1; with embedded data, scenes of their own."""
    report_jsonl: str | None = None
    """Records scored once, at the end: step 0 against the checkpoint that was picked."""
    train_limit: int | None = Field(None, ge=1)
    """Use only the first so many records."""
    val_limit: int | None = Field(None, ge=1)
    """Use only the first so many records."""
    report_limit: int | None = Field(None, ge=1)
    """Use only the first so many records."""
    source: RecordSource = "jsonl"
    """How the files are written: one JSON object a line, or COCO's one JSON with images,
    annotations and categories (`coco`), converted as it is read."""
    image_dirs: list[str] = Field([], max_length=16)
    """Folders that the pictures of a COCO file are looked for in, in this order; by default its
    own."""
    prompt: str = Field("Locate every object and answer in JSON.", min_length=1)
    """What is asked where a record brings no messages of its own."""

    @field_validator("train_jsonl", "val_jsonl", "report_jsonl")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        return path if path is None or path.startswith("embedded:") else str(located(path))

    @field_validator("image_dirs")
    @classmethod
    def _located(cls, folders: list[str]) -> list[str]:
        return [str(located(folder)) for folder in folders]

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        files = [one for one in (self.train_jsonl, self.val_jsonl, self.report_jsonl) if one]
        drawn = next((one for one in files if one.startswith("embedded:")), None)
        if self.source == "coco" and drawn is not None:
            raise refusal(["source"], "coco", f"is not how {drawn} is written; leave source out")
        if self.source != "coco" and self.image_dirs:
            problem = "says where a COCO file's pictures are; set source: coco, or remove it"
            raise refusal(["image_dirs"], None, problem)
        return self

    @property
    def form(self) -> RecordForm:
        """How its files are read."""
        return RecordForm(self.source, tuple(map(Path, self.image_dirs)))


class WarmupConfig(StrictSection):
    """Supervised training before step 0, for a model that cannot write a box yet."""

    target_f1: float = Field(0.4, gt=0, lt=1)
    """Stop at this rollout F1 on the validation records."""
    max_steps: int = Field(1500, ge=1)
    """Give up here: the run fails when the target was not reached."""
    batch_size: int = Field(32, ge=1)
    """Records per step."""
    lr: float = Field(1e-3, gt=0, lt=1)
    """AdamW's learning rate while warming up."""
    eval_every: int = Field(50, ge=1)
    """Steps between two looks at the validation records."""
    coord_sigma: float = Field(20.0, gt=0)
    """Width in bins of the Gaussian that a coord token's target is softened to."""
    bbox_smoothl1_weight: float = Field(5.0, ge=0)
    """Weight of SmoothL1 on the expected coordinates."""


class TrainingConfig(StrictSection):
    """Batch sizes and packing, and any argument of Transformers' `TrainingArguments`."""

    model_config = ConfigDict(extra="allow")
    further_settings: ClassVar = tuple(TRAINING_ARGUMENTS)

    per_device_train_batch_size: int = Field(1, ge=1)
    """Samples of one forward pass; 1 while packing."""
    gradient_accumulation_steps: int | None = Field(None, ge=1)
    """Forward passes of one update; 1, or what `effective_batch_size` needs."""
    effective_batch_size: int | None = Field(None, ge=1)
    """Samples of one update over all ranks, rounded up to whole forward passes."""
    seed: int = Field(42, ge=0, lt=2**31)
    """Makes order, dropout and rollouts repeatable."""
    packing: bool = False
    """Pack segments up to `global_max_length` after the rollouts."""
    packing_buffer: int = Field(256, ge=1)
    """Most segments that wait for a pack."""
    packing_min_fill_ratio: float = Field(0.5, gt=0, le=1)
    """A pack under this fill is warned of."""
    packing_drop_last: bool = True
    """Drop what waits when training ends: nothing does, each step learns all of its packs."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        extra = self.model_extra or {}
        known = {*TRAINING_ARGUMENTS, *type(self).model_fields}
        unknown = [name for name in extra if name not in TRAINING_ARGUMENTS]
        if unknown:
            like = {name: nearest(name, known, listed=False) for name in unknown[:MOST_PROBLEMS]}
            raise refusals(
                ([name], extra[name], f"is not a setting; {like.get(name, 'remove it')}")
                for name in unknown
            )
        wrong = [
            ([name], value, why)
            for name, value in extra.items()
            if (why := objection(name, value)) is not None
        ]
        if wrong:
            raise refusals(wrong)
        if extra.get("remove_unused_columns"):
            raise refusal(
                ["remove_unused_columns"],
                True,
                "would drop the fields that rollouts are built from; set it to false",
            )
        if not self.packing_drop_last:
            raise refusal(
                ["packing_drop_last"],
                False,
                "has nothing to keep: each step learns all of its packs; leave it out",
            )
        if self.packing and self.per_device_train_batch_size > 1:
            raise refusal(
                ["per_device_train_batch_size"],
                self.per_device_train_batch_size,
                "is 1 with training.packing, whose packs are the batches; set it to 1, and "
                "effective_batch_size to the samples of one update",
            )
        if self.effective_batch_size is not None and self.gradient_accumulation_steps is not None:
            raise refusal(
                ["gradient_accumulation_steps"],
                self.gradient_accumulation_steps,
                "follows from effective_batch_size; remove one of the two",
            )
        return self

    @property
    def passed_on(self) -> dict[str, Any]:
        """The arguments of Transformers that have a value; a null stands for the default."""
        given = self.model_extra or {}
        return {name: value for name, value in given.items() if value is not None}

    def accumulation_steps(self, world_size: int) -> int:
        """Forward passes of one update, for so many ranks."""
        if self.effective_batch_size is None:
            return self.gradient_accumulation_steps or 1
        return math.ceil(
            self.effective_batch_size / (self.per_device_train_batch_size * world_size)
        )


class Stage2Config(StrictSection):
    """A stage-2 run: `stage2_ab_training` or `rollout_matching_sft`."""

    custom: CustomConfig
    """Which trainer, and its extras."""
    stage2_ab: Stage2ABConfig | None = None
    """Knobs of `stage2_ab_training`; required for it."""
    model: ModelConfig = ModelConfig()
    """The model to train."""
    data: DataConfig = DataConfig()
    """The records."""
    training: TrainingConfig = Field(default_factory=absent, validate_default=True)
    """The trainer's arguments."""
    detection: DetectionConfig = DetectionConfig()
    """How boxes are scored in evaluations."""
    warmup: WarmupConfig | None = None
    """Supervised warm-up before step 0; none by default."""
    global_max_length: int | None = Field(None, ge=1)
    """Longest sequence, and the capacity of a pack."""
    keep_checkpoints: int = Field(3, ge=1)
    """How many recent checkpoints stay; the selected one always does."""
    report_min: int = Field(30, ge=1)
    """Fewest report records for a verdict."""
    ranks: RankCount = 1
    """Learner processes: they share each step's samples, rank r on device r of the lane."""
    threads: int | None = Field(None, ge=1)
    """CPU threads for torch, of each rank; all cores by default, shared among the ranks."""

    @model_validator(mode="before")
    @classmethod
    def _adopt_other_spelling(cls, raw: Any) -> Any:
        """`custom.extra.stage2_ab.channel_b.*` fills what `stage2_ab.channel_b` leaves unsaid."""
        other = _at(raw, "custom", "extra", "stage2_ab", "channel_b")
        canonical = _at(raw, "stage2_ab")
        if other is None or canonical is None:
            return raw
        channel_b = canonical.get("channel_b", {})
        if not isinstance(channel_b, Mapping):
            return raw
        known = {key: other[key] for key in ExtraChannelBConfig.model_fields if key in other}
        adopted = copy.deepcopy(dict(raw))
        adopted["stage2_ab"] = {**canonical, "channel_b": known | {**channel_b}}
        return adopted

    @model_validator(mode="after")
    def _one_value_in_both_spellings(self) -> Self:
        other = self.custom.extra.stage2_ab
        if other is None or self.stage2_ab is None:
            return self
        for name in other.channel_b.model_fields_set:
            here, there = getattr(self.stage2_ab.channel_b, name), getattr(other.channel_b, name)
            if here != there:
                raise refusal(
                    ["stage2_ab", "channel_b", name],
                    here,
                    f"differs from custom.extra.stage2_ab.channel_b.{name} {there!r}; "
                    "keep stage2_ab.channel_b and remove the other",
                )
        return self

    @model_validator(mode="after")
    def _sections_of_the_variant(self) -> Self:
        variant = self.custom.trainer_variant
        if variant == "stage2_ab_training":
            if self.stage2_ab is None:
                raise refusal(
                    ["stage2_ab"],
                    None,
                    "is missing with trainer_variant stage2_ab_training; "
                    "add it with stage2_ab.schedule.b_ratio",
                )
            return self
        for location, section in (
            (["stage2_ab"], self.stage2_ab),
            (["custom", "extra", "stage2_ab"], self.custom.extra.stage2_ab),
        ):
            if section is not None:
                raise refusal(
                    location,
                    None,
                    f"is not read by trainer_variant {variant}; "
                    "remove it, or set trainer_variant: stage2_ab_training",
                )
        return self

    @model_validator(mode="after")
    def _pipeline_can_run(self) -> Self:
        if self.stage2_ab is None or not self.stage2_ab.channel_b.enable_pipeline:
            return self
        rollouts = self.custom.extra.rollout_matching
        lacks = None
        if rollouts.rollout_backend != "vllm" or rollouts.vllm.mode != "server":
            lacks = (
                "would roll out and train on the same device: it needs "
                "custom.extra.rollout_matching.rollout_backend vllm with vllm.mode server"
            )
        elif not self.training.packing:
            lacks = "learns pack by pack while servers draw: it needs training.packing: true"
        elif rollouts.post_rollout_pack_scope != "micro":
            lacks = (
                "learns before a step's rollouts are all there: it needs "
                "custom.extra.rollout_matching.post_rollout_pack_scope: micro"
            )
        if lacks is not None:
            said = ["stage2_ab", "channel_b", "enable_pipeline"]
            raise refusal(said, True, f"{lacks}; set enable_pipeline: false, or that")
        return self

    @model_validator(mode="after")
    def _packs_have_a_capacity(self) -> Self:
        if self.training.packing and self.global_max_length is None:
            raise refusal(
                ["global_max_length"],
                None,
                "is missing with training.packing; set it to the longest sequence in tokens",
            )
        return self

    @property
    def eval_decode_batch_size(self) -> int:
        """Answers of one decode call of an evaluation, of which no gradient is asked."""
        given = self.training.passed_on.get("per_device_eval_batch_size", 1)
        return max(self.custom.extra.rollout_matching.answers_a_call, int(given))

    def answers_at_once(self, world_size: int) -> int:
        """Answers that a server is asked for at once: a step's, or an evaluation's."""
        return max(self.rollouts_per_step(world_size), self.eval_decode_batch_size)

    @property
    def serves(self) -> bool:
        """Whether vLLM generates the rollouts."""
        return self.custom.extra.rollout_matching.rollout_backend == "vllm"

    @property
    def needs_server_program(self) -> bool:
        """Whether the run starts vLLM itself: servers that are named are others' to run."""
        return self.serves and not self.custom.extra.rollout_matching.vllm.external

    @property
    def seed(self) -> int:
        """The run's, for whoever asks a config of any kind."""
        return self.training.seed

    @property
    def ab(self) -> Stage2ABConfig:
        """Section `stage2_ab`, which every `stage2_ab_training` has."""
        assert self.stage2_ab is not None
        return self.stage2_ab

    @property
    def best_by(self) -> BestBy:
        """What picks the checkpoint: `training.metric_for_best_model`, F1 by default."""
        named = str(self.training.passed_on.get("metric_for_best_model", BEST_BY[0]))
        return next(one for one in BEST_BY if one == named.removeprefix("eval_"))

    @property
    def rollout_share(self) -> float:
        """Share of steps that roll out: all of rollout matching."""
        return 1.0 if self.stage2_ab is None else self.stage2_ab.schedule.b_ratio

    def rollouts_per_step(self, world_size: int) -> int:
        """Raw rollouts of a step that rolls out, over all ranks, the default resolved."""
        own = self.stage2_ab.channel_b.rollouts_per_step if self.stage2_ab else None
        if own is not None:
            return own
        training = self.training
        per_pass = training.per_device_train_batch_size * world_size
        return per_pass * training.accumulation_steps(world_size)


def read_config(raw: Mapping[str, Any]) -> Stage2Config:
    """Raises ConfigError with every problem found."""
    try:
        return Stage2Config.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, Stage2Config)) from error


def read_yaml(text: str) -> Stage2Config:
    """A YAML document. Raises ConfigError with every problem found."""
    return read_config(parse_yaml(text))


def world_size_problems(config: Stage2Config, world_size: int) -> Sequence[ConfigProblem]:
    """Rules that hold only for so many learner ranks."""
    if world_size < 2 or not config.serves:
        return []
    vllm, where = config.custom.extra.rollout_matching.vllm, "custom.extra.rollout_matching.vllm"
    return ranked_serving_problems(
        vllm, world_size, where, sends_adapters=vllm.sync_mode == "adapter"
    )


def asked_alike(config: Stage2Config) -> dict[str, Any]:
    """What must be equal, beside the records, for two evaluations to compare picture by picture."""
    rollouts = config.custom.extra.rollout_matching
    return {
        "prompt": config.data.prompt,
        "max_pixels": config.model.max_pixels,
        "min_pixels": config.model.min_pixels,
        "max_new_tokens": rollouts.max_new_tokens,
        "repetition_penalty": rollouts.repetition_penalty,
        "score": config.detection.score,
    }


def _at(raw: Any, *path: str) -> Mapping[str, Any] | None:
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, Mapping) else None
