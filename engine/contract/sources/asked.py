"""What an `rl_run` will ask, said before it is queued: a prompt of each source, and forms of prompt
and answer that do not fit together (EX-11).

Knows the first rows of each source; what needs a tokenizer the run says as it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from engine.contract.errors import ConfigProblem, RLLoopError
from engine.contract.example import Example
from engine.contract.rl.format import FormatConfig
from engine.contract.rl.forms import Asking, mismatches
from engine.contract.rl.prompting import PromptingConfig
from engine.contract.sources.benches import BenchConfig
from engine.contract.sources.benchmark_rows import says_test
from engine.contract.sources.first_rows import MOST, FirstRow, first_rows, read_first
from engine.contract.sources.mixture import JudgedSource
from engine.contract.sources.overlap import overlaps
from engine.contract.sources.questions import SourceConfig
from engine.contract.templates.prompt import Prompt, compose
from engine.contract.templates.table import TEMPLATES, shots_problem
from engine.contract.templates.template import Shot

_SHOWN = 4_000
"""Letters of a prompt that is shown."""


class Rows(Protocol):
    """Rows of one origin with who judges them."""

    @property
    def where(self) -> str: ...
    @property
    def config(self) -> SourceConfig: ...
    @property
    def verifiers(self) -> Sequence[str]: ...
    @property
    def verifier_setting(self) -> str: ...


class Knobs(Protocol):
    """What of an `rl_run` config decides here."""

    @property
    def prompting(self) -> PromptingConfig: ...
    @property
    def format(self) -> FormatConfig: ...
    @property
    def corpora(self) -> Sequence[Rows]: ...
    @property
    def benches(self) -> Sequence[Rows]: ...
    @property
    def decide(self) -> str: ...


def form_cautions(config: Knobs) -> Iterator[ConfigProblem]:
    """Mismatches of form, and sources that are a benchmark's test rows."""
    for rows in config.corpora:
        if said := says_test(rows.config.source, first_rows(rows.config)):
            yield ConfigProblem(
                f"{rows.where}.source",
                rows.config.source,
                f"is a test split, as it seems ({said}): you are training on a benchmark's test "
                "rows",
                "train on its train split, and name the test rows under heldout",
            )
    training = [_asking(rows, config, trains=True) for rows in config.corpora]
    benches = [_asking(rows, config, trains=False) for rows in config.benches]
    yield from mismatches(training, benches)


class _Row(NamedTuple):
    id: str
    prompt: str


def overlap_cautions(config: Knobs) -> Iterator[ConfigProblem]:
    """Benches of whose first rows some stand among the first that train; the run compares all."""
    training = [row for rows in config.corpora for row in _first(rows)]
    first = {rows.where: _first(rows) for rows in config.benches}
    found = overlaps(training, first)
    for rows in config.benches:
        overlap = found[rows.where]
        if not overlap.leaks:
            continue
        decides = isinstance(rows.config, BenchConfig) and rows.config.name == config.decide
        pair = overlap.leaks[0]
        what = (
            "they will be taken out of the training rows"
            if decides
            else "you are training on a benchmark's test rows"
        )
        yield ConfigProblem(
            f"{rows.where}.source",
            rows.config.source,
            f"has {len(overlap.leaks)} of its first {overlap.rows} rows among the first "
            f"{overlap.training} training rows ({pair.heldout.id!r} is row {pair.training.id!r} "
            f"there): {what}",
            "train on other rows; the run compares all of them as it begins",
        )


def _first(rows: Rows) -> list[_Row]:
    return [_Row(row.id, row.question) for row in first_rows(rows.config)]


def shots_problems(config: Knobs) -> Iterator[ConfigProblem]:
    """Worked examples that a bench asks for and cannot have."""
    for rows in config.benches:
        bench = rows.config
        if not isinstance(bench, BenchConfig):
            continue
        template = bench.template or config.prompting.template
        pool = bench.pool
        if pool is None:
            if wrong := shots_problem(template, bench.shots):
                yield ConfigProblem(f"{rows.where}.shots", bench.shots, *wrong)
        elif said := _no_pool(bench, pool):
            yield ConfigProblem(f"{rows.where}.shots_from", bench.shots_from, *said)


