r"""What a completion states as its answer, apart from what it denies, asks or leaves open.

"The answer is not 42 but 43" states 43; "4 or 5" states nothing, and "5 feet" does not where meters
are asked for. What is not stated is blanked. Where the gold itself was denied, left open or given
another unit, only what comes after that counts: a later sentence may state it after all.
Patterns are bounded, so that the time is linear in the text. Knows no verifier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.contract.golds.boxes import gold_text, last_boxed
from engine.contract.golds.quantity import Quantity, read, same, units_differ

BLANK = " … "
CHOICE = " …or… "
"""Instead of alternatives between which no choice was made."""


@dataclass(frozen=True)
class Gold:
    """A row's answer as it is compared."""

    text: str
    quantity: Quantity | None
    many: bool
    """Whether it names more than one value: a list is then no hedge."""

    @classmethod
    def of(cls, expected: str) -> Gold:
        r"""Of a whole solution the last box, of a GSM8K answer what follows `####`.

        >>> Gold.of(r"so $\boxed{18}$").text, Gold.of("9 * 2\n#### 18").text
        ('18', '18')
        """
        text = gold_text(expected)
        quantity = read(text)
        return cls(text, quantity, quantity is None and _MANY.search(text) is not None)

    def is_named_by(self, answer: str) -> bool:
        """Whether the text is the gold: the same number, or the same text but for its dress."""
        quantity = read(answer)
        if quantity is not None and self.quantity is not None:
            return same(quantity, self.quantity)
        return bool(self.text) and plain_words(answer) == plain_words(self.text)


@dataclass(frozen=True)
class Stated:
    """What is left of a completion."""

    text: str
    ruled_out: str | None
    """The last mention of the gold that states it not, as written; None without one."""

    @property
    def leaves_open(self) -> bool:
        """Whether alternatives are the last that is said."""
        _, choice, after = self.text.rpartition(CHOICE)
        return bool(choice) and re.search(r"\d", after) is None


def stated(text: str, gold: Gold) -> Stated:
    """The completion's end without what it does not state.

    >>> stated("It is not 42 but 43.", Gold.of("43")).text
    'It is  …  but 43.'
    """
    text = _without_questions(text)
    parts: list[str] = []
    last, ruled_out = 0, None
    for found in _MENTION.finditer(text):
        blanked, against = _judged(found, text, gold)
        if not blanked:
            continue
        parts.append(text[last : found.start()])
        last = found.end()
        if against:
            parts, ruled_out = [], found.group().strip()
        is_choice = found["choice"] is not None and _OR.search(found["choice"]) is not None
        parts.append(CHOICE if is_choice else BLANK)
    return Stated("".join([*parts, text[last:]]), ruled_out)


def plain_words(text: str) -> str:
    r"""Letters and signs without their dress: case, articles, quotes, a full stop, `\text{}`.

    >>> plain_words(r"\text{The derivative}."), plain_words("(A)")
    ('derivative', 'a')
    """
    plain = _WRAPPED.sub(r"\1", text).replace("$", "").replace("\\ ", " ").strip()
    plain = re.sub(r"\s+", " ", plain.strip("*_`\"'“”‘’").rstrip(".!").strip())
    option = _OPTION.fullmatch(plain)
    if option is not None:
        return option[1].lower()
    return re.sub(r"^(?:the|an?) ", "", plain.casefold()) if len(plain) > 1 else plain


def is_words(text: str) -> bool:
    """Whether it is a word or an option's letter, not a formula.

    >>> is_words("yes"), is_words("(A)"), is_words("x"), is_words("2x")
    (True, True, False, False)
    """
    plain = plain_words(text)
    if len(plain) < 2:
        return _OPTION.fullmatch(_WRAPPED.sub(r"\1", text).strip("$ .*")) is not None
    return re.fullmatch(r"[^\W\d_]+(?:[ '’,-]{1,2}[^\W\d_]+){0,12}", plain) is not None


_WRAPPED = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_OPTION = re.compile(r"(?:(?:option|choice)\s+)?\(?([A-Ja-j])\)?[.):]?", re.IGNORECASE)
_MANY = re.compile(r"[,;|]|\\pm|±|\bor\b|\band\b|\\cup|\\in\b|\\(?:begin|lor|vee)|\\?\{.*\\?\}\s*$")


