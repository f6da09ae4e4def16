"""The real parts behind the loop's seams, built from a config.

Whoever wires them decides where the policy's weights come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from peft import get_peft_model_state_dict

from engine.contract.errors import ConfigProblem, RLLoopError
from engine.contract.events import ends
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.serving import stacks_problem
from engine.contract.run_dir import RunDir, complete_checkpoints
from engine.contract.sources.benches import OWN, BenchConfig
from engine.contract.templates.table import TEMPLATES
from engine.data.curriculum import what_is_drawn
from engine.data.heldout import bench_rows
from engine.data.leaks import OVERLAP, what_overlaps
from engine.data.overlong import Room, fitted
from engine.data.rows import Bench, Question, load
from engine.data.split import Split, freeze
from engine.evaluate.gate import Gate
from engine.models import lora, precision
from engine.models.chat import Clock, local_now
from engine.models.policy import Policy, Snapshot, build, require_finite, take_template
from engine.rewards.adapter import RewardAdapter
from engine.rewards.of_run import build_judges
from engine.rl.asked import bench_facts
from engine.rl.loop import HeldoutBench
from engine.rl.rendered import PROMPT_EXAMPLE, rendered
from engine.rl.served_rollouts import ServedRollouts
from engine.rl.trainer import Trainer
from engine.run.ranks import Ranks
from engine.run.session import Attempt
from engine.sampling.base import OwnWeights, Sampler
from engine.sampling.decoding import Way, way_of
from engine.sampling.hf import HFSampler
from engine.sampling.prompts import Examples, PromptBuilder, fading_examples
from engine.sampling.rollouts import Rollouts
from engine.sampling.shots import drawn_examples, fixed_examples
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.sampler import VLLMServerSampler

Purpose = Literal["train", "heldout"]


def say(attempt: Attempt, rows: Iterable[str], cautions: Iterable[ConfigProblem]) -> None:
    """How the rows were read, and what the config is warned of."""
    for told in rows:
        attempt.note("DATA", told)
    for caution in cautions:
        attempt.warn("CAUTION", caution.line())


def open_policy(attempt: Attempt, config: RLRunConfig) -> Policy:
    """The policy of an attempt; how much of it an adapter reaches is said. Raises RLLoopError."""
    policy = build_policy(config, attempt.now)
    if lora.adapted(policy.model):
        reach = lora.coverage(policy.model)
        said = f"tuning: {config.tuning}: {reach}{_way_to_more(config)}"
        # Which layers an adapter that is given has was decided elsewhere.
        fresh = config.adapter_init is None
        say = attempt.warn if fresh and reach.share < lora.LITTLE_REACH else attempt.note
        say("ADAPTER_REACH", said)
    return policy


def _way_to_more(config: RLRunConfig) -> str:
    if config.adapter_init is not None:
        return ""
    if config.tuning == "dora":
        return ". PEFT has DoRA for linear layers alone; LoRA reaches stacked experts too"
    return ". A server takes no adapter of stacked experts" if config.sends_adapters else ""


def build_policy(config: RLRunConfig, clock: Clock = local_now) -> Policy:
    """The base, with an adapter when only that is tuned. Raises RLLoopError.

    With a chat template asked for, the end of its turns is an end of the policy's completions.
    """
    policy = build(config.base, config.seed)
    take_template(policy, config.prompting, clock)
    if config.tuning != "full":
        policy.model = _adapted(config, policy)
    policy.precision = config.optim.precision
    precision.prepare(policy.model, policy.precision)
    return policy


def _adapted(config: RLRunConfig, policy: Policy) -> Any:
    if config.adapter_init is not None:
        model = lora.attach_folder(policy.model, config.adapter_init)
        require_finite(
            "adapter_init",
            config.adapter_init,
            get_peft_model_state_dict(model, save_embedding_layers=False),
        )
        if config.sends_adapters and lora.reaches_stacks(model):
            raise RLLoopError([stacks_problem(config.adapter_init)])
        return model
    return lora.attach_zero(
        policy.model,
        base=config.base,
        rank=config.lora_rank,
        alpha=config.lora_alpha,
        seed=config.seed,
        dora=config.tuning == "dora",
        stacks=not config.sends_adapters,
    )


def bench_examples(config: RLRunConfig, bench: BenchConfig) -> Examples:
    """The worked examples that a bench shows. Raises RLLoopError where there are too few."""
    template = bench.template or config.prompting.template
    if bench.pool is None:
        return fixed_examples(template, bench.shots)
    rows, pool = bench_rows(config, bench), load(bench.pool).questions
    try:
        return drawn_examples(rows, pool, bench.shots, template=template, config=config.format)
    except RLLoopError as error:
        field = f"heldout.{config.heldout.index(bench)}.shots"
        raise RLLoopError([replace(one, field=field) for one in error.problems]) from error


def build_prompts(
    config: RLRunConfig,
    policy: Policy,
    shown: Sequence[Question] = (),
    bench: BenchConfig | None = None,
) -> PromptBuilder:
    """From a question to the ids in front of its completion; `shown` rows may be examples, a bench
    has its own.

    Raises RLLoopError for a chat template that the tokenizer does not have.
    """
    examples = fading_examples(shown, config.format, config.max_steps)
    if bench is not None and bench.shots:
        examples = bench_examples(config, bench)
    clock = policy.chat.clock if policy.chat else local_now
    named = {rows.name: rows.template for rows in (*config.data.mix, *config.heldout)}
    return PromptBuilder(
        policy.tokenizer, config.prompting, examples, policy.known_tokens, clock, named
    )


class Prompts(NamedTuple):
    """What a run asks, and how."""

    split: Split
    """With rows left out whose prompt leaves no room for an answer, where the config allows it."""
    heldout: PromptBuilder
    training: PromptBuilder
    benches: Mapping[str, PromptBuilder]


def build_run_prompts(
    attempt: Attempt, config: RLRunConfig, policy: Policy, split: Split, corpus: Bench
) -> Prompts:
    """All builders, and the split with the rows that fit, which is frozen in the run directory.

    Raises RLLoopError for rows that do not fit or are no longer those that the run began with, and
    for a curriculum's file that is not of the corpus.
    """
    heldout = build_prompts(config, policy)
    training = build_prompts(config, policy, split.train)
    benches = {bench.name: build_prompts(config, policy, bench=bench) for bench in config.heldout}
    whole = split
    split = fitted(
        split,
        config,
        policy.window,
        lengths=heldout.lengths,
        training_lengths=training.lengths,
        benches={
            bench.name: Room(benches[bench.name].lengths, drawing_of(config, bench).max_new_tokens)
            for bench in config.heldout
        },
        warn=attempt.warn,
    )
    for leaks, text in what_overlaps(split, config):
        (attempt.warn if leaks else attempt.note)(OVERLAP, text)
    for code, text in what_is_read(heldout, policy, config, split):
        attempt.note(code, text)
    for text in rendered(
        whole, split, training=training, benches=benches, policy=policy, config=config
    ):
        attempt.note(PROMPT_EXAMPLE, text)
    split = replace(split, benches=bench_facts(config, split, benches))
    freeze(split, attempt.run.split, proof=_proof_of_split(attempt.run))
    for text in what_is_drawn(config.data, corpus.questions, split.train):
        attempt.note("CURRICULUM", text)
    return Prompts(split, heldout, training, benches)


def of_policy(policy: Policy) -> dict[str, Any]:
    """For the run card: the date that its prompts say, where they say one; the reach of its
    adapter, where it has one.
    """
    chat = policy.chat
    dated = {"prompt_date": chat.clock().isoformat()} if chat and chat.is_dated else {}
    if not lora.adapted(policy.model):
        return dated
    return {**dated, "adapter_reach": lora.coverage(policy.model).as_dict()}


def what_is_read(
    prompts: PromptBuilder, policy: Policy, config: RLRunConfig, split: Split
) -> Iterator[tuple[str, str]]:
    """(code, sentence) of what a person might not expect of prompts, their ends and decoding.

    Raises RLLoopError for a row with text that cannot be told from a control token, and for a model
    that cannot be sampled soundly.
    """
    chat = policy.chat
    if chat is not None and chat.is_dated:
        today = f"{chat.clock():%Y-%m-%d %H:%M}"
        yield "PROMPT_DATE", f"the chat template writes the date: {today} in every attempt"
    if policy.added_end is not None:
        yield (
            "TURN_END",
            f"the chat template ends a turn with {policy.added_end!r}, which is not among the "
            "model's end tokens: it ends a completion too, and a warm-up teaches it",
        )
    way = Way.PADDED if config.serves else way_of(policy)
    if way is not Way.PADDED:
        yield "DECODING", f"{policy.model.config.model_type} is sampled {way}: slower"
    rows = split.rows
    held = [(row.id, tokens) for row in rows for tokens in [prompts.held(row)] if tokens]
    if held:
        row, tokens = held[0]
        yield (
            "PLAIN_TEXT",
            f"{len(held)} of {len(rows)} rows hold the characters of control tokens, the first "
            f"{tokens[0]!r} in row {row!r}: they are read as plain text",
        )
    spelled = prompts.codec.held(config.prompting.system_prompt)
    if spelled:
        yield (
            "PLAIN_TEXT",
            f"prompting.system_prompt holds the characters of the control token {spelled[0]!r}: "
            "they are read as plain text; question_format and assistant_prefix may hold tokens",
        )


def _proof_of_split(run: RunDir) -> Collection[str] | None:
    """Hashes of the split that the run's results name; None while nothing was trained."""
    if not complete_checkpoints(run):
        return None
    corpora = (
        upstream.get("corpus")
        for event in ends(run.events)
        if isinstance(upstream := event["result"].get("upstream"), Mapping)
    )
    return {str(corpus.get("split")) for corpus in corpora if isinstance(corpus, Mapping)}


