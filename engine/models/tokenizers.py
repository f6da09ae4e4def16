"""A tokenizer by the folder or hub id of its model, also where `extra_special_tokens` is a list.

Exports write that list (NeMo's do), and so does Transformers 5 itself. Of plain text it is read;
of tokens written out as objects it is a TypeError, and text that no vocabulary file knows becomes
tokens that the model has no embedding for. Such a list is left out, in a shadow of the folder: what
a tokenizer's files know of special tokens stands in them anyway.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.hub import cached_file

from engine.contract.documents import read_json_object, why
from engine.run.shadow import shadow

CONFIG = "tokenizer_config.json"
_LIST = "extra_special_tokens"
_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")
"""Of a hub's model, all that a tokenizer is made of."""


def load_tokenizer(base: str, **options: Any) -> Any:
    """`options` as AutoTokenizer has them. Raises what that raises, and OSError for a
    tokenizer_config.json that is no JSON.
    """
    config = _config(base, options)
    listed = config.get(_LIST)
    if not isinstance(listed, list):
        return AutoTokenizer.from_pretrained(base, **options)
    wrong = _unread(listed)
    if wrong is None:
        tokenizer: Any = AutoTokenizer.from_pretrained(base, **options)
        wrong = _without_embedding(tokenizer, base, options)
        if wrong is None:
            return tokenizer
    rest = {name: value for name, value in config.items() if name != _LIST}
    reason = f"has {wrong} in the {_LIST} of its {CONFIG}, which are left out"
    mended = json.dumps(rest, ensure_ascii=False, indent=2)
    return AutoTokenizer.from_pretrained(shadow(_folder(base, options), CONFIG, mended, reason))


def _config(base: str, options: Any) -> dict[str, Any]:
    """Of a folder, or of what the hub's cache has or gets; empty where there is none."""
    path = Path(base, CONFIG)
    if not Path(base).is_dir():
        quiet = dict.fromkeys(_QUIET, False)
        found = cached_file(base, CONFIG, **options, **quiet)
        if found is None:
            return {}
        path = Path(found)
    try:
        return read_json_object(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise OSError(f"its {CONFIG} {why(error)}") from error


_QUIET = (
    "_raise_exceptions_for_gated_repo",
    "_raise_exceptions_for_missing_entries",
    "_raise_exceptions_for_connection_errors",
)
"""What is not there is told by whoever loads the tokenizer."""


def _unread(listed: Sequence[Any]) -> str | None:
    """What of a list Transformers does not take for a token."""
    for one in listed:
        known = isinstance(one, dict) and one.get("__type") == "AddedToken"
        if not isinstance(one, str) and not known:
            return f"{json.dumps(one, ensure_ascii=False)[:80]} instead of text"
    return None


def _without_embedding(tokenizer: Any, base: str, options: Any) -> str | None:
    """The first token of the list that the model has no embedding for."""
    told: Any = AutoConfig.from_pretrained(base, **options)
    rows = getattr(told.get_text_config(), "vocab_size", None)
    ids = tokenizer.convert_tokens_to_ids(list(map(str, tokenizer.extra_special_tokens)))
    beyond = next((i for i in ids if rows is not None and i is not None and i >= rows), None)
    if beyond is None:
        return None
    token = tokenizer.convert_ids_to_tokens(beyond)
    return f"{token!r}, token {beyond} of a model with {rows} embeddings,"


def _folder(base: str, options: Any) -> Path:
    """Where the files of a tokenizer stand."""
    if Path(base).is_dir():
        return Path(base)
    return Path(snapshot_download(base, allow_patterns=list(_FILES), **options))
