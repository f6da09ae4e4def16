"""Which vLLM a serving program is, told by its environment's metadata: started, it takes seconds.

Knows no server; one that runs tells its version itself.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

_METADATA = "lib/python*/site-packages/vllm*.dist-info"
_DISTRIBUTION = re.compile(r"vllm(?:_\w+)?-(?P<version>.+)\.dist-info")


def version_of(program: str) -> str | None:
    """Of the environment that a program is in; None for none, and for what is no vLLM of Python's,
    such as a container.
    """
    found = shutil.which(program)
    if found is None:
        return None
    # An environment's Python is a link to the machine's: the link says which environment.
    environment = Path(found).absolute().parent.parent
    for folder in sorted(environment.glob(_METADATA)):
        told = _DISTRIBUTION.fullmatch(folder.name)
        if told is not None:
            return told["version"]
    return None
