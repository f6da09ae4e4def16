"""The files of a source: one file, its shards, a folder of them, or what `save_to_disk` wrote."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from engine.contract.documents import UnreadableError, read_json_object
from engine.contract.sources.files import columnar, json_document, json_lines, packed, table
from engine.contract.sources.files.splits import SplitError, chosen, shard_of, split_of

MOST_FILES = 10_000
"""Of one source; more is another folder than was meant."""
_FORMATS = (json_lines, json_document, table, columnar)
ENDINGS = tuple(ending for form in _FORMATS for ending in form.ENDINGS)
_NO_ROWS = frozenset(
    ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json")
)
"""What stands beside the rows of a dataset folder."""


def files_of(source: str, split: str | None) -> Sequence[Path]:
    """Every file that belongs to the source and its split, shards in their order.

    Raises OSError (UnreadableError among them) and SplitError.
    """
    path = Path(source)
    if path.is_dir():
        return _of_folder(path, split)
    if path.exists() or not glob.has_magic(source):
        if split is not None and json_document.ENDINGS[0] not in path.suffixes:
            chosen([split_of(_stem(path))], split)
        return [path]
    files = sorted(one for one in _matching(path) if one.is_file())
    if not files:
        raise UnreadableError("is a pattern that no file matches")
    above = Path(os.path.commonpath(files))
    return _of_split(files, split, above.parent if above.is_file() else above)


def _matching(pattern: Path) -> Iterator[Path]:
    try:
        found = Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
        yield from itertools.islice(found, MOST_FILES)
    except (ValueError, NotImplementedError) as error:
        raise UnreadableError(f"is no pattern for files ({error})") from None


def _of_folder(folder: Path, split: str | None) -> Sequence[Path]:
    if (folder / "dataset_dict.json").is_file():
        return _of_dataset_dict(folder, split)
    if (folder / "state.json").is_file():
        return _saved(folder, split)
    files = sorted(_rows_below(folder))
    if not files:
        raise UnreadableError(f"is a folder without files of rows ({', '.join(ENDINGS)})")
    return _of_split(files, split, folder)


def _rows_below(folder: Path) -> Iterator[Path]:
    count = 0
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            count += 1
            if count > MOST_FILES:
                raise UnreadableError(f"is a folder of more than {MOST_FILES} files")
            if is_rows(name):
                yield Path(above, name)


def is_rows(name: str) -> bool:
    """Whether a file of that name holds rows.

    >>> is_rows("train.jsonl.gz"), is_rows("README.md"), is_rows("dataset_infos.json")
    (True, False, False)
    """
    bare = name.lower().removesuffix(packed.ENDING)
    return bare.endswith(ENDINGS) and bare not in _NO_ROWS and not name.startswith(".")


def _stem(path: Path) -> str:
    name = path.name
    for ending in (packed.ENDING, *ENDINGS):
        name = name[: -len(ending)] if name.lower().endswith(ending) else name
    return name


def _of_split(files: Sequence[Path], split: str | None, below: Path) -> Sequence[Path]:
    """Those of one split. Several subsets side by side are refused: they are other data."""
    found: dict[str, list[Path]] = {}
    for file in files:
        folders = file.relative_to(below).parts[:-1]
        found.setdefault(split_of(_stem(file), folders), []).append(file)
    meant = found[chosen(list(found), split)]
    subsets = sorted({file.relative_to(below).parent for file in meant})
    if len(subsets) > 1:
        shown = ", ".join(map(str, subsets[:8]))
        raise SplitError(
            f"holds that split in {len(subsets)} folders: {shown}",
            "set data.source to one of them",
        )
    _require_shards(meant)
    return meant


def _require_shards(files: Iterable[Path]) -> None:
    """Every shard that the names of the others speak of."""
    shards = [shard for file in files if (shard := shard_of(_stem(file))) is not None]
    for name, count in sorted({(name, count) for name, _, count in shards}):
        there = {index for one, index, of in shards if (one, of) == (name, count)}
        missing = [index for index in range(count) if index not in there]
        if missing:
            shown = ", ".join(f"{name}-{index:05d}-of-{count:05d}" for index in missing[:3])
            raise UnreadableError(f"lacks {len(missing)} of its {count} shards: {shown}")


def _of_dataset_dict(folder: Path, split: str | None) -> Sequence[Path]:
    splits = read_json_object(folder / "dataset_dict.json").get("splits")
    names = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
    if not names:
        raise UnreadableError("is a dataset folder whose dataset_dict.json names no splits")
    return _saved(folder / _one_folder(chosen(names, split)), None)


def _saved(folder: Path, split: str | None) -> Sequence[Path]:
    """The shards of one `Dataset.save_to_disk`."""
    state = read_json_object(folder / "state.json")
    if split is not None and state.get("_split") is not None:
        chosen([str(state["_split"])], split)
    if state.get("_indices_data_files"):
        problem = "is a dataset saved with an index over its rows"
        raise UnreadableError(f"{problem}; save it after dataset.flatten_indices()")
    listed = state.get("_data_files")
    names = [_file_name(one) for one in listed] if isinstance(listed, list) else []
    if not names:
        raise UnreadableError("is a dataset folder whose state.json names no files")
    return [folder / name for name in names]


def _file_name(entry: object) -> str:
    name = entry.get("filename") if isinstance(entry, Mapping) else None
    if not isinstance(name, str):
        raise UnreadableError("is a dataset folder whose state.json names no files")
    return _one_folder(name)


def _one_folder(name: str) -> str:
    """A name that leads nowhere else."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise UnreadableError(f"is a dataset folder that names a file outside it ({name[:60]!r})")
    return name