# --- mentions -------------------------------------------------------------------------------

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = (
    rf"(?<![\w.^{{\\])-?[$€£¥₹]?(?:{_DIGITS})(?:\s?/\s?\d+|[eE][-+]?\d+|\s\d+/\d+)?(?:\s?\\?%)?"
)
_MATHS = (
    r"\$\$?(?!\s)[^$\n]{1,200}(?<![\s\\])\$\$?(?!\d)|\\\([^\n]{1,200}?\\\)|\\\[[^\[\]]{1,300}\\\]"
)
_BOX = r"\\boxed ?\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,100}\}){0,100}\}){0,200}\}"
_EMPHASIS = r"[*_\"“”'‘’`]{0,3}"
_VALUE = rf"{_EMPHASIS}(?:\$?{_BOX}\$?|{_MATHS}|{_NUMBER}){_EMPHASIS}"
_MAYBE = (
    r"(?:(?:either|maybe|perhaps|possibly|even|else|also|it(?:['’]s| is| could be| might be)|"
    r"could be|might be)\s+)?"
)
_SEPARATOR = rf"(?:\s*[,;]\s+(?:(?:or|and)\s+)?|\s*\(?(?:or|and|to|and/or)\s+|\s?[–—]\s?){_MAYBE}"
_ALTERNATIVES = rf"{_VALUE}(?:{_SEPARATOR}{_VALUE})+|{_BOX}(?:[\s$,;]{{1,6}}{_BOX})+"

_FILLER = (
    r"(?:\s+(?:be|been|is|it|its|that|this|equals?|equal|to|the|an?|final|correct|right|true|real|"
    r"answer|value|number|result|solution|possibly|actually|simply|exactly|really|even|certainly|"
    r"definitely|clearly|either|think|believe|say|get|have|as|same|could|can|would|will|should|may|"
    r"might|was|so|of|than|more|less|any|anything|case|going)\b|\s+it['’]s"
    r"|,\s(?:in\s+fact|however|indeed|of\s+course),){0,7}"
)
_NOT = (
    r"(?:\b(?:not|never|neither|nor|cannot|except|excluding|instead\s+of|rather\s+than|"
    r"other\s+than|different\s+(?:from|than)|anything\s+but|far\s+from|rul(?:e|es|ed|ing)\s+out|"
    r"exclude|excludes|excluded|reject|rejects|rejected|doubt|doubtful|unlikely|impossible|"
    r"hardly|scarcely|by\s+no\s+means|in\s+no\s+way|refuse|refuses|deny|denies|denied|"
    r"no\s+way|false\s+that|wrong\s+that|incorrect\s+that|untrue\s+that|without)\b"
    r"|\b\w{2,6}n['’]t\b|≠|\\neq?\b|!=)"
)
_DENIED = rf"{_NOT}{_FILLER}[\s:$]{{0,3}}{_VALUE}(?:(?:\s+(?:or|nor|and)|,)\s+{_VALUE})*"
_WRONG = (
    r"(?:wrong|incorrect|false|impossible|excluded|ruled\s+out|mistaken|a\s+mistake|an\s+error|"
    r"too\s+(?:big|small|large|high|low|much|many|few)|out\s+of\s+the\s+question)\b"
)
_REFUTED = (
    r"not\s+(?:(?:the|a|my|our|its)\s+)?(?:(?:final|correct|right|true|actual|valid|possible)\s+)?"
    r"(?:answer|solution|result|value|correct|right|true|possible|valid|it|so)\b"
)
_IS = r"(?:is|was|are|would\s+be|seems|looks|['’]s)"
_SURELY = r"(?:\s+(?:definitely|certainly|clearly|surely|also|just|simply|obviously|plainly))?"
_BEHIND = (
    rf"{_VALUE}(?P<refuted>[\s.,;:!$)]{{0,5}}(?:(?:but|which|and|yet|however|no)\b[,\s]{{0,3}})?"
    rf"(?:(?:that|this|it|which|guess|option|answer)\s*)?"
    rf"(?:{_IS}{_SURELY}\s+(?:{_WRONG}|{_REFUTED})"
    rf"|(?:is|was)n['’]t{_SURELY}\s+(?:(?:the|a|my|our)\s+)?(?:(?:final|correct|right)\s+)?"
    r"(?:answer|solution|result|value|correct|right|true|possible|so)\b"
    r"|(?:cannot|can\s*not|can['’]t|could\s+not|couldn['’]t)\s+be\b))"
)
_COMPARED = (
    r"(?:(?<![^\s(])[<>≤≥]=?\s{0,2}|\b(?:less|more|greater|fewer|smaller|larger|bigger|higher|lower|worse|better|older|younger)"
    rf"\s+than\s+){_VALUE}"
)
_FORMULA = (
    rf"{_NUMBER}(?:(?::\d{{1,9}}){{1,4}}(?!\d)|\s?\\(?:sqrt|pi|cdot|times|div|pm|infty|log|ln|sin|cos|tan)\b"
    r"(?:\s?\{[^{}]{0,60}\}){0,2}|[abciknpqrtxyzπ√](?![A-Za-z])|\s?[π√])"
)
_WORDS_AFTER = (
    rf"{_NUMBER}(?=(?P<words>[ -]?(?:\\(?:text|mathrm)\s?\{{[^{{}}]{{1,40}}\}}"
    r"|[A-Za-z°¢€£¥₹][A-Za-z]{0,14}"
    r"(?:(?:\s|/)[A-Za-z]{1,15}){0,2})(?:\^\{?[23]\}?)?)?)"
)
_MENTION = re.compile(
    rf"(?P<denied>{_DENIED})|(?P<behind>{_BEHIND})|(?P<compared>{_COMPARED})"
    rf"|(?P<choice>{_ALTERNATIVES})|(?P<maths>\$?{_BOX}\$?|{_MATHS})"
    rf"|(?P<formula>{_FORMULA})|(?P<measured>{_WORDS_AFTER})",
    re.IGNORECASE,
)
_KINDS = ("denied", "behind", "compared", "choice", "maths", "formula", "measured")
_DENYING = re.compile(
    r"\s*(?:[A-Za-z]\s*)?(?:\\neq?\b|≠|!=|[<>≤≥]|\\[lg]eq?\b|\\[lg]t\b|\\text\s?\{\s*not\b[^{}]*\}|not\b)"
)
"""Of a formula or a box: it says what the value is not, or what it is beside."""
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_EACH = re.compile(_VALUE, re.IGNORECASE)
_OPEN = re.compile(
    r"answer|result|solution|either|could|might|may\b|maybe|perhaps|possib|\bit['’ ]i?s\b|equals?\b"
    r"|total|guess|option|=\s*$",
    re.IGNORECASE,
)
_SENTENCE_BEFORE = 80


