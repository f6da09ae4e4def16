"""Logs of Inspect (inspect_ai): `.json` as it stands, `.eval` by its own library where that is
installed.

A sample says its target, why the model stopped, and what each scorer gave; of several targets the
first is judged by.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.contract.documents import parse_json, read_file, why
from engine.contract.known import real, whole
from engine.evaluate.completions import MOST_COMPLETIONS, Completion, refuse, split_columns
from engine.rewards.judgement import Reason, Verdict

MOST_BYTES = 1024**3
"""Of a log, a compressed one unpacked: four samples with all their events take a megabyte."""
_CUT = frozenset({"max_tokens", "model_length"})
_SCORES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer; as Inspect's own `value_to_float` counts them."""
_RIGHT = 0.5
_ATTACHED = "attachment://"


def read(path: Path) -> tuple[Sequence[Completion], Sequence[str]]:
    """The samples, and what was left out of them. Raises RLLoopError."""
    log = _unpacked(path) if path.suffix == ".eval" else _document(path)
    samples = log.get("samples") if isinstance(log, Mapping) else None
    if not isinstance(samples, list) or len(samples) > MOST_COMPLETIONS:
        remedy = "name a whole log of inspect eval, not its header"
        refuse(path, "is no log of Inspect with samples in it", remedy)
    if not all(isinstance(one, Mapping) for one in samples):
        refuse(path, "has a sample that is no object", "name a log as inspect eval wrote it")
    ended = [one for one in samples if _text(one) is not None]
    said = []
    if len(ended) < len(samples):
        said.append(f"{len(samples) - len(ended)} samples ended in an error and have no completion")
    several = sum(isinstance(one.get("target"), list) and len(one["target"]) > 1 for one in ended)
    if several:
        said.append(f"{several} samples accept several targets: they are judged by the first")
    return [_completion(path, one) for one in ended], said


def _document(path: Path) -> Any:
    try:
        return parse_json(read_file(path, MOST_BYTES), constant=lambda _: None)
    except OSError as error:
        refuse(path, why(error), "name a whole log of inspect eval")


def _unpacked(path: Path) -> Any:
    """Its entries may be compressed in a way that Python 3.11 does not read."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        refuse(path, f"is no .eval log: {error}", "name a whole log of inspect eval")
    if size > MOST_BYTES:
        refuse(path, f"has {size:,} bytes unpacked; at most {MOST_BYTES:,} are read", _CONVERT)
    try:
        from inspect_ai.log import read_eval_log  # noqa: PLC0415 - where it is installed
    except ImportError:
        refuse(path, "is read by inspect_ai, which is not installed", _CONVERT)
    try:
        log = read_eval_log(str(path), resolve_attachments=True)
        return log.model_dump(mode="json", include={"samples"})
    except Exception as error:  # noqa: BLE001 - a library's own: whatever it says of the file
        refuse(path, f"cannot be read by inspect_ai: {error}", _CONVERT)


_CONVERT = "pip install inspect_ai, or: inspect log convert FILE --to json --output-dir FOLDER"


def _text(sample: Mapping[str, Any]) -> str | None:
    """What the model wrote; None where it wrote nothing because something broke."""
    output = sample.get("output")
    choice = _choice(sample)
    found = output.get("completion") if isinstance(output, Mapping) else None
    if not choice:
        return None
    return _resolved(sample, found if isinstance(found, str) else _content(choice.get("message")))


def _choice(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    output = sample.get("output")
    choices = output.get("choices") if isinstance(output, Mapping) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else {}


def _content(message: Any) -> str:
    """Of a message: a text, or pieces of which some are."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    pieces = content if isinstance(content, list) else []
    texts = (piece.get("text") for piece in pieces if isinstance(piece, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _resolved(sample: Mapping[str, Any], text: str) -> str:
    """A long text stands beside the sample, under its hash."""
    attached = sample.get("attachments")
    if not text.startswith(_ATTACHED) or not isinstance(attached, Mapping):
        return text
    found = attached.get(text.removeprefix(_ATTACHED))
    return found if isinstance(found, str) else text


def _completion(path: Path, sample: Mapping[str, Any]) -> Completion:
    id_, target, metadata = sample.get("id"), sample.get("target"), sample.get("metadata")
    if not isinstance(id_, str | int):
        refuse(path, f"has a sample without an id: {id_!r}", "name a log as inspect eval wrote it")
    golds = [one for one in (target if isinstance(target, list) else [target]) if one is not None]
    return Completion(
        str(id_),
        (whole(sample.get("epoch")) or 1) - 1,
        _prompt(sample),
        _text(sample) or "",
        str(golds[0]) if golds else "",
        _choice(sample).get("stop_reason") in _CUT,
        split_columns(metadata) if isinstance(metadata, Mapping) else {},
        judged=_judged(sample),
    )


def _prompt(sample: Mapping[str, Any]) -> str:
    given = sample.get("input")
    if isinstance(given, str):
        return _resolved(sample, given)
    turns = given if isinstance(given, list) else []
    return "\n".join(_resolved(sample, _content(turn)) for turn in turns)


def _judged(sample: Mapping[str, Any]) -> dict[str, tuple[Verdict, bool | None]]:
    """By each scorer whose score is one number."""
    scores = sample.get("scores")
    found: dict[str, tuple[Verdict, bool | None]] = {}
    for name, score in scores.items() if isinstance(scores, Mapping) else ():
        said = score if isinstance(score, Mapping) else {}
        value, answer = _number(said.get("value")), said.get("answer")
        if value is not None:
            read = answer if isinstance(answer, str) and answer else None
            found[str(name)] = (_verdict(value, read), value >= _RIGHT)
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _SCORES.get(value)
    return float(value) if isinstance(value, bool) else real(value)


def _verdict(value: float, answer: str | None) -> Verdict:
    if value >= _RIGHT:
        return Verdict(value, answer, Reason.CORRECT)
    return Verdict(value, answer, Reason.UNPARSED if answer is None else Reason.WRONG)
