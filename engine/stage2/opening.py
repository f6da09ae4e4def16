"""The model that a run begins with or goes on from: the named one, or the warmed-up base that a
low-rank run keeps beside its checkpoints.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.stage2.config import EMBEDDED_MODELS, Stage2Config
from engine.contract.stage2.precision import UPDATES_ROUNDED, rounded_updates
from engine.models import lora
from engine.models.qwen3_vl import ModelError, VisionModel, add_coord_tokens_command, load
from engine.run.checkpoint import Checkpoint, CheckpointStore, refused, weights_of
from engine.run.pace import busy
from engine.run.ranks import Ranks
from engine.run.recorder import Recorder
from engine.run.session import Attempt
from engine.stage2 import warmed_base
from engine.stage2.corpus import Corpus
from engine.stage2.embedded import files
from engine.stage2.parse.pieces import TokenizerError, TokenPieces
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.warmup import warm_up, warmup_cache
from engine.verdict.verdicts import best_step

LANGUAGE_MODEL = r".*\blanguage_model\b"
"""The text decoder, which alone gets adapters; vision tower and embeddings stay as stage 1 left
them."""


def keeps_base(config: Stage2Config) -> bool:
    """Whether checkpoints belong to a model that only the warm-up of this run made."""
    return config.warmup is not None and config.model.tuning != "full"


def find_checkpoint(store: CheckpointStore, ranks: Ranks) -> Checkpoint | None:
    """The one to go on from; what a killed attempt left half-written is gone.

    A step 0 that was never proven is none: the Trainer would read its weights back, and those equal
    themselves.
    """
    found = store.newest()
    if found is not None and found.step == 0 and not store.run.proof.exists():
        found = None
    ranks.wait()
    if ranks.is_first:
        store.discard_incomplete()
        # of a run that begins anew, all: the Trainer would write into them again
        store.discard_after(-1 if found is None else found.step)
    ranks.wait()
    return found


def open_model(
    attempt: Attempt,
    config: Stage2Config,
    corpus: Corpus,
    ranks: Ranks,
    resumed: Checkpoint | None,
) -> VisionModel:
    """On the GPU when there is one. Raises ModelError, and ConfigError for a base that is gone."""
    if resumed is None or not keeps_base(config):
        return load_folder(config, named_folder(attempt, config, ranks))
    weights: Mapping[str, str] = resumed.state.get("base", {})

    def stands() -> bool:
        if warmed_base.is_whole(attempt.run, weights, attempt.warn):
            return True
        return bool(weights) and ranks.is_first and _rebuilt(attempt, config, corpus, weights)

    if ranks.first_alone(stands):
        return load_folder(config, str(attempt.run.base))
    problem = "does not hold the warmed-up model that this run's adapter was trained on"
    remedy = (
        "bring it back from a copy, or run it again from the beginning: "
        f"cockpit retry {attempt.job.job_id} --fresh"
    )
    raise ConfigError([ConfigProblem("base", str(attempt.run.base), problem, remedy)])


def keep_base(
    attempt: Attempt,
    config: Stage2Config,
    vlm: VisionModel,
    ranks: Ranks,
    *,
    is_new: bool,
) -> dict[str, Any]:
    """What a checkpoint says of the model it belongs to; it stands before the first of them."""
    if not keeps_base(config):
        return {}
    if is_new:
        if ranks.is_first:
            warmed_base.keep(attempt.run, vlm)
        ranks.wait()
    model: Any = vlm.model
    model.name_or_path = str(attempt.run.base)  # PEFT writes it into each adapter's config
    return {"base": weights_of(attempt.run.base)}


def adapted(attempt: Attempt, vlm: VisionModel, config: Stage2Config) -> VisionModel:
    """The model to train as `tuning` says, matrices drawn by the seed; how much of it they reach
    is said. Raises ModelError.
    """
    settings = config.model
    if settings.tuning == "full":
        return vlm
    try:
        model = lora.attach_zero(
            vlm.model,
            rank=settings.lora_rank,
            alpha=settings.lora_alpha,
            seed=config.training.seed,
            dora=settings.tuning == "dora",
            within=LANGUAGE_MODEL,
        )
    except ValueError as error:
        raise ModelError(
            f"model.tuning {settings.tuning!r}: {error}; set model.tuning: full"
        ) from error
    reach = lora.coverage(model, within=LANGUAGE_MODEL)
    say = attempt.warn if reach.share < lora.LITTLE_REACH else attempt.note
    say("ADAPTER_REACH", f"model.tuning: {settings.tuning}: of the language model {reach}")
    return replace(vlm, model=model)


def of_model(vlm: VisionModel) -> dict[str, Any]:
    """For the run card: how much of the language model an adapter reaches, where it has one."""
    if not lora.adapted(vlm.model):
        return {}
    return {"adapter_reach": lora.coverage(vlm.model, within=LANGUAGE_MODEL).as_dict()}


def say_rounded(config: Stage2Config, vlm: VisionModel, alert: Callable[[str, str], None]) -> None:
    """Say where the model's own type rounds updates away."""
    dtype = str(next(vlm.model.parameters()).dtype).removeprefix("torch.")
    rounded = rounded_updates(config, dtype)
    if rounded is not None:
        alert(UPDATES_ROUNDED, rounded.line())