def _judged(found: re.Match[str], text: str, gold: Gold) -> tuple[bool, bool]:
    """Whether the mention is blanked, and whether the gold is thereby ruled out."""
    kind = next(name for name in _KINDS if found[name] is not None)
    match kind:
        case "denied" | "behind":
            end = found.start("refuted") if kind == "behind" else found.end()
            return True, _names(text[found.start() : end], gold)
        case "choice":
            return not gold.many, not gold.many and _left_open(found, text, gold)
        case "formula" | "compared":
            return gold.quantity is not None, False
        case "maths" if gold.quantity is not None and _DENYING.match(_bare(found.group())):
            return True, _names(_DENYING.sub("", _bare(found.group())), gold)
        case _:
            mention = found.group() + (found["words"] or "")
            return (True, True) if _in_another_unit(mention, gold) else (False, False)


def _names(mention: str, gold: Gold) -> bool:
    return any(gold.is_named_by(_bare(value.group())) for value in _EACH.finditer(mention))


def _left_open(found: re.Match[str], text: str, gold: Gold) -> bool:
    """Whether a list of alternatives is given as the answer, with the gold among them."""
    mention = found.group()
    if "\\boxed" not in mention:
        before = text[max(0, found.start() - _SENTENCE_BEFORE) : found.start()]
        sentence = re.split(r"[.!?\n]\s+", before)[-1]
        is_choice = _OR.search(mention) is not None
        if not (_OPEN.search(sentence) or (is_choice and not sentence.strip())):
            return False
    return _names(mention, gold)


def _in_another_unit(mention: str, gold: Gold) -> bool:
    if gold.quantity is None or gold.quantity.unit == ("", ""):
        return False
    words = _bare(mention)
    while words:
        quantity = read(words)
        if quantity is not None:
            differ = units_differ(quantity.unit, gold.quantity.unit)
            return differ and quantity.value == gold.quantity.value
        words = re.split(r"(?=[\s/]+\S+$)", words, maxsplit=1)[0] if re.search(r"\s", words) else ""
    return False


def _bare(value: str) -> str:
    r"""Without emphasis, dollars of a formula, and the box."""
    plain = value.strip("*_\"“”'‘’` ")
    boxed = last_boxed(plain) if "\\boxed" in plain else None
    if boxed is not None:
        return boxed
    plain = plain.removeprefix("\\(").removesuffix("\\)")
    return plain.strip("$") if plain.endswith("$") else plain


_TAG = re.compile(r"\b(?:right|correct|ok|okay|no|yes|isn['’]t it)\?\W*$", re.IGNORECASE)


def _without_questions(text: str) -> str:
    """A question states nothing, but for one that holds the box or only asks for assent."""
    if "?" not in text:
        return text
    parts = re.split(r"((?<=[.!?])\s+|\n)", text)
    kept = [
        BLANK
        if part.rstrip("*_\"”' )").endswith("?") and "\\boxed" not in part and not _TAG.search(part)
        else part
        for part in parts
    ]
    return "".join(kept)
