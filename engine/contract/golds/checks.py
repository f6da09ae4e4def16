"""Whether a verifier can pay anything for a row's answer; asked of every row before a run.

A row that its verifier cannot read, or never pays, would score 0 all night. Torch-free; the
verifiers themselves are the engine's, and tests hold these rules to them. Knows no file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.golds.boxes import gold_text
from engine.contract.golds.harness import ALLENAI_NUMBER, BARE_NUMBER, bare
from engine.contract.golds.instructions import RLVR_FUNCTIONS, instruction_problem
from engine.contract.golds.quantity import LONGEST, read
from engine.contract.golds.rows import ExpectedError, read_expected, refused, texts, wanted
from engine.contract.rl.format import Shape


class Level(enum.IntEnum):
    """How sure it is that the row earns nothing."""

    DOUBTFUL = 1
    """Only an unlikely completion is paid."""
    UNPAID = 2
    """The harness that the verifier equals never finds it right."""
    BROKEN = 3
    """It is not what the verifier reads."""


@dataclass(frozen=True)
class GoldProblem:
    """What is wrong with one row's answer."""

    level: Level
    problem: str
    """A clause that follows "the verifier": `reads a number`."""
    remedy: str
    detail: str = ""
    """What is wrong with this very row, where its answer does not show it."""


Check = Callable[[str], GoldProblem | None]

_OTHER_VERIFIERS = (
    "name the verifier that fits (math pays numbers, formulas and words, exact the whole text; "
    "docs/verifiers.md), or correct the rows"
)
_OBJECTS = "write the object that it reads (docs/verifiers.md), or name the verifier that fits"


def gold_check(verifier: str) -> Check | None:
    """What is asked of each row's answer; None where nothing can be said (`module:function`)."""
    return _CHECKS.get(verifier)


def _broken(problem: str, remedy: str = _OTHER_VERIFIERS, detail: str = "") -> GoldProblem:
    return GoldProblem(Level.BROKEN, problem, remedy, detail)


def _unpaid(problem: str, remedy: str) -> GoldProblem:
    return GoldProblem(Level.UNPAID, problem, remedy)


def is_object(gold: str) -> bool:
    """Whether it is a JSON object: the row of another verifier. A set in LaTeX is none."""
    if not gold.startswith("{"):
        return False
    try:
        return isinstance(parse_json(gold), dict)
    except UnreadableError:
        return False


# --- numbers and formulas -------------------------------------------------------------------


def _of_text(check: Check) -> Check:
    def asked(gold: str) -> GoldProblem | None:
        if is_object(gold):
            return _broken("reads a number or a formula, not an object")
        return check(gold)

    return asked


def _exact(gold: str) -> GoldProblem | None:
    if not gold.strip():
        return _broken("reads a text", "write the answer")
    worked = gold_text(gold)
    if worked != gold.strip() and len(worked) + len("#### ") < len(gold.strip()) / 2:
        problem = "pays only a completion that is all of it, the worked solution included"
        remedy = "name gsm8k, gsm8k_any or math, which read the answer at its end"
        return GoldProblem(Level.DOUBTFUL, problem, remedy)
    return None


def _number(gold: str) -> GoldProblem | None:
    return None if read(gold_text(gold)) else _broken("reads a number")


def _harness_number(gold: str) -> GoldProblem | None:
    if BARE_NUMBER.fullmatch(bare(gold)):
        return None
    if read(gold_text(gold)) is None:
        return _broken("reads a number")
    problem = "compares digits as text, as its harness does, and finds none equal to it"
    return _unpaid(problem, "write the digits alone (18, or the answer with #### 18), or use math")


def _allenai_number(gold: str) -> GoldProblem | None:
    if ALLENAI_NUMBER.fullmatch(gold):
        return None
    if read(gold_text(gold)) is None:
        return _broken("reads a number")
    problem = (
        "compares it as text with the last number of a completion, as open-instruct does: no "
        "minus before a whole number, no comma, no sign, no reasoning before it"
    )
    return _unpaid(problem, "write the number alone (18), or use gsm8k_any or math")


def _formula(gold: str) -> GoldProblem | None:
    text = gold_text(gold)
    if not text:
        return _broken("reads a number, a formula or a word")
    if len(text) > LONGEST:
        remedy = "write the answer alone, or put it in \\boxed{} at the solution's end"
        return _broken(f"compares answers of at most {LONGEST} characters", remedy)
    return None


def _boxed_formula(gold: str) -> GoldProblem | None:
    if "####" in gold and "\\boxed" not in gold:
        problem = "reads no ####, as its harness does not"
        return _unpaid(problem, "write the answer alone or boxed, or use math")
    return _formula(gold)


def _allenai_formula(gold: str) -> GoldProblem | None:
    for mark in ("\\boxed", "####"):
        if mark in gold:
            problem = f"compares all of it, {mark} included, as open-instruct does"
            return _unpaid(problem, "write the answer alone (18), or use math")
    return _formula(gold)


# --- objects --------------------------------------------------------------------------------


def _of_object(check: Callable[[str], None], fields: str) -> Check:
    def asked(gold: str) -> GoldProblem | None:
        try:
            check(gold)
        except ExpectedError as error:
            return _broken(f"reads {fields}", _OBJECTS, str(error))
        return None

    return asked


