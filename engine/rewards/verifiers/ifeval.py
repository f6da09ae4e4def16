"""`ifeval`: pays a response that follows every instruction of its prompt.

`expected` is JSON with the names of the IFEval rows: `{"instruction_id_list": [...], "kwargs":
[{…}, …]}`, null arguments ignored. Reward is the benchmark's prompt-level strict accuracy; with
`"partial": true` the share of the instructions followed. A thinking block is no part of the
response. Keywords are patterns and a pattern may not end: it runs in the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.contract.golds.rows import ExpectedError, read_expected, refused, texts, wanted
from engine.rewards.judgement import Reason, Verdict
from engine.rewards.text.ifeval_checks import follows
from engine.rewards.text.reading import without_thinking

POOLED = True
WARM_UP = (
    "one, TWO. three",
    '{"instruction_id_list": ["language:response_language", "length_constraints:number_sentences",'
    ' "change_case:capital_word_frequency"], "kwargs": [{"language": "en"}, {"num_sentences": 1,'
    ' "relation": "at least"}, {"capital_frequency": 1, "capital_relation": "at least"}]}',
)


def verify(completion: str, expected: str) -> Verdict:
    """`answer` lists what was not followed.

    >>> row = '{"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}'
    >>> verify("no commas", row).reward
    1.0
    """
    names, arguments, partial = read(expected)
    return judged(without_thinking(completion), names, arguments, partial=partial)


def read(expected: str) -> tuple[list[str], list[Mapping[str, Any]], bool]:
    """The instructions, the arguments of each, and whether a part of them earns its share.

    Raises ExpectedError for other JSON.
    """
    row = read_expected(expected, "instruction_id_list", "kwargs")
    names = texts(row, "instruction_id_list", 'a list of names, ["punctuation:no_comma"]')
    arguments = wanted(row, "kwargs", list, "a list with one object an instruction")
    partial = wanted({"partial": False, **row}, "partial", bool, "true or false")
    if len(names) != len(arguments):
        raise ExpectedError(f"{len(names)} instructions with {len(arguments)} sets of arguments")
    if not all(given is None or isinstance(given, dict) for given in arguments):
        raise refused("kwargs", arguments, "a list with one object an instruction")
    return names, [given or {} for given in arguments], partial


def judged(
    response: str, names: Sequence[str], arguments: Sequence[Mapping[str, Any]], *, partial: bool
) -> Verdict:
    """`answer` lists what was not followed."""
    if not response.strip():
        return Verdict.unparsed()
    pairs = zip(names, arguments, strict=True)
    missed = [name for name, given in pairs if not follows(response, name, given)]
    if not missed:
        return Verdict(1.0, "", Reason.CORRECT)
    share = (len(names) - len(missed)) / len(names) if partial else 0.0
    return Verdict(share, "not followed: " + ", ".join(missed), Reason.WRONG)
