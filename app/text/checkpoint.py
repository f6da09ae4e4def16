"""The checkpoint that a run chose: where it is, what it is, and a command for each use of it.

The same on the run page, in `cockpit show` and over REST. Knows no page.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from app.text import wording
from engine.contract.base_model import EMBEDDED_BASES
from engine.contract.documents import read_json_object
from engine.contract.known import whole
from engine.contract.quantized import GGUF_ARCHITECTURES
from engine.contract.run_dir import COMPLETE, RunDir, step_of
from worker.read.jobs import JobView

PASSK, REQUANT = "eval_rerun", "requant"
"""Kinds that train nothing: one scores, one writes a model in several formats."""
_ADAPTER = "adapter_config.json"


class Checkpoint(BaseModel):
    """What `selected` of a run directory leads to."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    step: int
    path: Path
    """What Transformers, or for an adapter PEFT, loads."""
    published: bool
    """The verdict chose it; False while it is the best gate's."""
    what: str
    """`step 6, an adapter`; `step 0, the base, a whole model`."""
    bytes: int
    commands: dict[str, str]
    """A line each to load (Python), merge, serve, continue and export it (a shell)."""

    @property
    def state(self) -> str:
        """How it was chosen, and its size."""
        how = "chosen and published" if self.published else "of the best gate, not published"
        return f"{wording.disk(self.bytes)}, {how}"


def checkpoint_of(job: JobView) -> Checkpoint | None:
    """None while a run has none, and after it was thrown away. A requant has one for each format,
    which its table names.
    """
    folder = _selected(job)
    step = None if folder is None else step_of(folder.name)
    if folder is None or step is None:
        return None
    inside = next(
        (folder / name for name in ("model", "adapter") if (folder / name).is_dir()), None
    )
    if inside is None and job.kind == PASSK:  # its marks hold no weights
        return None
    path = inside or folder
    published = whole(job.result.get("published_step")) == step
    return Checkpoint(
        step=step,
        path=path,
        published=published,
        what=_what(path, step, published=published),
        bytes=_size(path),
        commands=_commands(job, path, step, published=published),
    )


def _selected(job: JobView) -> Path | None:
    if job.kind == REQUANT:
        return None
    try:
        return RunDir(Path(job.run_dir)).selected.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _what(path: Path, step: int, *, published: bool) -> str:
    base = ", the base" if published and step == 0 else ""
    return f"step {step}{base}, {'an adapter' if _is_adapter(path) else 'a whole model'}"


def _is_adapter(path: Path) -> bool:
    return (path / _ADAPTER).is_file()


def _size(path: Path) -> int:
    """Of the files at its top level, as a model folder has them."""
    try:
        return sum(entry.stat().st_size for entry in path.iterdir() if entry.is_file())
    except OSError:
        return 0


def _commands(job: JobView, path: Path, step: int, *, published: bool) -> dict[str, str]:
    """A job's number alone is what it published."""
    named = str(job.id) if published else f"{job.id}@{step}"
    target = f"models/{_name(job)}-step-{step}"
    merge = f"cockpit merge {named} --to {target}"
    of_text = path.name in {"model", "adapter"}
    after_merge = f"{merge} && " if _is_adapter(path) else ""
    model = target if _is_adapter(path) else shlex.quote(str(path))
    return {
        "load": _load(job, path, of_text=of_text, merge=after_merge, target=target),
        "merge": merge,
        "serve": f"{after_merge}vllm serve {model} --port 8001",
        "continue": _go_on(named, of_text=of_text, merge=after_merge, target=target),
        "export": _export(job, path, named) if of_text else merge,
    }


def _load(job: JobView, path: Path, *, of_text: bool, merge: str, target: str) -> str:
    """In Python; what PEFT finds no base for is merged first."""
    auto = "AutoModelForCausalLM" if of_text else "AutoModelForImageTextToText"
    if not _is_adapter(path):
        return f"from transformers import {auto} as M; model = M.from_pretrained({_quoted(path)})"
    if of_text and _base(job, path) not in EMBEDDED_BASES:
        own = "AutoPeftModelForCausalLM"
        return f"from peft import {own} as M; model = M.from_pretrained({_quoted(path)})"
    base = _base(job, path)
    if of_text or base is None:
        read = f"from transformers import {auto} as M; M.from_pretrained({_quoted(target)})"
        return f"{merge}python -c {shlex.quote(read)}"
    return (
        f"from peft import PeftModel; from transformers import {auto} as M; "
        f"model = PeftModel.from_pretrained(M.from_pretrained({_quoted(base)}), {_quoted(path)})"
    )


def _quoted(text: str | Path) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def _base(job: JobView, path: Path) -> str | None:
    """The model that an adapter belongs to: that which its run warmed up, else the one it names."""
    warmed = RunDir(Path(job.run_dir)).base
    if (warmed / COMPLETE).is_file():
        return str(warmed)
    told = _read(path / _ADAPTER).get("base_model_name_or_path") or job.config.get("base")
    return told if isinstance(told, str) else None


def _read(path: Path) -> Mapping[str, object]:
    try:
        return read_json_object(path)
    except OSError:
        return {}


def _go_on(named: str, *, of_text: bool, merge: str, target: str) -> str:
    """A run like it that begins where this one ended; stage 2 begins with whole models alone."""
    go_on = f"cockpit enqueue --from {named}"
    return f"{merge}{go_on} --set model.path={target}" if merge and not of_text else go_on


def _export(job: JobView, path: Path, named: str) -> str:
    """In a format of few bits, scored beside the 16-bit model: GGUF where that knows the model."""
    folder = Path(str(_base(job, path))) if _is_adapter(path) else path
    told = _read(folder / "config.json").get("architectures")
    known = isinstance(told, list) and bool(told) and told[0] in GGUF_ARCHITECTURES
    form = "gguf_q8_0" if known else "int8"
    return f"cockpit enqueue requant --set base={named} --set 'formats=[{form}]'"


def _name(job: JobView) -> str:
    """For a folder, without what a shell or a file system would trip over."""
    given = "" if job.name == job.kind else re.sub(r"[^A-Za-z0-9._-]+", "-", job.name).strip("-._")
    return given[:60] or f"job-{job.id}"
