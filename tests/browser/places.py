"""Every page there is, once: what the screenshots take and what the tests of all pages open."""

from __future__ import annotations

from dataclasses import dataclass

from tests.filled import Filled


@dataclass(frozen=True)
class Place:
    """One page; `{name}` in its address is the number of a job of `tests.filled`."""

    name: str
    address: str
    empty: bool = True
    """Whether there is such a page while nothing was queued."""
    rare: bool = False
    """Another view of such a page: seen in one look, in all four by the long form."""

    def at(self, filled: Filled | None) -> str:
        """Its address in a filled directory, or in an empty one."""
        if filled is None:
            return self.address
        return self.address.format(**filled.ids, sweep=filled.sweep_id, bad_night=filled.bad_night)


def _rare(name: str, address: str) -> Place:
    return Place(name, address, empty=False, rare=True)


PLACES = (
    Place("board", "/"),
    Place("board-failed", "/?state=failed", empty=False),
    Place("run-live", "/jobs/{running}", empty=False),
    Place("run-gain", "/jobs/{gain}", empty=False),
    Place("run-crash", "/jobs/{crash}", empty=False),
    Place("run-queued", "/jobs/{too_large}", empty=False),
    Place("chart-table", "/jobs/{gain}/charts/learning", empty=False),
    Place("runs", "/runs"),
    Place("machine", "/machine"),
    Place("audit", "/audit"),
    Place("new", "/new"),
    Place("help", "/help"),
    Place("stop", "/stop"),
    Place("lost", "/nothing-is-here"),
    Place("queue", "/queue"),
    _rare("queue-edit", "/queue/jobs/{too_large}/edit"),
    Place("report", "/report"),
    Place("compare", "/compare"),
    Place("compare-two", "/compare?job={gain}&job={loss}", empty=False),
    Place("compare-sweep", "/compare?sweep={sweep}&sort=-lift", empty=False),
    Place("leaderboard", "/leaderboard"),
    Place("compare-groups", "/compare/groups?a={seeds}&b={other_seeds}", empty=False),
    Place("samples", "/jobs/{gain}/samples", empty=False),
    Place("samples-boxes", "/jobs/{stage2}/samples", empty=False),
    Place("budget", "/budget"),
    _rare("board-search", "/?q=nobody"),
    _rare("run-seeds", "/jobs/{other_seeds}"),
    _rare("run-log", "/jobs/{crash}?tab=log"),
    _rare("run-memory", "/jobs/{memory}?tab=memory"),
    _rare("run-config", "/jobs/{clone}?tab=config"),
    _rare("run-events", "/jobs/{gain}?tab=events"),
    _rare("run-repro", "/jobs/{clone}?tab=repro"),
    _rare("run-declined", "/jobs/{declined}"),
    Place("samples-long", "/jobs/{gain}/samples?split=math_qwen&row=0", empty=False),
    _rare("samples-diff", "/jobs/{gain}/samples?split=select&step=40&row=3&view=diff&at=0"),
    _rare("samples-raw", "/jobs/{gain}/samples?view=raw"),
    _rare("samples-none", "/jobs/{crash}/samples"),
    _rare("samples-select", "/jobs/{gain}/samples?split=select&high=0.5"),
    _rare("samples-history", "/jobs/{gain}/samples/history?split=select&id=27%2B82"),
    _rare(
        "rescored",
        "/jobs/{gain}/rescored?split=report&step=40&verifier=exact&verifier=gsm8k_last_number",
    ),
    _rare("samples-wrong", "/jobs/{gain}/samples?low=many"),
    _rare("compare-three", "/compare?job={gain}&job={loss}&job={unproven}"),
    _rare("compare-mixed", "/compare?job={gain}&job={stage2}"),
    _rare("leaderboard-one", "/leaderboard?bench=math_qwen&best=true"),
    _rare("leaderboard-gates", "/leaderboard?bench=own&run={gain}&sort=newest"),
    _rare("new-clone", "/new?clone={gain}"),
    _rare("new-form", "/new?clone={gain}&as=form"),
    _rare("new-recipe", "/new?recipe=instruct"),
    _rare("report-night", "/report?date={bad_night}"),
    _rare("audit-defer", "/audit?what=defer"),
    _rare("runs-filtered", "/runs?q=verdict:gain&group=base&columns=base,lr,train/kl,note"),
    _rare("runs-wrong", "/runs?q=gan:>2"),
    _rare("runs-edit", "/runs/edit?what=tag&job={gain}&job={loss}"),
    _rare("runs-delete", "/runs/delete?job={loss}&job={running}"),
    _rare("budget-day", "/budget?entry=external"),
)
