"""One prompt of each source and bench as the model gets it: said as a run begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Question
from engine.data.split import Split
from engine.models.policy import Policy
from engine.sampling.prompts import PromptBuilder

PROMPT_EXAMPLE = "PROMPT_EXAMPLE"
_SHOWN = 3_000
"""Letters of a prompt that is shown."""


def rendered(
    before: Split,
    after: Split,
    *,
    training: PromptBuilder,
    benches: Mapping[str, PromptBuilder],
    policy: Policy,
    config: RLRunConfig,
) -> Iterator[str]:
    """One sentence a source: rows over the limit, tokens, ends, and the text itself.

    `before` and `after` the rows without room were left out; training prompts as in step 1.
    """
    new = {bench.name: bench.max_new_tokens or config.max_new_tokens for bench in config.heldout}
    labels = {bench.name: bench.label for bench in config.heldout}
    all_rows, kept = _by_source(before), _by_source(after)
    for source, rows in kept.items():
        builder = benches.get(source, training)
        row = rows[0]
        yield (
            f"{labels.get(source, source) or config.data.source}: "
            + _room(
                len(all_rows[source]), len(rows), new.get(source, config.max_new_tokens), policy
            )
            + f"; row {row.id!r} is asked in {len(builder(row))} tokens, and "
            f"{' or '.join(_ends(policy))} ends a completion: {_cut(builder.text(row))!r}"
        )


def _by_source(split: Split) -> Mapping[str, Sequence[Question]]:
    found: dict[str, list[Question]] = {}
    for row in split.rows:  # what trains comes first
        found.setdefault(row.source, []).append(row)
    return found


def _room(rows: int, kept: int, new: int, policy: Policy) -> str:
    over = rows - kept
    if policy.window is None:
        return f"{rows} rows; this model names no window"
    longest = policy.window - new
    return (
        f"{over} of {rows} rows ({over / rows:.1%}) over {longest} tokens, the window of "
        f"{policy.window} less max_new_tokens {new}"
    )


def _ends(policy: Policy) -> Sequence[str]:
    return [repr(policy.tokenizer.convert_ids_to_tokens(i)) for i in sorted(policy.eos_ids)]


def _cut(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]} […{len(text) - _SHOWN} letters…] {text[-half:]}"
