"""A model's or an adapter's folder before anything loads it: regular files, of a size that can be
read, whose JSON is JSON.

A loader would wait for ever for whoever writes into a pipe, and read a document of any size. Knows
no architecture.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from engine.contract.documents import read_json_object, why
from engine.contract.errors import ConfigProblem
from engine.contract.sources.file_looks import once_a_file

_OBJECTS = frozenset(
    {
        *("config.json", "generation_config.json", "adapter_config.json", "tokenizer_config.json"),
        *("special_tokens_map.json", "added_tokens.json", "chat_template.json"),
        *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
    }
)
"""JSON that loaders read, beside the index of the weights: each is an object."""
_LARGE = frozenset({"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"})
"""As large as a vocabulary, and read by the tokenizer's own library alone."""
_WEIGHTS = frozenset({".safetensors", ".bin"})
_MOST_LARGE = 1024**3


def folder_problems(
    field: str, folder: Path, *, marker: str, what: str, weights: Sequence[str] = ("*.safetensors",)
) -> Sequence[ConfigProblem]:
    """What is wrong with a folder that a setting names: `marker` says what it is, `weights` how
    the files are called that hold it.
    """
    if not folder.is_dir():
        return [ConfigProblem(field, str(folder), "does not exist", f"name a {what} folder")]
    if not (folder / marker).exists():
        problem = f"is no {what} folder: {marker} is missing"
        return [ConfigProblem(field, str(folder), problem, f"name a folder saved as a {what}")]
    try:
        wrong = next(filter(None, map(_wrong, sorted(folder.iterdir()))), None)
    except OSError as error:
        wrong = f"it {why(error)}"
    if wrong is not None:
        problem = f"is no {what} folder that can be read: {wrong}"
        return [ConfigProblem(field, str(folder), problem, "put that file right, or name another")]
    if not any(any(folder.glob(pattern)) for pattern in weights):
        problem = f"is no {what} folder: it holds no weights"
        return [ConfigProblem(field, str(folder), problem, f"name a folder with {weights[0]}")]
    return []


def is_bare_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter alone, where a whole model is looked for."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").exists()


def _wrong(entry: Path) -> str | None:
    """What is wrong with one entry of the folder, with its name in front."""
    is_json = entry.name in _OBJECTS or entry.name.endswith(".index.json")
    is_large = entry.name in _LARGE or entry.suffix in {".jinja", ".model"}
    if not (is_json or is_large or entry.suffix in _WEIGHTS):
        return None  # no loader looks at it
    try:
        found = entry.stat()
    except OSError:
        return None  # a link that leads nowhere: missing, as its reader will say
    reason = None
    if not stat.S_ISREG(found.st_mode):
        reason = "is no regular file"
    elif is_large and found.st_size > _MOST_LARGE:
        reason = f"has {found.st_size / 1e9:.3g} GB"
    elif is_json:
        reason = _no_json(entry)
    return None if reason is None else f"{entry.name} {reason}"


@once_a_file
def _no_json(path: Path) -> str | None:
    """Why a file is no JSON object; None for one that is."""
    try:
        read_json_object(path)
    except OSError as error:
        return why(error)
    return None
