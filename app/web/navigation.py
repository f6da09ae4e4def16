"""The pages in the order of the navigation, each with the key that leads to it behind `g`."""

from __future__ import annotations

from typing import NamedTuple


class PageLink(NamedTuple):
    """One entry."""

    address: str
    name: str
    key: str
    answers: str
    """The question that the page answers."""


MAIN = (
    PageLink("/runs", "Runs", "s", "Which run is best, on what, and by how much?"),
    PageLink("/queue", "Queue", "q", "What runs tonight, in which order, and who decided?"),
    PageLink("/report", "Report", "r", "What happened last night, can I trust it, what next?"),
    PageLink("/compare", "Compare", "c", "Is the difference real, and what caused it?"),
    PageLink("/leaderboard", "Leaderboard", "l", "What did each checkpoint score, on which bench?"),
    PageLink("/machine", "Machine", "m", "How near is memory to its floor?"),
)
MORE = (
    PageLink("/", "Board", "b", "What runs, is it healthy, what is next, what came out?"),
    PageLink("/new", "New job", "n", "Will it fit, and what will it cost?"),
    PageLink("/budget", "Budget", "u", "What did it cost, and what is left?"),
    PageLink("/audit", "Audit", "a", "Who did what, when and why?"),
    PageLink("/help", "Help", "h", "What do the words and keys mean?"),
)
"""Behind one word at the end of the navigation."""
NAVIGATION = (*MAIN, *MORE)
