"""A bench of an evaluation: its rows, how they are asked, and who reads the answers.

In a list of benches a text is short for one: `harness:gsm8k_cot` or `gsm8k_cot` a task of
lm-evaluation-harness, `run:DIRECTORY` the held-out rows of a run, and a path a file that holds
a bench (`bench: FILE` in a mapping: the rest is said beside it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from engine.contract.documents import parse_yaml, read_text
from engine.contract.errors import ConfigError, ConfigProblem, RLLoopError
from engine.contract.paths import located
from engine.contract.run_dir import RunDir
from engine.contract.scores import Runner
from engine.contract.section import refusal
from engine.contract.sources import benches as held
from engine.contract.sources.config import NO_FILE, SourceConfig
from engine.contract.sources.mixture import JudgedSource, Name
from engine.contract.sources.questions import EMBEDDED_TASKS, source_cautions, survey
from engine.contract.tasks import (
    TASKS,
    Filter,
    Task,
    harness_problem,
    task_named,
    task_shots_problem,
    without_rows,
)
from engine.contract.templates.table import TEMPLATES
from engine.contract.verifiers import VerifierName, library_problem

HARNESS, RUN = "harness:", "run:"
_SUFFIXES = {".yaml", ".yml", ".json"}


def _shots(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


class EvalBench(JudgedSource):
    """Rows that checkpoints are scored on. What is left out is as its task has it."""

    name: Name
    """What it is called in tables and files; else its task's name, or that of its file."""
    source: str = ""
    """The rows: as `data.source`."""
    task: str | None = None
    """A task of lm-evaluation-harness: its prompts, stops, filters and limit (docs/evaluation.md
    lists them)."""
    runner: Literal["own", "harness"] = "own"
    """Who asks and judges: the run's sampler and verifiers, or lm-evaluation-harness itself (extra
    `eval`; a task is then needed)."""
    run: str | None = None
    """Instead of `source` the directory of an `rl_run`: its frozen held-out rows, asked as its
    gates ask them."""
    part: Literal["report", "select"] = "report"
    """With `run`: the rows that were scored once, or those that picked the checkpoint."""
    also: list[VerifierName] = Field([], max_length=16)
    """Verifiers that judge the same completions beside `verifier`."""
    shots: Annotated[list[int], BeforeValidator(_shots)] = Field(
        [], max_length=8, json_schema_extra={"type": ["integer", "array"]}
    )
    """Worked examples in front of each question; `[0, 4, 8]` scores each number. Else as many as
    the task usually shows."""
    shots_from: str | None = None
    """A file of training rows that examples are drawn from, where the task has none of its own."""
    fewshot_seed: int = Field(1234, ge=0, lt=2**31)
    """Of the stream that they are drawn by; that of the harness by default."""
    temp: float = Field(0.0, ge=0, le=10)
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int | None = Field(None, ge=1, le=131_072)
    """Longest completion, in tokens; else the task's limit, or the evaluation's."""
    stops: list[str] | None = Field(None, max_length=32)
    """Texts at which a completion ends; else those of its template."""
    samples: int = Field(1, ge=1, le=4096)
    """Completions of each row: pass@k is estimated for every k up to it."""
    by: list[str] = Field([], max_length=8)
    """Columns of the rows, `level` or `extra_info.level`: the score is also told for each value."""

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, data: Any) -> Any:
        return _filled(data)

    @field_validator("source")
    @classmethod
    def _absolute(cls, source: str) -> str:
        return source if not source or source.startswith(NO_FILE) else str(located(source))

    @field_validator("run", "shots_from")
    @classmethod
    def _located(cls, path: str | None) -> str | None:
        return None if path is None else str(located(path))

    @field_validator("task")
    @classmethod
    def _known(cls, task: str | None) -> str | None:
        found = None if task is None else task_named(task)
        if found is not None and not isinstance(found, Task):
            raise ValueError("; ".join(found))
        return task

    @field_validator("shots")
    @classmethod
    def _each_once(cls, shots: list[int]) -> list[int]:
        if any(not 0 <= one <= 64 for one in shots) or len(set(shots)) < len(shots):
            raise ValueError("must be numbers from 0 to 64, each once; write e.g. [0, 4, 8]")
        return shots

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.run is None) == (not self.source):
            raise refusal(["source"], self.source or None, "; ".join(self._of_rows()))
        if self.runner == "harness" and self.task is None:
            raise refusal(["task"], None, "is missing: the harness runs tasks; name one")
        if self.temp == 0 and self.samples > 1:
            raise ValueError(
                f"samples: {self.samples} are all alike with temp: 0; set samples: 1, or a temp"
            )
        if self.runner == "harness" and (self.temp or self.samples > 1):
            raise ValueError(
                "is greedy where the harness runs it, one completion a row; leave temp and "
                "samples out, or use runner: own"
            )
        self._check_shots()
        return self

    def _of_rows(self) -> tuple[str, str]:
        if self.run is not None:
            return "is named beside a run", "keep one of them"
        if self.of_task is not None:
            return without_rows(self.of_task)
        return f"is missing: bench {self.name} has no rows", "name its file with source"

    def _check_shots(self) -> None:
        for shots in self.numbers_of_shots:
            problem = _shots_problem(self, shots)
            if problem:
                raise refusal(["shots"], shots, "; ".join(problem))

    @property
    def of_task(self) -> Task | None:
        """What the task says."""
        return None if self.task is None else TASKS[self.task]

    @property
    def form(self) -> str | None:
        """The template of its prompts."""
        return self.template or (self.of_task.template.name if self.of_task else None)

    @property
    def numbers_of_shots(self) -> Sequence[int]:
        """Each is scored by itself."""
        return self.shots or [self.of_task.usual_shots if self.of_task else 0]

    @property
    def filters(self) -> Sequence[Filter]:
        """How answers are read, the first one being the bench's own."""
        own = self.of_task.filters if self.of_task and self.verifier is None else ()
        named = [self.verifier] if self.verifier else []
        return [*own, *(Filter(name, name) for name in [*named, *self.also])]

    @property
    def judged(self) -> bool:
        """Whether it says itself who reads its answers."""
        return bool(self.filters) or self.run is not None

    @property
    def ends(self) -> Sequence[str]:
        """Texts at which a completion ends."""
        if self.stops is not None:
            return self.stops
        return TEMPLATES[self.form].stops if self.form else ()

    @property
    def rows(self) -> SourceConfig:
        """Its source alone."""
        names = SourceConfig.model_fields
        return SourceConfig.model_construct(**{name: getattr(self, name) for name in names})

    @property
    def pool(self) -> SourceConfig | None:
        """The source that examples are drawn from, read as its rows are."""
        if self.shots_from is None:
            return None
        every = {"source": self.shots_from, "limit": None, "shuffle": None}
        return self.rows.model_copy(update=every)

    def label_of(self, shots: int) -> str:
        """What people call it with so many shots."""
        return held.label_of(self.name, shots)

    def split_of(self, shots: int) -> str:
        """The part of a file's name that tells its completions from those of others."""
        told = f"-{shots}" if len(self.numbers_of_shots) > 1 or shots else ""
        return f"{self.name[:26]}{told}{'-harness' if self.runner == 'harness' else ''}"


