"""Inspect a rollout file from a shell: `microscope` as a process.

`python -m engine.stage2.inspect.inspect_rollout FILE [--json] [--tokenizer DIR]`. Knows no token.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.contract.errors import NightlaneError

BAD_INPUT = 2


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 with what is wrong on stderr."""
    parser = argparse.ArgumentParser(prog="inspect-rollout", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--tokenizer", type=Path, help="a folder with tokenizer.json")
    options = parser.parse_args(argv)
    try:
        text = _report(options.file, options.tokenizer, as_json=options.json)
    except NightlaneError as error:
        return _refuse(f"{options.file}: {error}")
    except ModuleNotFoundError as error:
        if (error.name or "engine").split(".")[0] == "engine":
            raise  # a defect of ours
        return _refuse(f"{error.name} is not installed; it comes with: {EXTRA}")
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")
    return 0


EXTRA = "pip install 'nightlane[engine]'"


def _report(file: Path, tokenizer: Path | None, *, as_json: bool) -> str:
    from engine.stage2.inspect import microscope  # noqa: PLC0415 - may be absent: see `EXTRA`

    record = microscope.read_record(file)
    pieces = microscope.load_pieces(tokenizer or record.get("tokenizer"))
    report = microscope.inspect(record, pieces)
    return json.dumps(report, ensure_ascii=False) if as_json else microscope.as_text(report)


def _refuse(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
