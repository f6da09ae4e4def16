"""One rank under `torchrun`: runs the run directories it is given, one after another."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.__main__ import run_newest_attempt
from engine.contract.run_dir import RunDir

if __name__ == "__main__":
    sys.exit(max(run_newest_attempt(RunDir(Path(folder))) for folder in sys.argv[1:]))
