"""The embedded task for real language models: arithmetic word problems of one or two steps.

2,000 problems in the manner of GSM8K, drawn once and for all from 14 stories written for this
project; the answer is a whole number between 1 and 999, the solution works it out and ends with
"The answer is N.", the sentence that the verifier `gsm8k` reads.
"""

from __future__ import annotations

import random
from collections.abc import Callable

SOURCE = "embedded:word_problems"
ROWS = 2_000

_NAMES = (
    "Ada", "Ben", "Chloe", "Dario", "Elif", "Femi", "Grace",
    "Hugo", "Ines", "Jonas", "Kira", "Liam", "Mina", "Noor",
    "Oscar", "Petra", "Quinn", "Rosa", "Sami", "Tove",
)  # fmt: skip
_THINGS = (
    "apples", "stamps", "marbles", "pencils", "shells", "stickers",
    "buttons", "coins", "cards", "beads", "walnuts", "postcards",
)  # fmt: skip

_Story = Callable[[random.Random], tuple[str, int, str]]
"""(question, answer, working)."""


def rows() -> list[tuple[str, str, str, str]]:
    """(id, prompt, answer, solution) of each problem, always the same.

    >>> rows()[0][3].endswith(f"The answer is {rows()[0][2]}.")
    True
    """
    draw = random.Random("nightlane word problems")
    found: dict[str, tuple[str, str, str, str]] = {}
    while len(found) < ROWS:
        number = len(found)
        story = _STORIES[number % len(_STORIES)]
        prompt, answer, working = story(draw)
        if prompt not in found and 0 < answer < 1000:
            name = f"{story.__name__.strip('_')}-{number:04d}"
            solution = f"{working} The answer is {answer}."
            found[prompt] = (name, prompt, str(answer), solution)
    return list(found.values())


def _gift(draw: random.Random) -> tuple[str, int, str]:
    a, b, who, what = draw.randint(3, 40), draw.randint(2, 30), *_who_what(draw)
    text = (
        f"{who} has {a} {what} and gets {b} more from a friend. "
        f"How many {what} does {who} have now?"
    )
    return text, a + b, f"{a} + {b} = {a + b}."


def _loss(draw: random.Random) -> tuple[str, int, str]:
    a, who, what = draw.randint(12, 60), *_who_what(draw)
    b = draw.randint(2, a - 2)
    text = f"{who} had {a} {what} and lost {b} of them. How many {what} are left?"
    return text, a - b, f"{a} - {b} = {a - b}."


def _boxes(draw: random.Random) -> tuple[str, int, str]:
    a, b, who, what = draw.randint(2, 12), draw.randint(2, 12), *_who_what(draw)
    text = f"{who} fills {a} boxes with {b} {what} each. How many {what} is that in all?"
    return text, a * b, f"{a} * {b} = {a * b}."


def _share(draw: random.Random) -> tuple[str, int, str]:
    friends, each, who, what = draw.randint(2, 9), draw.randint(2, 12), *_who_what(draw)
    total = friends * each
    text = (
        f"{who} shares {total} {what} equally among {friends} friends. "
        f"How many {what} does each get?"
    )
    return text, each, f"{total} / {friends} = {each}."


def _twice(draw: random.Random) -> tuple[str, int, str]:
    a, (who, what), times = draw.randint(3, 30), _who_what(draw), draw.randint(2, 5)
    other = _other(draw, who)
    text = (
        f"{who} has {a} {what}. {other} has {times} times as many. "
        f"How many {what} does {other} have?"
    )
    return text, a * times, f"{a} * {times} = {a * times}."


def _page(draw: random.Random) -> tuple[str, int, str]:
    pages, days, who = draw.randint(4, 30), draw.randint(2, 14), draw.choice(_NAMES)
    text = f"{who} reads {pages} pages a day. How many pages does {who} read in {days} days?"
    return text, pages * days, f"{pages} * {days} = {pages * days}."


