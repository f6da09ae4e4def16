"""Microscope: each token's role and weight, each entry's match or reason of drop, for one rollout.

A rollout file is one JSON object: `response_token_ids`, `objects` (a training record's),
`tokenizer` (a folder with tokenizer.json), and optionally `prompt_token_ids` and `config` (a
stage-2 config). Knows no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.contract.documents import read_json_object, why
from engine.contract.errors import NightlaneError
from engine.contract.sources.ground_truth import read_objects
from engine.contract.stage2.config import read_config
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.contract.stage2.stage2_ab import SemanticDescGateConfig
from engine.stage2.inspect import shown
from engine.stage2.inspect.roles import Role, b3_roles, y_train_roles
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import JudgedRollout, judge, judge_metrics
from engine.stage2.target.segments import CEWeights, Segment, build_targets
from engine.stage2.taught import AB_SERIES


class InspectError(NightlaneError):
    """A file that holds no rollout: what is wrong with it, what to do."""


def read_record(path: Path) -> dict[str, Any]:
    """The file's JSON object. Raises InspectError."""
    try:
        record = read_json_object(path)
    except OSError as error:
        raise InspectError(f"{why(error)}; name a file with one JSON object") from error
    for name in ("response_token_ids", "prompt_token_ids"):
        ids = record.get(name, [])
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise InspectError(f"{name} is not a list of whole numbers; give token ids")
    if not isinstance(record.get("tokenizer", ""), str):
        raise InspectError("tokenizer is not a text; give a folder with tokenizer.json")
    if "response_token_ids" not in record:
        raise InspectError("has no response_token_ids; give the rollout's token ids")
    return record


def load_pieces(folder: Path | str | None) -> TokenPieces:
    """The pieces of a tokenizer folder. Raises InspectError or TokenizerError."""
    if folder is None:
        raise InspectError("names no tokenizer; add it, or give --tokenizer DIR")
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise InspectError(f"{path} does not exist; name a folder with a fast tokenizer")
    try:
        return TokenPieces(Tokenizer.from_file(str(path)))
    except NightlaneError:
        raise
    except Exception as error:
        raise InspectError(f"{path} is no tokenizer: {error}; save it again") from error


def inspect(record: Mapping[str, Any], pieces: TokenPieces) -> dict[str, Any]:
    """Everything that stage-2 makes of one rollout, as plain data."""
    gt = read_objects(record)
    config, gate, weights = _settings(record.get("config"))
    ids = record["response_token_ids"]
    (rollout,) = judge([(ids, gt)], pieces, config, gate)
    prompt_ids = record.get("prompt_token_ids", [])
    targets = build_targets(prompt_ids, rollout, weights, pieces)
    return {
        "invalid": rollout.parsed.invalid,
        "truncated": rollout.parsed.truncated,
        "entries": shown.entries(rollout),
        "objects": shown.objects(rollout),
        "rollout": _rollout_rows(ids, rollout, pieces),
        "b2": None
        if targets.b2 is None
        else _segment_rows(targets.b2, y_train_roles(rollout, pieces)[:-1], pieces),
        "b3": _segment_rows(targets.b3, b3_roles(rollout, pieces), pieces),
        "metrics": judge_metrics([rollout], AB_SERIES) | gate.metrics(AB_SERIES),
    }


def as_text(report: Mapping[str, Any]) -> str:
    """The report for a terminal."""
    lines = [_verdict_line(report), "", "entries"]
    lines += [_entry_line(entry) for entry in report["entries"]] or ["  none"]
    for name in ("rollout", "b2", "b3"):
        lines += ["", name]
        lines += _table(report[name]) if report[name] else ["  none"]
    return "\n".join(lines)