def build_sampler(
    config: RLRunConfig,
    policy: Policy,
    purpose: Purpose,
    shown: Sequence[Question] = (),
    lane: ServingLane | None = None,
    *,
    bench: BenchConfig | None = None,
) -> Sampler:
    """Training draws anew each time; the held-out gate always draws alike, and asks bare questions.

    `shown` are training rows that may stand before a question as examples. With a serving lane
    its server draws, else the policy itself does. A bench brings temperature and limits of its own.
    """
    training = purpose == "train"
    if training and config.format.shots and not shown:
        problem = "needs training rows to show, and there are none here"
        raise RLLoopError.of(
            "format.shots", config.format.shots, problem, "run it as a job, or use 0"
        )
    drawing = Drawing(config.temp, config.max_new_tokens) if training else drawing_of(config, bench)
    encode = build_prompts(config, policy, shown if training else (), bench)
    if lane is not None:
        served = VLLMServerSampler(
            lane=lane,
            policy=policy,
            seed=config.seed,
            purpose=purpose,
            temp=drawing.temp,
            max_new_tokens=drawing.max_new_tokens,
            encode=encode,
            pin_version=not training,
        )
        return ServedRollouts(
            Rollouts(served, lane, encode.begins, drawing.stops),
            policy,
            temp=drawing.temp,
            max_new_tokens=drawing.max_new_tokens,
            limit=config.objective.sampler_gap_limit_used(policy.precision, drawing.temp),
            reads_all=training,
            held=config.buffer.max_staleness if training and config.draws_ahead else 0,
        )
    own = HFSampler(
        policy=policy,
        seed=config.seed,
        purpose=purpose,
        temp=drawing.temp,
        max_new_tokens=drawing.max_new_tokens,
        batch_size=config.rollout_batch,
        pin_version=not training,
        sampling=config.sampling,
        encode=encode,
        stops=drawing.stops,
    )
    return Rollouts(own, OwnWeights(), encode.begins)