def _no_pool(bench: BenchConfig, pool: BenchConfig) -> tuple[str, str] | None:
    if not bench.shots:
        return "does nothing without shots", "set shots, or remove it"
    if pool.source == bench.source:
        problem = "is the bench itself: a row would stand in front of others with its answer"
        return problem, "name training rows"
    try:
        rows = read_first(pool)
    except RLLoopError as error:
        return error.problems[0].problem, error.problems[0].remedy
    if test := says_test(pool.source, rows):
        return f"is a test split, as it seems ({test})", "name training rows"
    if len(rows) < min(bench.shots + 1, MOST):
        problem = f"has {len(rows)} rows, too few for {bench.shots} examples"
        return problem, "lower shots, or name a larger file"
    return None


def prompt_examples(config: Knobs) -> Sequence[Example]:
    """The shortest, the median and the longest prompt of what trains, by letters and among its
    first rows, and the first of each bench, as they will be asked; none of embedded rows.
    """
    found = [
        _example(rows, row, config, which)
        for rows in config.corpora
        for which, row in _three(first_rows(rows.config))
    ]
    first = ((rows, row) for rows in config.benches for row in first_rows(rows.config)[:1])
    return [*found, *(_example(rows, row, config) for rows, row in first)]


def _three(rows: Sequence[FirstRow]) -> Iterator[tuple[str, FirstRow]]:
    """Fewer where there are fewer rows."""
    by_length = sorted(rows, key=lambda row: len(row.question))
    if len(by_length) > 1:
        yield "shortest", by_length[0]
    if len(by_length) != 2:
        yield from (("median", row) for row in by_length[len(by_length) // 2 :][:1])
    if len(by_length) > 1:
        yield "longest", by_length[-1]


def _example(rows: Rows, row: FirstRow, config: Knobs, which: str = "") -> Example:
    chat = not config.prompting.skip_chat_template
    prompting = _prompting(rows, config)
    prompt = compose(
        prompting.written,
        row.turns,
        shots=_shots(rows, prompting),
        system_prompt=prompting.system_prompt,
        prefix=prompting.assistant_prefix,
    )
    turns = chat or bool(prompt.history)
    note = "the model's chat template writes these turns" if turns else ""
    if isinstance(rows.config, BenchConfig) and rows.config.pool is not None:
        note = f"behind {rows.config.shots} examples that are drawn as the run begins"
    if prompt.history and not chat:
        note = "several turns need a chat template: set prompting.skip_chat_template: false"
    text = _turns(prompt) if turns else prompt.text()
    return Example(_named(rows), row.id, _cut(text), note, which, _cut(row.answer))


def _shots(rows: Rows, prompting: PromptingConfig) -> Sequence[Shot]:
    """The template's own, where the bench shows those."""
    bench, template = rows.config, TEMPLATES.get(prompting.template or "")
    if template is None or not isinstance(bench, BenchConfig) or bench.pool is not None:
        return ()
    return template.shots[: bench.shots]


def _turns(prompt: Prompt) -> str:
    said = [f"{turn['role']}: {turn['content']}" for turn in prompt.messages()]
    return "\n\n".join([*said, f"assistant: {prompt.prefix}"])


def _cut(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n[… {len(text) - _SHOWN} letters …]\n{text[-half:]}"


def _asking(rows: Rows, config: Knobs, *, trains: bool) -> Asking:
    prompting = _prompting(rows, config)
    gates = trains and config.format.composition == "gated"
    return Asking(
        name=_named(rows) if rows.where != "data" else "training",
        where=rows.where,
        verifier_setting=rows.verifier_setting,
        template_setting=_template_setting(rows),
        verifiers=rows.verifiers,
        form=prompting.form,
        around="\n".join(
            [
                prompting.system_prompt,
                prompting.assistant_prefix,
                *(shot.answer for shot in _shots(rows, prompting)),
            ]
        ),
        rows=[row.question for row in first_rows(rows.config)],
        shape=config.format.shape if gates else None,
    )


def _prompting(rows: Rows, config: Knobs) -> PromptingConfig:
    judged = rows.config
    return config.prompting.under(judged.template if isinstance(judged, JudgedSource) else None)


def _template_setting(rows: Rows) -> str:
    return "prompting.template" if rows.where == "data" else f"{rows.where}.template"


def _named(rows: Rows) -> str:
    judged = rows.config
    if isinstance(judged, BenchConfig):
        return judged.label
    return judged.name if isinstance(judged, JudgedSource) else "data"