def _settings(raw: Any) -> tuple[RolloutMatchingConfig, DescGate, CEWeights]:
    """From a stage-2 config; without one the defaults, and no desc gate."""
    if raw is None:
        gate = DescGate(**SemanticDescGateConfig(enabled=False).model_dump())
        return RolloutMatchingConfig(), gate, CEWeights(1.0, 1.0, 1.0)
    config = read_config(raw if isinstance(raw, Mapping) else {"config": raw})
    stage2_ab = config.stage2_ab
    if stage2_ab is None:
        raise InspectError("config is none of stage2_ab_training; only that variant has B2 and B3")
    channel_b = stage2_ab.channel_b
    return (
        config.custom.extra.rollout_matching,
        DescGate(**channel_b.semantic_desc_gate.model_dump()),
        CEWeights(
            desc=stage2_ab.desc_ce_weight,
            desc_matched=stage2_ab.desc_ce_weight_matched,
            dropped_structure=channel_b.drop_invalid_struct_ce_multiplier,
        ),
    )


def _rollout_rows(
    ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
) -> list[dict[str, Any]]:
    """The rollout's own tokens; what stands behind the cut has no role."""
    return [
        {"index": index, "id": token_id, "text": _shown(pieces, token_id)}
        | ({"part": None, "source": shown.CUT} if role is None else _role(role))
        for index, (token_id, role) in enumerate(
            zip(ids, shown.answer_roles(ids, rollout, pieces), strict=True)
        )
    ]


def _segment_rows(
    segment: Segment, roles: Sequence[Role], pieces: TokenPieces
) -> list[dict[str, Any]]:
    """Prompt and assistant tokens; `roles` has those of the assistant tokens."""
    geometry = {
        position: slots.box[axis]
        for slots in segment.slots
        for axis, position in enumerate(slots.positions)
    }
    prompt = len(segment.ids) - len(roles)
    return [
        {
            "index": index,
            "id": token_id,
            "text": _shown(pieces, token_id),
            **(PROMPT if index < prompt else _role(roles[index - prompt])),
            "ce_weight": weight,
            "target_bin": geometry.get(index),
        }
        for index, (token_id, weight) in enumerate(
            zip(segment.ids, segment.ce_weights, strict=True)
        )
    ]


PROMPT: Mapping[str, Any] = {"part": "text", "source": "prompt", "entry": None}


def _role(role: Role) -> dict[str, Any]:
    return {"part": role.part.value, "source": role.source.value, "entry": role.owner}


def _shown(pieces: TokenPieces, token_id: int) -> str:
    return pieces.of(token_id).decode(errors="replace")


def _verdict_line(report: Mapping[str, Any]) -> str:
    verdict = "invalid rollout" if report["invalid"] else "valid rollout"
    if report["truncated"]:
        verdict += ", truncated"
    pairs = sum(entry["match"] is not None for entry in report["entries"])
    drops = sum(entry["drop"] is not None for entry in report["entries"])
    return (
        f"{verdict}: {len(report['entries'])} entries, {drops} dropped, {pairs} matched to "
        f"{len(report['objects'])} objects"
    )


def _entry_line(entry: Mapping[str, Any]) -> str:
    key = "(no key)" if entry["key"] is None else repr(entry["key"])[1:-1]  # control codes shown
    if entry["drop"] is not None:
        return f"  {key}: dropped, {entry['drop']}"
    said = f"  {key}: {entry['desc']!r} {entry['bbox_2d']}"
    if entry["match"] is None:
        return f"{said} false positive"
    found = entry["match"]
    return f"{said} = object {found['object']} (IoU {found['iou']:.2f})"


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        entry = "" if row.get("entry") is None else f"#{row['entry']}"
        weight = f"{row['ce_weight']:.2f}" if "ce_weight" in row else ""
        target = "" if row.get("target_bin") is None else f"-> {row['target_bin']}"
        role = f"{row['source']:8} {row['part'] or '':10} {entry:4} {weight:5} {target}"
        lines.append(
            f"  {row['index']:5} {row['id']:7} {json.dumps(row['text']):24} {role}".rstrip()
        )
    return lines
