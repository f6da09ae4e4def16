"""What a prompt asks, however it is written: the split, the report and a comparison mean the same
by it.
"""

from __future__ import annotations

import hashlib
import unicodedata


def asked(prompt: str) -> str:
    """Equal for twins of one question.

    Unicode's compatibility forms (NFKC), case, white space and the marks at the end do not count.

    >>> asked("What  is ２ + 2 ?") == asked("what is 2 + 2")
    True
    """
    plain = " ".join(unicodedata.normalize("NFKC", prompt).casefold().split())
    return plain.rstrip(_MARKS) or plain


def asked_hash(prompt: str) -> int:
    """The same in 64 bits, where a text of each row would be too much to keep."""
    found = hashlib.blake2b(asked(prompt).encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found)


_MARKS = " .?!。"
"""Of the end of a sentence; full-width ones are these after NFKC."""