class Drawing(NamedTuple):
    """How completions of one kind of rows are drawn."""

    temp: float
    max_new_tokens: int
    stops: Sequence[str] = ()
    """Texts at which they end."""


def drawing_of(config: RLRunConfig, bench: BenchConfig | None) -> Drawing:
    """Of a bench; of the run's own held-out rows without one."""
    temp = config.heldout_temp if bench is None or bench.temp is None else bench.temp
    longest = bench.max_new_tokens if bench else None
    # A template's stops belong to the bench that names it; what trains ends by itself.
    stops = TEMPLATES[bench.template].stops if bench and bench.template else ()
    return Drawing(temp, longest or config.max_new_tokens, stops)


def build_gate(
    config: RLRunConfig,
    policy: Policy,
    reward: RewardAdapter,
    lane: ServingLane | None = None,
    name: str = OWN,
) -> Gate:
    """The held-out evaluation of whatever weights the policy has when asked, of the run's own rows
    or of a bench by name.
    """
    bench = next((one for one in config.heldout if one.name == name), None)
    sampler = build_sampler(config, policy, "heldout", lane=lane, bench=bench)
    weights = {} if bench else config.data.weights
    also = build_judges(config, bench.also if bench else ())
    return Gate(sampler, reward, drawing_of(config, bench).temp, weights, also)


def build_benches(
    config: RLRunConfig,
    policy: Policy,
    reward: RewardAdapter,
    split: Split,
    lane: ServingLane | None = None,
) -> list[HeldoutBench]:
    """Those that pick nothing."""
    every = {bench.name: bench.every for bench in config.heldout}
    return [
        HeldoutBench(name, rows, build_gate(config, policy, reward, lane, name), every.get(name, 1))
        for name, rows in split.others.items()
    ]


def build_trainer(
    config: RLRunConfig,
    policy: Policy,
    ranks: Ranks = Ranks(),  # noqa: B008 - frozen
    trainer: type[Trainer] = Trainer,
) -> Trainer:
    """Call it while the policy stands at step 0: this is where the KL reference is taken."""
    return trainer(
        policy,
        Snapshot(policy),
        lr=config.lr,
        kl_coef=config.kl_coef,
        grad_clip=config.grad_clip,
        temp=config.temp,
        micro_batch=config.micro_batch,
        max_new_tokens=config.max_new_tokens,
        max_steps=config.max_steps,
        objective=config.objective,
        optim=config.optim,
        ranks=ranks,
    )
