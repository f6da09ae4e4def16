"""The charts of a run, and which of them each kind of run shows first.

A chart that a page shows is declared here and nowhere else. Knows no value and no pixel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.text import wording
from engine.contract.sources.benches import OWN

SOLID: Sequence[int] = ()
DASHED, DOTTED, DASH_DOT, LONG, SHORT = (8, 4), (2, 4), (12, 4, 2, 4), (18, 4), (4, 3)
"""Pixels drawn and left out: a line is not known by its colour alone."""
_DASHES = (SOLID, DASHED, DOTTED)


@dataclass(frozen=True)
class Line:
    """One series on a chart."""

    series: str
    label: str
    unit: str = ""
    """`share` prints as per cent; anything else stands behind the number."""
    colour: str = "a"
    """Which of the style sheet's chart colours: `--chart-a` …"""
    axis: str = "left"
    marks: bool = False
    """Draw each point: they are rare and each one counts."""
    dash: Sequence[int] = SOLID

    def text(self, value: float | None) -> str:
        """One value in words."""
        if value is None:
            return wording.UNKNOWN
        if self.unit == "share":
            return wording.percent(value)
        return f"{wording.number(value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Chart:
    """One drawing."""

    name: str
    title: str
    lines: Sequence[Line]
    band: tuple[str, str] | None = None
    """Series of the lower and upper end of an interval, drawn behind the lines."""
    x_label: str = "step"

    @property
    def series(self) -> list[str]:
        """Every series the chart reads."""
        return [line.series for line in self.lines] + list(self.band or ())

    @property
    def rare(self) -> list[str]:
        """Those of which each value counts, with their interval."""
        return [line.series for line in self.lines if line.marks] + list(self.band or ())


HELDOUT = "heldout/select"
POOL = "pool/score"
OF_SOURCE = f"{POOL}/"
"""How the pool scores of a mixture's sources begin."""
_FATES = ("used", "wasted", "filtered", "failed")
"""Of a sampled group, as the engine counts them."""
_OF_FATES = (SOLID, DASHED, DOTTED, DASH_DOT)
_MOST_SOURCES = 8
"""That one chart can be read with."""


def _drops(name: str, of: str) -> Chart:
    """Of the rollouts of one stage-2 trainer."""
    invalid = "stage2/invalid_rollout"
    return Chart(
        name,
        "Entries dropped from rollouts",
        (
            Line(f"{of}/strict_drop/N_valid_pred", "kept", "", "a", marks=True),
            Line(f"{of}/strict_drop/N_drop_invalid", "dropped", "", "c", marks=True, dash=DOTTED),
            Line(invalid, "invalid rollouts", "", "d", marks=True, dash=DASHED),
        ),
    )


def _forms(name: str, title: str, among: str = "") -> Chart:
    """In which forms completions write their answers."""
    return Chart(
        name,
        title,
        (
            Line(f"format/boxed{among}", r"\boxed{…}", "share", "a"),
            Line(f"format/hashes{among}", "#### …", "share", "b", dash=DASHED),
            Line(f"format/answer_is{among}", "The answer is …", "share", "c", dash=DOTTED),
            Line(f"format/tags{among}", "<answer>", "share", "d", dash=DASH_DOT),
            Line(f"format/code{among}", "block of code", "share", "a", dash=LONG),
        ),
    )


