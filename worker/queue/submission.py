"""What a caller may ask of the queue besides a config: one closed model for every door.

Browser, REST and command line fill it; `problems_of` gives each the same words. Knows no database.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import to_json

from engine.contract.documents import MAX_CONFIG_BYTES
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of, text_problems
from worker.queue.dependencies import IfParentFails
from worker.queue.seeds import without_seeds
from worker.queue.tried import canonical_hash

MAX_NAME = 120
MAX_TAG = 40
MAX_KEY = 200
MAX_PRIORITY = 100
_UNREADABLE = frozenset({"Cc", "Zl", "Zp"})
"""Unicode's controls, and the ends of a line and of a paragraph."""
_VISIBLE = frozenset("LNPS")
"""Letters, numbers, punctuation and symbols, of any script."""
LARGEST_ID = 2**31 - 1
"""The largest number that the id column of every database holds."""

JobNumber = Annotated[int, Field(strict=True, ge=1, le=LARGEST_ID)]
Priority = Annotated[int, Field(strict=True, ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


def _time_or_text(given: object) -> object:
    number = isinstance(given, int | float) and not isinstance(given, bool) and abs(given) < 1e15
    if number or given is None or isinstance(given, str):
        return given
    raise ValueError("is no time; write 2030-11-22T22:00+01:00, Unix seconds, or +2h")


StartTime = Annotated[float | str | None, BeforeValidator(_time_or_text)]


def checked_tags(tags: list[str]) -> list[str]:
    """Each tag once, in order. Raises ValueError for what nobody could type."""
    for tag in tags:
        if not 0 < len(tag) <= MAX_TAG or not tag.isprintable() or tag != tag.strip():
            raise ValueError(
                f"holds {tag[:MAX_TAG]!r}; a tag is 1 to {MAX_TAG} printable characters"
            )
    return sorted(set(tags))


def checked_name(name: str | None) -> str | None:
    """A name as people read it. Raises ValueError for one that is too long or cannot be read."""
    if name is None:
        return None
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"must have 1 to {MAX_NAME} characters; shorten it, or leave it out")
    categories = [unicodedata.category(char) for char in name]
    if any(category in _UNREADABLE for category in categories):
        raise ValueError("holds a control character; write it in one line of plain text")
    if not any(category[0] in _VISIBLE for category in categories):
        raise ValueError("has no visible character; write one, or leave it out")
    return name


class Submission(BaseModel):
    """One job, or with a `sweep` several, as somebody asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    kind: str = Field(max_length=100)
    """Name of a registered kind."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The settings."""
    sweep: dict[str, list[Any]] | None = None
    """Dotted names of settings, each with a list of values: a job for every combination."""
    name: str | None = None
    """What people call the job."""
    priority: Priority = 0
    """Higher runs first: -100 to 100."""
    not_before: StartTime = None
    """Earliest start: ISO 8601, a time in the lane's zone or with one, Unix seconds, or `+2h`."""
    after: list[JobNumber] = Field(default_factory=list, max_length=100)
    """Jobs that must have ended before."""
    if_parent_fails: IfParentFails = IfParentFails.CANCEL
    """When one of those ends without success: cancel this one, run it all the same, or wait."""
    clone_of: JobNumber | None = None
    """The job that this one began from; it changes nothing of how it runs."""
    tags: list[str] = Field(default_factory=list, max_length=20)
    """Words to find it by."""
    force: bool = Field(default=False, strict=True)
    """Queue it although the same job has a finished result, waits or runs."""

    _readable_name = field_validator("name")(checked_name)
    _plain_tags = field_validator("tags")(checked_tags)

    def body_hash(self) -> str:
        """The same for the same request, however it was sent."""
        asked = {name: getattr(self, name) for name in Submission.model_fields}
        if self.clone_of is None:
            del asked["clone_of"]  # as hashes were made before it counted
        return canonical_hash(asked)


def submission(raw: dict[str, Any]) -> Submission:
    """`seeds` beside or inside of the config become a sweep. Raises ConfigError with every field
    that is wrong.
    """
    if unwritable := text_problems(raw):
        raise ConfigError(unwritable)
    try:
        wanted = Submission.model_validate(without_seeds(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, Submission)) from error
    size = len(to_json(wanted.config, fallback=str, bytes_mode="base64"))
    if size > MAX_CONFIG_BYTES:
        remedy = f"keep it under {MAX_CONFIG_BYTES} bytes and name data by path"
        raise ConfigError(
            [ConfigProblem("config", f"{size} bytes", "is too large for a config", remedy)]
        )
    return wanted


def checked_key(key: str | None) -> str | None:
    """An idempotency key, or None. Raises ConfigError when it cannot be one."""
    if key is not None and not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        problem = f"must be 1 to {MAX_KEY} printable ASCII characters"
        remedy = "use a UUID, one for each request"
        raise ConfigError([ConfigProblem("key", key[:40], problem, remedy)])
    return key