def restore_step_zero(
    recorder: Recorder, config: Stage2Config, reader: PromptReader, corpus: Corpus, ranks: Ranks
) -> bool:
    """The report compares with step 0. A prune or a damage may have taken it meanwhile, and model
    and warm-up give it again; said if they prove no longer the same. Whether it was made anew.
    """
    attempt, store = recorder.attempt, recorder.store
    if recorder.resumed is None or not corpus.report or attempt.run.report.exists():
        return False
    if store.verified(0) is not None and not refused(attempt.run):
        return False
    if config.warmup is not None and not keeps_base(config):
        warm_up(attempt, config, reader, corpus, ranks)

    def make() -> None:
        folder = store.folder(0)
        shutil.rmtree(folder, ignore_errors=True)
        reader.vlm.save(folder)
        scores = recorder.gates("select")
        state = {"heldout": scores.get(0), "selected_step": best_step(scores)}
        recorder.checkpoint(0, state)

    if ranks.is_first:
        store.make_anew(0, make)
    ranks.wait()
    return True


def token_pieces(vlm: VisionModel, config: Stage2Config) -> TokenPieces:
    """Raises TokenizerError without coord tokens, with the command that adds them."""
    try:
        return TokenPieces(vlm.tokenizer)
    except TokenizerError as error:
        command = add_coord_tokens_command(config.model.path or "")
        raise TokenizerError(f"model.path: {error}: {command}") from None


def load_folder(config: Stage2Config, path: str) -> VisionModel:
    """A model folder as the config wants it read. Raises ModelError."""
    with busy("load the model"):
        found = load(
            path,
            dtype=config.model.dtype,
            attn_implementation=config.model.attn_implementation,
            pixels=(config.model.min_pixels, config.model.max_pixels),
        )
        found.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return found


def named_folder(attempt: Attempt, config: Stage2Config, ranks: Ranks | None = None) -> str:
    """What `model.path` stands for, a hub id included; the embedded model is made when asked."""
    path = config.model.path
    assert path is not None, "the kind asks for a model"
    if path not in EMBEDDED_MODELS:
        return path
    cache = Path(attempt.job.cache_dir)
    ranks = ranks or Ranks()
    return str(ranks.first_alone(lambda: files.model_folder(cache, config.training.seed)))


def _rebuilt(
    attempt: Attempt, config: Stage2Config, corpus: Corpus, weights: Mapping[str, str]
) -> bool:
    """Whether the cache of warm-ups still had these weights; then they are kept again."""
    vlm = load_folder(config, named_folder(attempt, config))
    if warmup_cache(attempt, config, vlm, corpus).load_kept() is None:
        return False
    if warmed_base.keep(attempt.run, vlm) != weights:
        return False
    attempt.warn(
        "BASE_RESTORED",
        f"{attempt.run.base} was gone or damaged and is taken from the cache of warm-ups",
    )
    return True
