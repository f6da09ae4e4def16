"""The held-out rows of a run, asked and judged as its gates do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.contract.sources.benches import BenchConfig
from engine.contract.templates.table import TEMPLATES
from engine.data.heldout import load_rows
from engine.data.rows import Question, load
from engine.data.split import thawed
from engine.evaluate.bench import EvalUnit, Judge
from engine.rewards.of_run import build_reward
from engine.sampling.prompts import Examples, no_examples
from engine.sampling.shots import drawn_examples, fixed_examples

METRIC = "success"


def unit_of_run(
    run: RLRunConfig, folder: RunDir, part: Literal["report", "select"], name: str, field: str
) -> EvalUnit:
    """The frozen rows of a run, of its own or of the bench that decides.

    Raises RLLoopError, by `field`, where they are no longer in its data files.
    """
    found = load_rows(run)
    every = [*found.corpus.questions, *(row for rows in found.benches.values() for row in rows)]
    split = thawed(every, folder.split)
    rows: Sequence[Question] = getattr(split, part) if split is not None else ()
    if not rows:
        problem = f"has no {part} rows that are still in its data files"
        remedy = "restore its files, or name another"
        raise RLLoopError.of(field, str(folder.root), problem, remedy)
    bench = next((one for one in run.heldout if one.name == run.decide), None)
    named = "+".join(sorted({row.verifier for row in rows} - {""})) or run.verifier
    return EvalUnit(
        name,
        name,
        rows,
        [Judge(named, METRIC, build_reward(run, rows))],
        prompting=run.prompting,
        examples=no_examples if bench is None else _examples(run, bench, found.benches[bench.name]),
        shots=0 if bench is None else bench.shots,
        temp=run.heldout_temp if bench is None or bench.temp is None else bench.temp,
        max_new_tokens=(bench and bench.max_new_tokens) or run.max_new_tokens,
        stops=TEMPLATES[bench.template].stops if bench and bench.template else (),
        sampling=run.sampling,
        seed=run.seed,
        purpose="heldout",
        picked=part == "select",
        templates={one.name: one.template for one in (*run.data.mix, *run.heldout)},
        weights={} if bench else run.data.weights,
    )


def _examples(run: RLRunConfig, bench: BenchConfig, rows: Sequence[Question]) -> Examples:
    template = bench.template or run.prompting.template
    if bench.pool is None:
        return fixed_examples(template, bench.shots)
    pool = load(bench.pool).questions
    return drawn_examples(rows, pool, bench.shots, template=template, config=run.format)
