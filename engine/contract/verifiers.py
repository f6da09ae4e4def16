"""The names of the verifiers: one file a verifier in `engine/rewards/verifiers/`.

Config needs the names without importing what a verifier imports. A name with a colon is a
reward of TRL's signature, `module:function`, from the modules that the operator allows in
`NIGHTLANE_REWARD_MODULES`.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

import engine
from engine.contract.problems import nearest

ALLOWED_MODULES = "NIGHTLANE_REWARD_MODULES"


READS_TEXT = frozenset(
    {
        *("math", "math_verify", "hendrycks_math", "minerva_math", "minerva_final_answer"),
        *("gsm8k", "gsm8k_hashes", "gsm8k_any", "gsm8k_flexible", "gsm8k_last_number"),
        *("allenai_gsm8k", "allenai_math"),
    }
)
"""Verifiers whose rows hold a number or a formula: an object there is a row of another verifier."""


@cache
def verifier_names() -> Sequence[str]:
    """Alphabetical."""
    folder = Path(engine.__path__[0]) / "rewards" / "verifiers"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def verifier_problem(name: str) -> str | None:
    """What is wrong with a verifier's name, with the way out; None when it can be loaded.

    >>> verifier_problem("exact") is None
    True
    """
    if ":" in name:
        return reward_problem(name)
    if name in verifier_names():
        return None
    return f"is not a verifier; {nearest(name, verifier_names())}"


def _checked(name: str) -> str:
    problem = verifier_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


VerifierName = Annotated[str, AfterValidator(_checked), Field(examples=[*verifier_names()])]
"""In a config: a verifier, or a reward function as `module:function`."""


class Needed(NamedTuple):
    """A distribution that not every installation has."""

    distribution: str
    release: str
    """The beginning of the versions that serve; empty: any."""
    extra: str
    """Of Nightlane: what installs it."""


LATEX = Needed("antlr4-python3-runtime", "4.11", "minerva")
"""sympy's LaTeX parser refuses others; omegaconf, beside verl and hydra, needs 4.9."""
INSTRUCTIONS = tuple(Needed(name, "", "ifeval") for name in ("langdetect", "nltk"))
NEEDS: Mapping[str, Sequence[Needed]] = {
    "minerva_math": (LATEX,),
    "minerva_final_answer": (LATEX,),
    "allenai_math": (LATEX,),
    **dict.fromkeys(("ifeval", "ifeval_prompt_strict", "ifeval_inst_strict"), INSTRUCTIONS),
    "reasoning_gym": (Needed("reasoning-gym", "", "gym"),),
}
"""What a verifier needs beside the training libraries."""


def library_problem(name: str) -> tuple[str, str] | None:
    """(problem, remedy) of a verifier whose library is not here or of another version."""
    return lacking(NEEDS.get(name, ()), "choose another verifier")


def lacking(needs: Sequence[Needed], otherwise: str) -> tuple[str, str] | None:
    """(problem, remedy) of the first that is not here or of another version."""
    for needed in needs:
        try:
            here = version(needed.distribution)
        except PackageNotFoundError:
            here = ""
        if here and here.startswith(needed.release):
            continue
        wanted = f"{needed.distribution} {needed.release}".rstrip()
        found = f"version {here} is installed" if here else "it is not installed"
        return (
            f"needs {wanted}, and {found}",
            f"pip install 'nightlane[{needed.extra}]', or {otherwise}",
        )
    return None


def reward_problem(path: str) -> str | None:
    """The same for `module:function`."""
    module, _, function = path.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return "is not module:function; write it like my_rewards.style:brevity"
    allowed = [name for name in os.environ.get(ALLOWED_MODULES, "").split(",") if name.strip()]
    if any(module == name.strip() or module.startswith(name.strip() + ".") for name in allowed):
        return None
    return (
        f"is in module {module}, which the operator does not allow; "
        f"add it to {ALLOWED_MODULES} (now: {', '.join(allowed) or 'nothing'})"
    )
