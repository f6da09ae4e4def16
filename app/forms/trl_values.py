"""What a GRPO script, notebook or YAML file of TRL says, by TRL's own names. Nothing of it is run.

Read from a script are literals and names that stand for one; what is computed is told by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.contract.documents import UnreadableError, parse_json, parse_yaml, read_text
from engine.contract.errors import ConfigError, ConfigProblem

MAX_SCRIPT_BYTES = 4 * 2**20


@dataclass
class Said:
    """All that was found."""

    values: dict[str, Any] = field(default_factory=dict)
    """By the name of the argument."""
    unread: list[str] = field(default_factory=list)
    """Arguments whose value is computed."""
    rewards: list[str] = field(default_factory=list)
    """Names of reward functions; one of the script's own as `module:function`."""
    adapter: bool = False
    """Whether an adapter is trained."""


_ARGUMENTS = {
    "GRPOConfig": {},
    "LoraConfig": {"r": "lora_r"},
    "get_peft_model": {"r": "lora_r"},
    "from_pretrained": {"pretrained_model_name_or_path": "model", "model_name": "model"},
    "load_dataset": {"path": "dataset_name", "split": "dataset_train_split"},
}
"""Calls whose arguments count, with the names that some of them have elsewhere."""
_FIRST = {"from_pretrained": "model", "load_dataset": "dataset_name"}
"""What the first argument is, where it has no name."""
_OF_MODEL = {"model", "max_seq_length"}


def said_by(path: Path) -> Said:
    """Of a file. Raises ConfigError for one that cannot be read."""
    try:
        text = read_text(path, MAX_SCRIPT_BYTES)
    except UnreadableError as error:
        raise _unreadable(path, str(error)) from error
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from error
    if path.suffix in {".yaml", ".yml"}:
        return _of_yaml(parse_yaml(text))
    if path.suffix == ".ipynb":
        text = "\n".join(_cells(path, text))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise _unreadable(path, f"is no Python script: {error}") from error
    return _of_script(tree, path.stem)


def _of_yaml(document: Mapping[str, Any]) -> Said:
    rewards = document.get("reward_funcs") or []
    named = [rewards] if isinstance(rewards, str) else [str(one) for one in rewards]
    values = {name: value for name, value in document.items() if name != "reward_funcs"}
    return Said(values, rewards=named, adapter=bool(document.get("use_peft")))


def _cells(path: Path, text: str) -> Iterator[str]:
    """The code of a notebook, without lines for its shell."""
    try:
        notebook = parse_json(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (UnreadableError, KeyError, TypeError) as error:
        raise _unreadable(path, "is no notebook") from error
    for source in sources:
        lines = source.splitlines()
        yield "\n".join(line for line in lines if not line.lstrip().startswith(("!", "%")))


def _of_script(tree: ast.Module, module: str) -> Said:
    script = _Script(tree)
    said = Said()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = _name(node.func)
        if called in _ARGUMENTS:
            _take(said, script, node, called)
        elif called == "GRPOTrainer":
            _take_trainer(said, script, node, module)
        said.adapter |= called in {"LoraConfig", "get_peft_model"}
    return said


def _take(said: Said, script: _Script, call: ast.Call, called: str) -> None:
    renamed = _ARGUMENTS[called]
    first = _FIRST.get(called)
    given = [(first, call.args[0])] if first and call.args else []
    given += [(renamed.get(one.arg, one.arg), one.value) for one in call.keywords if one.arg]
    for name, value in given:
        if called == "from_pretrained" and name not in _OF_MODEL:
            continue
        _keep(said, script, str(name), value)


def _take_trainer(said: Said, script: _Script, call: ast.Call, module: str) -> None:
    for one in call.keywords:
        if one.arg == "reward_funcs":
            listed = one.value.elts if isinstance(one.value, ast.List | ast.Tuple) else [one.value]
            said.rewards = [script.function(reward, module) for reward in listed]
        elif one.arg == "model" and script.value(one.value) is not _COMPUTED:
            _keep(said, script, "model", one.value)


def _keep(said: Said, script: _Script, name: str, node: ast.expr) -> None:
    value = script.value(node)
    if value is _COMPUTED:
        said.unread.append(f"{name}={ast.unparse(node)[:80]}")
    else:
        said.values.setdefault(name, value)


_COMPUTED = object()


class _Script:
    """Names of a script that stand for one literal."""

    def __init__(self, tree: ast.Module) -> None:
        self._literals: dict[str, Any] = {}
        self._functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                value = self.value(node.value)
                if isinstance(node.targets[0], ast.Name) and value is not _COMPUTED:
                    self._literals[node.targets[0].id] = value

    def value(self, node: ast.expr) -> Any:
        """`_COMPUTED` where it is no literal."""
        if isinstance(node, ast.Name):
            return self._literals.get(node.id, _COMPUTED)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _COMPUTED

    def function(self, node: ast.expr, module: str) -> str:
        name = _name(node)
        return f"{module}:{name}" if name in self._functions else name or ast.unparse(node)[:80]


def _name(node: ast.expr) -> str:
    """Of a function: `GRPOConfig` of `trl.GRPOConfig`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _unreadable(path: Path, problem: str) -> ConfigError:
    remedy = "name a Python script, a notebook (.ipynb) or a YAML file"
    return ConfigError([ConfigProblem("FILE", str(path), problem, remedy)])
