"""What tasks of the harness fetch from the net as they are imported, given from here instead.

mbpp and humaneval load the metric `code_eval` from a hub, ifeval downloads NLTK's sentence model.
Here programs run in our box, and sentences are split by the same model out of a package.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from engine.rewards.judgement import Verdict
from engine.rewards.sandbox import code
from engine.rewards.text import ifeval_checks

_CHECKED = re.compile(r"\bcheck\(([A-Za-z_]\w*)\)\s*\Z")
"""The end of what humaneval runs: the name of the function under test."""


class CodeEval:
    """`evaluate`'s metric code_eval, run in our box."""

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int]
    ) -> tuple[Mapping[str, float], None]:
        """Share of programs that pass the statements behind them; k is 1 here."""
        if list(k) != [1]:
            raise ValueError(f"pass@{k} of one completion: only pass@1 is there")
        right = [
            _passes(program, reference)
            for reference, programs in zip(references, predictions, strict=True)
            for program in programs
        ]
        return {"pass@1": sum(right) / len(right)}, None


def _passes(program: str, reference: str) -> bool:
    usable = code.usable(program)
    if isinstance(usable, Verdict):
        return False
    entry = _CHECKED.search(reference)
    job = {
        "mode": "statements",
        "setup": "",
        "entry": entry[1] if entry else "",
        "program": usable,
        "tests": [reference],
    }
    return code.run_all(job, usable).reward == 1.0


@contextmanager
def no_downloads() -> Iterator[None]:
    """While tasks are imported, nothing is fetched."""
    import evaluate  # noqa: PLC0415 - an extra, which comes with lm_eval

    with _instead(evaluate, "load", lambda _name: CodeEval()):
        yield


@contextmanager
def _instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def settle_ifeval() -> None:
    """Give ifeval's checkers the sentence model that NLTK would have downloaded, and langdetect a
    seed: without one a short text has another language at every look.
    """
    import langdetect  # noqa: PLC0415 - an extra
    import nltk  # noqa: PLC0415 - an extra

    langdetect.DetectorFactory.seed = 0

    with _instead(nltk.data, "find", lambda *_: True):  # the file that it would download
        from lm_eval.tasks.ifeval import instructions_util  # noqa: PLC0415

    instructions_util.nltk = types.SimpleNamespace(
        tokenize=nltk.tokenize, word_tokenize=ifeval_checks.words
    )
    splitter: Any = types.SimpleNamespace(tokenize=ifeval_checks.sentences)
    instructions_util._get_sentence_tokenizer = lambda: splitter  # noqa: SLF001 - downloads otherwise
