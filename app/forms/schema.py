"""A kind's JSON schema as a flat list of settings, in the order its file states them.

The form, `cockpit kinds` and the config table read it. Knows no kind by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Setting:
    """One leaf of a config."""

    name: str
    """Dotted path, e.g. `warmup.lr`."""
    type: str
    """`string`, `integer`, `number`, `boolean`, or `any`."""
    help: str
    required: bool
    default: Any
    choices: Sequence[str] = ()
    """All that it takes."""
    examples: Sequence[str] = ()
    """Some of what it takes: names that are known."""
    section: str = ""
    """Dotted path of the section it stands in; empty at the top."""
    limits: str = ""
    """Bounds in words: `at least 1`."""


@dataclass(frozen=True)
class Section:
    """A nested model, under its heading."""

    name: str
    help: str
    optional: bool
    """Absent by default; naming any of its settings brings it in."""


@cache
def schema_of(config: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema of a kind's config, made once: a page asks for it several times."""
    return config.model_json_schema()


def flattened(schema: Mapping[str, Any]) -> list[Setting]:
    """Every leaf of the schema."""
    return _settings(schema, schema.get("$defs", {}), "")


def sections(schema: Mapping[str, Any]) -> list[Section]:
    """Every nested model, in order."""
    return _sections(schema, schema.get("$defs", {}), "")


def _settings(node: Mapping[str, Any], defs: Mapping[str, Any], prefix: str) -> list[Setting]:
    found: list[Setting] = []
    required = set(node.get("required", ()))
    for key, raw in node.get("properties", {}).items():
        part, _ = _resolved(raw, defs)
        name = f"{prefix}{key}"
        if "properties" in part:
            found += _settings(part, defs, f"{name}.")
            continue
        found.append(
            Setting(
                name=name,
                type=str(part.get("type", "string" if "enum" in part else "any")),
                help=str(raw.get("description", part.get("description", ""))),
                required=key in required,
                default=raw.get("default"),
                choices=[str(choice) for choice in part.get("enum", ())],
                examples=[str(known) for known in raw.get("examples", part.get("examples", ()))],
                section=prefix.rstrip("."),
                limits=_limits(part),
            )
        )
    return found


def _sections(node: Mapping[str, Any], defs: Mapping[str, Any], prefix: str) -> list[Section]:
    found: list[Section] = []
    for key, raw in node.get("properties", {}).items():
        part, optional = _resolved(raw, defs)
        if "properties" not in part:
            continue
        # The field's own sentence says what it is for here; the model's what it is at all.
        text = str(raw.get("description", part.get("description", "")))
        found.append(Section(f"{prefix}{key}", text, optional))
        found += _sections(part, defs, f"{prefix}{key}.")
    return found


def _resolved(raw: Mapping[str, Any], defs: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """(the schema behind references and `or null`, whether it may be null)."""
    if "anyOf" in raw:
        options = [option for option in raw["anyOf"] if option.get("type") != "null"]
        inner = _resolved(options[0], defs)[0] if len(options) == 1 else {}
        return inner, len(options) < len(raw["anyOf"])
    if "$ref" in raw:
        return _resolved(defs[str(raw["$ref"]).rpartition("/")[2]], defs)
    return raw, False


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def _limits(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{words} {part[key]}" for key, words in _BOUNDS.items() if key in part)


def defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name → what an absent setting becomes; an optional section becomes null."""
    absent = {section.name: None for section in sections(schema) if section.optional}
    return absent | {leaf.name: leaf.default for leaf in flattened(schema) if not leaf.required}


def leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name → value of a config; an empty section is a leaf of its own."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= leaves(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def chosen(schema: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved config without what every config says anyway."""
    known = defaults(schema)
    optional = {section.name for section in sections(schema) if section.optional}

    def walk(part: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in part.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping) and value:
                inner = walk(value, f"{name}.")
                if inner or name in optional:
                    kept[key] = inner
            elif name not in known or known[name] != value:
                kept[key] = value
        return kept

    return walk(config, "")