def _age(draw: random.Random) -> tuple[str, int, str]:
    age, years, who = draw.randint(4, 50), draw.randint(2, 25), draw.choice(_NAMES)
    text = f"{who} is {age} years old. How old will {who} be in {years} years?"
    return text, age + years, f"{age} + {years} = {age + years}."


def _gift_and_loss(draw: random.Random) -> tuple[str, int, str]:
    a, b, who, what = draw.randint(5, 40), draw.randint(3, 30), *_who_what(draw)
    c = draw.randint(2, a + b - 1)
    text = (
        f"{who} has {a} {what}, finds {b} more and gives {c} away. How many {what} does {who} keep?"
    )
    return text, a + b - c, f"{a} + {b} = {a + b}. {a + b} - {c} = {a + b - c}."


def _change(draw: random.Random) -> tuple[str, int, str]:
    count, price, who, what = draw.randint(2, 9), draw.randint(2, 9), *_who_what(draw)
    cost = count * price
    paid = cost + draw.randint(1, 20)
    text = (
        f"{who} buys {count} {what} at {price} dollars each and pays with {paid} dollars. "
        f"How many dollars does {who} get back?"
    )
    return text, paid - cost, f"{count} * {price} = {cost}. {paid} - {cost} = {paid - cost}."


def _rows_and_more(draw: random.Random) -> tuple[str, int, str]:
    a, b, more = draw.randint(2, 12), draw.randint(2, 12), draw.randint(1, 20)
    text = (
        f"A hall has {a} rows of {b} chairs, and {more} chairs stand along the wall. "
        "How many chairs are there?"
    )
    return text, a * b + more, f"{a} * {b} = {a * b}. {a * b} + {more} = {a * b + more}."


def _two_people(draw: random.Random) -> tuple[str, int, str]:
    a, more, (who, what) = draw.randint(3, 40), draw.randint(2, 20), _who_what(draw)
    other = _other(draw, who)
    text = (
        f"{who} has {a} {what}. {other} has {more} more than {who}. How many do they have together?"
    )
    return text, 2 * a + more, f"{a} + {more} = {a + more}. {a} + {a + more} = {2 * a + more}."


def _wages(draw: random.Random) -> tuple[str, int, str]:
    hours, wage, bonus = draw.randint(2, 10), draw.randint(8, 25), draw.randint(5, 40)
    who = draw.choice(_NAMES)
    text = (
        f"{who} earns {wage} dollars an hour and works {hours} hours, with a bonus of {bonus} "
        f"dollars. How many dollars does {who} earn?"
    )
    pay = hours * wage
    return text, pay + bonus, f"{hours} * {wage} = {pay}. {pay} + {bonus} = {pay + bonus}."


def _half(draw: random.Random) -> tuple[str, int, str]:
    half, more, (who, what) = draw.randint(2, 40), draw.randint(1, 20), _who_what(draw)
    text = (
        f"{who} had {2 * half} {what}, sold half of them and then bought {more}. "
        f"How many {what} does {who} have?"
    )
    return text, half + more, f"{2 * half} / 2 = {half}. {half} + {more} = {half + more}."


def _bus(draw: random.Random) -> tuple[str, int, str]:
    start, on = draw.randint(8, 40), draw.randint(2, 15)
    off = draw.randint(2, start)
    text = (
        f"A bus with {start} passengers stops; {off} get off and {on} get on. "
        "How many passengers are on the bus?"
    )
    left = start - off
    return text, left + on, f"{start} - {off} = {left}. {left} + {on} = {left + on}."


def _who_what(draw: random.Random) -> tuple[str, str]:
    return draw.choice(_NAMES), draw.choice(_THINGS)


def _other(draw: random.Random, who: str) -> str:
    return draw.choice([name for name in _NAMES if name != who])


_STORIES: tuple[_Story, ...] = (
    _gift, _loss, _boxes, _share, _twice, _page, _age,
    _gift_and_loss, _change, _rows_and_more, _two_people, _wages, _half, _bus,
)  # fmt: skip