class Asked(NamedTuple):
    """A bench at one number of shots."""

    bench: EvalBench
    shots: int

    @property
    def split(self) -> str:
        return self.bench.split_of(self.shots)

    @property
    def runner(self) -> Runner:
        return self.bench.runner


def asked_benches(benches: Sequence[EvalBench]) -> Iterator[Asked]:
    """Every bench at each of its numbers of shots."""
    for bench in benches:
        for shots in bench.numbers_of_shots:
            yield Asked(bench, shots)


def named_twice(benches: Sequence[EvalBench]) -> str | None:
    """A name under which the completions of two of them would be found."""
    names = [one.split for one in asked_benches(benches)]
    return next((name for name in names if names.count(name) > 1), None)


def _shots_problem(bench: EvalBench, shots: int) -> tuple[str, str] | None:
    """Why it cannot show so many worked examples, with the way out."""
    if bench.run is not None:
        return ("cannot be set beside run, whose gates ask without", "remove it") if shots else None
    if bench.shots_from is not None and bench.shots_from == bench.source:
        return "would show its own test rows", "name a file of training rows with shots_from"
    task = bench.of_task
    if task is not None:
        return task_shots_problem(task, shots, bench.shots_from)
    own = TEMPLATES[bench.form].shots if bench.form else ()
    if shots <= len(own) or bench.shots_from is not None:
        return None
    has = f"{bench.form} has {len(own)} worked examples" if bench.form else "there are none"
    return f"{has}, and no file to draw from", "name training rows with shots_from"