CHARTS: Mapping[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart(
            "learning",
            "Pool and held-out success",
            (
                Line(POOL, "pool (training prompts)", "share", "a", dash=(5, 3)),
                Line(HELDOUT, "held-out (select rows)", "share", "b", marks=True),
            ),
            band=(f"{HELDOUT}/low", f"{HELDOUT}/high"),
        ),
        Chart(
            "reward",
            "Reward",
            (
                Line("pool/reward_mean", "mean reward", "", "a"),
                Line("pool/reward_std", "standard deviation", "", "d", dash=DASHED),
                Line(
                    "rollout/zero_variance",
                    "groups without variance",
                    "share",
                    "c",
                    "right",
                    dash=DOTTED,
                ),
            ),
        ),
        Chart(
            "kl",
            "KL and entropy",
            (
                Line("train/kl", "KL to the step-0 policy", "nats", "a"),
                Line("train/entropy", "entropy", "nats", "c", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "length",
            "Length and truncation",
            (
                Line("rollout/length_mean", "mean length", "tokens", "a"),
                Line("rollout/truncated", "truncated", "share", "c", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "lengths",
            "Length by correctness",
            (
                Line("rollout/length_mean/right", "right answers", "tokens", "good"),
                Line("rollout/length_mean/wrong", "wrong answers", "tokens", "bad", dash=DASHED),
            ),
        ),
        Chart(
            "gradient",
            "Gradient norm",
            (
                Line("train/grad_norm", "norm before clipping", "", "a"),
                Line("train/lr", "learning rate", "", "d", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "clipping",
            "What the loss leaves out",
            (
                Line("train/clip_fraction", "tokens clipped", "share", "a"),
                Line("train/skipped", "updates skipped", "", "c", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "tokens",
            "Tokens of a step",
            (
                Line("rollout/tokens", "sampled", "tokens", "a"),
                Line("rollout/tokens_mean", "sampled, each", "tokens", "b", dash=DASHED),
                Line("rollout/empty", "empty answers", "share", "c", "right", dash=DOTTED),
                Line("rollout/repeated", "repeat themselves", "share", "d", "right", dash=LONG),
            ),
        ),
        Chart(
            "lag",
            "Lag of the sampler behind the trainer",
            (
                Line("rollout/staleness", "steps behind", "steps", "a"),
                Line("train/sampler_gap_mean", "gap a token", "nats", "c", "right", dash=DOTTED),
                Line("train/sampler_gap_max", "largest gap", "nats", "d", "right", dash=DASHED),
            ),
        ),
        Chart(
            "buffer",
            "Buffer: what became of sampled groups",
            (
                *(
                    Line(f"fate/{fate}", fate, "groups", "abcd"[i % 4], dash=dash)
                    for i, (fate, dash) in enumerate(zip(_FATES, _OF_FATES, strict=True))
                ),
                Line("packing/post_rollout_buffer", "samples waiting", "", "a", dash=SHORT),
            ),
        ),
        Chart(
            "times",
            "Where a step's time goes",
            (
                Line("time/sampling_s", "sampling", "s", "a"),
                Line("time/training_s", "training", "s", "b", dash=DASHED),
                Line("time/verifying_s", "verifying", "s", "c", dash=DOTTED),
                Line("time/sync_s", "weights to the server", "s", "d", dash=DASH_DOT),
                Line("time/rollout_generate_s", "rollouts", "s", "a", dash=LONG),
                Line("time/rollout_parse_match_s", "parsing, matching", "s", "c", dash=SHORT),
            ),
        ),
        _forms("forms", "Forms of answers in the pool"),
        _forms("forms_right", "Forms of right answers in the pool", "/right"),
        _forms("forms_wrong", "Forms of wrong answers in the pool", "/wrong"),
        Chart(
            "throughput",
            "Throughput and memory",
            (
                Line("rollout/tokens_per_s", "sampling", "tokens/s", "a"),
                Line("mem/rss_gb", "engine's memory", "GB", "c", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "detection",
            "Rollouts against the ground truth",
            (
                Line("rollout/precision", "precision", "share", "a", marks=True),
                Line("rollout/recall", "recall", "share", "b", marks=True, dash=DASHED),
                Line("rollout/f1", "F1", "share", "c", marks=True, dash=DOTTED),
            ),
        ),
        Chart(
            "stage2_loss",
            "Losses by term",
            (
                Line("loss/ce", "text", "", "a"),
                Line("loss/bbox_smoothl1", "SmoothL1 of boxes", "", "b", dash=DASHED),
                Line("loss/bbox_ciou", "CIoU of boxes", "", "c", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "matching_loss",
            "Losses by term",
            (
                Line("loss/ce", "text", "", "a"),
                Line("loss/coord_soft_ce", "soft CE of coords", "", "b", dash=DASHED),
                Line("loss/coord_w1", "W1 of coords", "", "c", "right", dash=DOTTED),
            ),
        ),
        _drops("drops", "stage2_ab/channel_b"),
        _drops("drops_matching", "rollout_matching"),
        Chart(
            "packing",
            "Packing",
            (
                Line("packing/post_rollout_fill", "fill of packs", "share", "a"),
                Line("train/forwards", "forwards of a step", "", "c", "right", dash=DOTTED),
            ),
        ),
        Chart(
            "passk",
            "Rows of a step: solved, parsed, cut off",
            (
                Line("passk/pass_at_1", "pass@1", "share", "a"),
                Line("passk/parsed", "parsed", "share", "b", dash=DOTTED),
                Line("passk/truncated", "cut off", "share", "d", dash=DASHED),
            ),
        ),
        Chart(
            "warmup",
            "Warm-up",
            (
                Line("warmup/heldout", "held-out (select rows)", "share", "b", marks=True),
                Line("warmup/loss", "loss", "", "c", axis="right", dash=DOTTED),
                Line(
                    "format/well_formed",
                    "well-formed, form taught first",
                    "share",
                    "d",
                    dash=DASHED,
                ),
            ),
            x_label="warm-up step",
        ),
    )
}

MORE = ("gradient", "clipping", "tokens", "lag", "buffer", "times", "packing")
"""What any run may have beside the charts that it opens with: found by name, drawn when opened."""

CURATED: Mapping[str, Sequence[str]] = {
    "eval_rerun": ("passk",),
    "rl_run": (
        *("learning", "reward", "kl", "length", "lengths", "gradient", "throughput"),
        *("forms", "forms_right", "forms_wrong"),
    ),
    "rollout_matching_sft": ("learning", "detection", "matching_loss", "drops", "packing"),
    "stage2_ab": ("learning", "detection", "stage2_loss", "drops", "packing"),
}
"""The charts that a run's page opens with: the first one wide, those of the others beside it that
have values."""
WARMUP = CHARTS["warmup"]
SOURCES = "sources"
"""The chart of a mixture, whose lines are its sources."""
BENCHES = "benches"
"""The chart of held-out benches."""
TOKENS = "rollout/tokens"
"""Sampled in a step; their sum is the axis of tokens."""


def curated(kind: str) -> Sequence[Chart]:
    """The charts a page of this kind opens with; of a kind nobody knows, all there are."""
    return [CHARTS[name] for name in CURATED.get(kind, CHARTS)]


def more(kind: str) -> Sequence[Chart]:
    """The others that a run of this kind may have."""
    shown = CURATED.get(kind, CHARTS)
    return [CHARTS[name] for name in MORE if name not in shown]


def by_source(series: Iterable[str]) -> Chart:
    """Each source of a mixture: its pool score and its held-out rows."""
    names = sorted(one.removeprefix(OF_SOURCE) for one in series if one.startswith(OF_SOURCE))
    lines = []
    for i, name in enumerate(names[:_MOST_SOURCES]):
        colour, dash = "abcd"[i % 4], (SOLID, DASHED)[i // 4]
        lines.append(Line(f"{OF_SOURCE}{name}", f"{name}, pool", "share", colour, dash=dash))
        lines.append(
            Line(f"heldout/{name}", f"{name}, held-out", "share", colour, marks=True, dash=DOTTED)
        )
    return Chart(SOURCES, "Pool and held-out success by source", lines)


def by_bench(benches: Mapping[str, str]) -> Chart:
    """Each bench of a run, by its name with what people call it."""
    named = [*benches.items()][:_MOST_SOURCES] + ([(OWN, "the run's own rows")] if benches else [])
    lines = [
        Line(f"heldout/{name}", label, "share", "abcd"[i % 4], marks=True, dash=_DASHES[i // 4])
        for i, (name, label) in enumerate(named)
    ]
    return Chart(BENCHES, "Held-out benches", lines)


def heldout_name(series: str) -> str | None:
    """Of the score of some held-out rows: which rows; None for every other series."""
    kind, _, name = series.partition("/")
    return name if kind == "heldout" and name and "/" not in name else None


def of_one(series: str) -> Chart:
    """A chart of any recorded series; a held-out score with its interval."""
    if name := heldout_name(series):
        line = Line(series, f"held-out, {name}", "share", "b", marks=True)
        band = (f"{series}/low", f"{series}/high")
        return Chart(series, f"Held-out: {name}", (line,), band)
    label = "warm-up step" if series.startswith("warmup/") else "step"
    return Chart(series, series, (Line(series, series),), x_label=label)
