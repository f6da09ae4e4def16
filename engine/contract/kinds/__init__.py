"""The kinds of job, one file each; the operator's own lie in `NIGHTLANE_KINDS_PATH`.

That names directories, separated by `:`. Each file defines `KIND`; `engine.contract.registry`
finds it.
"""

from __future__ import annotations

import os

__path__ = [*__path__, *filter(None, os.environ.get("NIGHTLANE_KINDS_PATH", "").split(":"))]