def _mbpp(gold: str) -> None:
    row = {"test_setup_code": "", **read_expected(gold, "test_list")}
    texts(row, "test_list", 'a list of statements, ["assert f(1) == 2"]')
    wanted(row, "test_setup_code", str, "statements as one text")


def _humaneval(gold: str) -> None:
    row = read_expected(gold, "prompt", "test", "entry_point")
    wanted(row, "prompt", str, "the function's head as text")
    test = wanted(row, "test", str, "the code that defines check(candidate), as one text")
    name = wanted(row, "entry_point", str, "the function's name")
    if not name.isidentifier():
        raise refused("entry_point", name, "the function's name")
    if re.search(r"\bcheck\b", test) is None:
        raise refused("test", test, "the code that defines check(candidate), as one text")


def _apps(gold: str) -> None:
    row = read_expected(gold, "inputs", "outputs")
    inputs = wanted(row, "inputs", list, "a list with one item a test")
    outputs = wanted(row, "outputs", list, "a list with one item a test")
    if len(inputs) != len(outputs) or not outputs:
        count = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise ExpectedError(f"expected has {count}; a test is one of each")
    if row.get("fn_name"):
        wanted(row, "fn_name", str, "the name of the function")


def _ifeval(gold: str) -> None:
    row = read_expected(gold)
    function = row.get("func_name")
    if isinstance(function, str):
        nearest = RLVR_FUNCTIONS.get(function, "none that is known")
        raise ExpectedError(
            f"func_name {function!r} is a check of RLVR-IFEval (open-instruct), which is not "
            f"IFEval's; its nearest there: {nearest}"
        )
    row = read_expected(gold, "instruction_id_list", "kwargs")
    names = texts(row, "instruction_id_list", 'a list of names, ["punctuation:no_comma"]')
    given = wanted(row, "kwargs", list, "a list with one object an instruction")
    wanted({"partial": False, **row}, "partial", bool, "true or false")
    if len(names) != len(given):
        raise ExpectedError(f"{len(names)} instructions with {len(given)} sets of arguments")
    for name, arguments in zip(names, given, strict=True):
        if arguments is not None and not isinstance(arguments, dict):
            raise refused("kwargs", given, "a list with one object an instruction")
        problem = instruction_problem(name, arguments or {})
        if problem is not None:
            raise ExpectedError(problem)


def _json_schema(gold: str) -> None:
    schema = read_expected(gold, "schema")["schema"]
    if not isinstance(schema, dict | bool):
        raise refused("schema", schema, "an object, or true or false")


def _reasoning_gym(gold: str) -> None:
    entry = read_expected(gold, "answer", "metadata")
    about = wanted(entry, "metadata", dict, "the entry's object of that name")
    wanted({"source_dataset": None, **about}, "source_dataset", str, "the task's name")


def _regex(gold: str) -> None:
    row: dict[str, Any] = {"pattern": gold}
    if gold.startswith("{"):
        row = read_expected(gold, "pattern")
    pattern = wanted(row, "pattern", str, "a regular expression as text")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ExpectedError(f"pattern {pattern[:80]!r}: {error}") from None
    wanted({"full": False, **row}, "full", bool, "true or false")
    if "answer" in row and (
        isinstance(row["answer"], bool) or not isinstance(row["answer"], str | int | float)
    ):
        raise refused("answer", row["answer"], "the text that the group must equal")


def _format(gold: str) -> None:
    shape = read_expected(gold, "format")["format"] if gold.startswith("{") else gold
    if shape not in get_args(Shape):
        raise ExpectedError(f"format {str(shape)[:80]!r} is none of {', '.join(get_args(Shape))}")


_CHECKS: dict[str, Check] = {
    "exact": _exact,
    **{name: _of_text(_number) for name in ("gsm8k_any", "gsm8k_last_number")},
    **{name: _of_text(_harness_number) for name in ("gsm8k", "gsm8k_hashes", "gsm8k_flexible")},
    "allenai_gsm8k": _of_text(_allenai_number),
    "allenai_math": _of_text(_allenai_formula),
    **{name: _of_text(_formula) for name in ("math", "math_verify")},
    **{
        name: _of_text(_boxed_formula)
        for name in ("minerva_math", "minerva_final_answer", "hendrycks_math")
    },
    **{
        name: _of_object(_mbpp, "test_list and test_setup_code")
        for name in ("mbpp", "mbpp_pass_at_1")
    },
    **{
        name: _of_object(_humaneval, "prompt, test and entry_point")
        for name in ("humaneval", "humaneval_pass_at_1")
    },
    "apps": _of_object(_apps, "inputs and outputs"),
    **{
        name: _of_object(_ifeval, "instruction_id_list and kwargs")
        for name in ("ifeval", "ifeval_prompt_strict", "ifeval_inst_strict")
    },
    "json_schema": _of_object(_json_schema, "a schema"),
    "reasoning_gym": _of_object(_reasoning_gym, "answer and metadata"),
    "regex": _of_object(_regex, "a pattern"),
    "format": _of_object(_format, "the name of a shape"),
}