def _filled(data: Any) -> Any:
    """From a text or a mapping to a mapping with a name."""
    if isinstance(data, str):
        data = _short(data)
    if not isinstance(data, Mapping):
        return data
    said = dict(data)
    if isinstance(said.get("bench"), str):
        said = _of_file(said.pop("bench")) | said
    task = said.get("task")
    if isinstance(task, str) and task.startswith(HARNESS):
        said |= {"task": task.removeprefix(HARNESS), "runner": "harness"}
    if not said.get("name"):
        said["name"] = _name_of(said)
    return said


def _short(text: str) -> dict[str, Any]:
    if text.startswith(RUN):
        return {"run": text.removeprefix(RUN)}
    if Path(text).suffix in _SUFFIXES:
        return _of_file(text)
    return {"task": text}


def _of_file(path: str) -> dict[str, Any]:
    """Raises ValueError for a file that cannot be read or holds no mapping."""
    file = located(path)
    try:
        return parse_yaml(read_text(file))
    except OSError as error:
        raise ValueError(f"bench file {file} cannot be read: {error}") from None
    except ConfigError as error:
        raise ValueError(f"bench file {file}: {error}") from None


def _name_of(said: Mapping[str, Any]) -> str:
    task, run, source = (said.get(name) for name in ("task", "run", "source"))
    if isinstance(task, str):
        return task
    if isinstance(run, str):
        return f"run-{Path(run).name}"
    stem = Path(source).stem if isinstance(source, str) else "bench"
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in stem).strip("-._")[:40]


def limit_of(bench: EvalBench, usual: int) -> int:
    """Its longest completion, in tokens."""
    if bench.max_new_tokens is not None:
        return bench.max_new_tokens
    return bench.of_task.max_new_tokens if bench.of_task else usual


def benches_problems(benches: Sequence[EvalBench]) -> Iterator[ConfigProblem]:
    """What only a look at the disk can tell: rows that cannot be read or judged, missing files."""
    for place, bench in enumerate(benches):
        where = f"benches.{place}"
        for one in bench.filters:
            if lacks := library_problem(one.verifier):
                yield ConfigProblem(f"{where}.verifier", one.verifier, *lacks)
        if bench.run is not None:
            yield from _run_problems(bench, where)
            continue
        task = bench.of_task
        if bench.runner == "harness" and task is not None and (lacks := harness_problem(task)):
            yield ConfigProblem(f"{where}.runner", bench.runner, *lacks)
        yield from _rows_problems(bench.rows, bench, where)
        if bench.pool is not None:
            yield from _rows_problems(bench.pool, bench, where, of="shots_from")


def benches_cautions(benches: Sequence[EvalBench]) -> Iterator[ConfigProblem]:
    """How their rows were read."""
    for place, bench in enumerate(benches):
        if bench.run is not None or bench.source.startswith("embedded:"):
            continue
        with suppress(RLLoopError):
            corpus = survey(bench.rows, _verifiers(bench))
            yield from source_cautions(f"benches.{place}", bench.rows, corpus)


def _rows_problems(
    rows: SourceConfig, bench: EvalBench, where: str, of: str = "source"
) -> Iterator[ConfigProblem]:
    if rows.source.startswith("embedded:"):
        if rows.source not in EMBEDDED_TASKS:
            known, problem = ", ".join(EMBEDDED_TASKS), "is not an embedded data set"
            yield ConfigProblem(f"{where}.{of}", rows.source, problem, f"known: {known}")
        return
    try:
        corpus = survey(rows, _verifiers(bench))
    except RLLoopError as error:
        yield from (replace(one, field=_under(where, of, one.field)) for one in error.problems)
        return
    if corpus.rows == 0:
        yield ConfigProblem(f"{where}.{of}", rows.source, "has no rows", "name another file")
    for one in corpus.unfit if of == "source" else ():
        if one.refuses:
            yield one.as_problem(f"{where}.verifier", corpus.answer_column)


def _under(where: str, of: str, field: str) -> str:
    name = field.removeprefix("data.")
    return f"{where}.{of if name == 'source' else name}"


def _verifiers(bench: EvalBench) -> Sequence[str]:
    named = () if bench.verifier_field else [one.verifier for one in bench.filters]
    return tuple(dict.fromkeys(named))


def _run_problems(bench: EvalBench, where: str) -> Iterator[ConfigProblem]:
    run = RunDir(Path(bench.run or ""))
    if not run.split.is_file():
        problem = "is no directory of an rl_run with frozen rows (it has no split.json)"
        remedy = "name a run that has begun: runs/NUMBER"
        yield ConfigProblem(f"{where}.run", bench.run, problem, remedy)
