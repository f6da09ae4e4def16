"""Forms that do not fit together: what prompts ask for, what training pays, what benches read.

A model learns the form that is paid under the prompts that it trains on; a bench that asks or reads
otherwise does not see it. Said when a run is enqueued, never refused. Knows no row but its text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from engine.contract.errors import ConfigProblem
from engine.contract.templates.answers import (
    FORMS,
    READS,
    asked_in,
    mostly_asked,
    read_by,
    readers_of,
    spelled,
)
from engine.contract.templates.table import TEMPLATES


@dataclass(frozen=True)
class Asking:
    """One source or bench: how its questions are asked, and who reads the answers."""

    name: str
    """As a sentence names it: `training`, `bench gsm8k_test`."""
    where: str
    """Path of its section: `data`, `heldout.0`."""
    verifier_setting: str
    template_setting: str
    verifiers: Sequence[str]
    form: str
    """How a question is written, `{prompt}` standing for it."""
    around: str = ""
    """What else stands in every prompt: system prompt, worked examples, prefix."""
    rows: Sequence[str] = ()
    """Questions of some of its rows."""
    shape: str | None = None
    """The one form that is paid, where the config gates by form."""

    @cached_property
    def asks(self) -> frozenset[str]:
        """The forms that its prompts ask for."""
        return self.asks_itself | self.rows_ask

    @cached_property
    def asks_itself(self) -> frozenset[str]:
        """Those of the template, system prompt and examples."""
        return asked_in(f"{self.form}\n{self.around}")

    @cached_property
    def rows_ask(self) -> frozenset[str]:
        """Those of the rows' own text, as verl's rows have it."""
        return mostly_asked(self.rows)

    @cached_property
    def reads(self) -> frozenset[str] | None:
        """The forms that are paid; None where nobody can tell."""
        found = read_by(self.verifiers)
        if found is None or self.shape not in FORMS:
            return found
        return found & {self.shape}


def mismatches(training: Sequence[Asking], benches: Sequence[Asking]) -> Iterator[ConfigProblem]:
    """One entry a mismatch: each side in itself, then every bench against what trains."""
    for one in (*training, *benches):
        yield from _in_itself(one)
    for bench in benches:
        yield from _paid_otherwise(training, bench)
        yield from _asked_otherwise(training, bench)


def _in_itself(one: Asking) -> Iterator[ConfigProblem]:
    if one.rows_ask and one.asks_itself and not one.rows_ask & one.asks_itself:
        yield ConfigProblem(
            one.template_setting,
            None,
            f"asks for {spelled(one.asks_itself)}, and the rows of {one.name} already ask for "
            f"{spelled(one.rows_ask)}",
            "leave the template out, or take the instruction out of the rows",
        )
    reads = one.reads
    if reads is not None and one.asks and not one.asks & reads:
        yield ConfigProblem(
            one.verifier_setting,
            _named(one.verifiers),
            f"reads {_alone(reads)}, and the prompts of {one.name} ask for {spelled(one.asks)}: "
            "right answers earn nothing",
            _way_to_agree(one.asks, reads, one.verifier_setting, one.template_setting),
        )


def _paid_otherwise(training: Sequence[Asking], bench: Asking) -> Iterator[ConfigProblem]:
    """A bench that reads none of what is paid, or not all of it."""
    reads = bench.reads
    for one in training if reads is not None else ():
        assert reads is not None
        paid = one.reads
        if paid is None or paid <= reads:
            continue
        if not paid & reads:
            yield ConfigProblem(
                bench.verifier_setting,
                _named(bench.verifiers),
                f"reads {_alone(reads)}, and {one.name} pays {_alone(paid)}: what is learnt does "
                f"not show on {bench.name}",
                _way_to_agree(paid, reads, bench.verifier_setting, one.template_setting),
            )
        elif not one.asks & reads:
            kept = next((form for form in FORMS if form in reads), "boxed")
            yield ConfigProblem(
                one.verifier_setting,
                _named(one.verifiers),
                f"pays {spelled(paid)}, of which {bench.name} reads {_alone(reads & paid)}: the "
                "form may drift away from it while the answers stay right",
                f"set {one.verifier_setting} to {_strictest(reads & paid)}, format.shape to {kept},"
                " or a template that asks for it",
            )


def _asked_otherwise(training: Sequence[Asking], bench: Asking) -> Iterator[ConfigProblem]:
    forms = {one.form for one in training}
    if bench.form in forms:
        return
    trained = " or ".join(map(repr, sorted(forms)))
    yield ConfigProblem(
        bench.template_setting,
        None,
        f"{bench.name} asks {bench.form!r}, and training {trained}: a form that is learnt under "
        "one prompt may be lost under another",
        "train under the same template, or read its unparsed share beside its score",
    )


def _way_to_agree(
    asked: Collection[str], reads: Collection[str], verifier_setting: str, template_setting: str
) -> str:
    ways = []
    if readers := readers_of(asked):
        ways.append(f"set {verifier_setting} to {' or '.join(readers[:2])}")
    asking = [name for name, form in TEMPLATES.items() if asked_in(form.question) & set(reads)]
    if asking:
        ways.append(f"set {template_setting} to {' or '.join(asking[:2])}")
    return ", or ".join(ways) or "let both say one form"


def _strictest(forms: Collection[str]) -> str:
    readers = [name for name in readers_of(forms) if READS[name] <= set(forms)]
    return (readers or readers_of(forms))[0]


def _alone(forms: Collection[str]) -> str:
    said = spelled(forms)
    return said if set(FORMS) <= set(forms) else f"{said} alone"


def _named(verifiers: Sequence[str]) -> str:
    return ", ".join(verifiers)
