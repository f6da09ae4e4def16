"""One night's terms: from when to when, what it may cost, how many failures it stands.

The policy that a person arms in the evening and forgets: it has a window, a cap and a limit of
failures, and it ends by itself when the window closes for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of
from worker.amounts import Amount, Count
from worker.clock.window import Window
from worker.schedule import policy
from worker.schedule.policy import Policy

NUMBERS = frozenset({"cap_usd", "max_failures"})
"""Terms that are numbers, for doors that have text alone."""


class OneNight(BaseModel):
    """What is asked for one night. The text under a field is its help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    opens: str = "22:00"
    """From when on jobs may run, e.g. 22:00."""
    closes: str = "07:00"
    """Until when, e.g. 07:00; earlier than `opens` is the next morning."""
    cap_usd: Amount = Field(5.0, ge=0, le=10_000_000)
    """Most US dollars for the night."""
    max_failures: Count = Field(3, ge=1)
    """Failures in a row after which nothing more is started."""
    zone: str = ""
    """Time zone of the hours, e.g. Europe/Berlin; the machine's by default."""

    @field_validator("opens", "closes")
    @classmethod
    def _time(cls, text: str) -> str:
        try:
            Window.parse(f"{text.strip()}-00:00")
        except ConfigError:
            raise ValueError("is no time of the day; write it like 22:00") from None
        return text.strip()


def one_night(raw: Mapping[str, Any], now: float) -> Policy:
    """The policy for the night that is on, else for the one that comes.

    What `raw` does not give is as in `OneNight`. Raises ConfigError with every problem found, each
    at the field that a person filled in.
    """
    wanted = _wanted(raw)
    terms = policy.parse(
        {
            "window": f"{wanted.opens}-{wanted.closes}",
            "zone": wanted.zone,
            "cap_usd": wanted.cap_usd,
            "max_failures": wanted.max_failures,
        },
        now,
    )
    return terms.model_copy(update={"expires_at": terms.closes_at(terms.opens_at(now))})


def _wanted(raw: Mapping[str, Any]) -> OneNight:
    try:
        wanted = OneNight.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, OneNight)) from error
    if wanted.opens.zfill(5) == wanted.closes.zfill(5):
        remedy = "give another time than that at which it opens"
        raise ConfigError([ConfigProblem("closes", wanted.closes, "ends where it begins", remedy)])
    return wanted


def last_terms(terms: Mapping[str, Any] | None) -> OneNight:
    """What a person set the last time, as far as it says something of one night."""
    given = {name: value for name, value in (terms or {}).items() if value is not None}
    known = {name: given[name] for name in ("cap_usd", "max_failures", "zone") if name in given}
    opens, dash, closes = str(given.get("window", "")).replace("–", "-").partition("-")
    return OneNight(**known, **({"opens": opens, "closes": closes} if dash else {}))
