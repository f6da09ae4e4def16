"""`python -m tools.storm`: kill the queue's processes at named moments and count what was lost.

Prints the strikes per phase and victim, and every rule that was broken; exit status 1 if any was,
or if the time ended before the number of strikes was reached.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> int:
    """0 when nothing was lost."""
    parser = argparse.ArgumentParser(prog="python -m tools.storm", description=__doc__)
    parser.add_argument("--strikes", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=35, help="when to stop at the latest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database-url", help="PostgreSQL instead of SQLite")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(argv)
    root = Path(tempfile.mkdtemp(prefix="storm-"))
    report = _run(root, options)
    if report["broken"]:
        print(f"the evidence stays in {root}", file=sys.stderr)
    else:
        shutil.rmtree(root)
    _show(report, as_json=options.json)
    return 1 if report["broken"] or report["strikes"] < options.strikes else 0


def _run(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    from tools.storm import place  # noqa: PLC0415 - the product reads its environment at import

    os.environ |= place.prepare(root)
    if options.database_url:
        os.environ["NIGHTLANE_DATABASE_URL"] = options.database_url
    from engine.contract import kinds, registry  # noqa: PLC0415 - as above

    kinds.__path__.append(str(Path(__file__).parent / "kinds"))
    registry.kinds.cache_clear()
    from tools.storm import check, storm  # noqa: PLC0415 - as above
    from worker.db.connection import open_database  # noqa: PLC0415 - as above

    began = time.monotonic()
    here = place.Place(root)
    with closing(here), open_database(here.settings) as db:
        raging = storm.Storm(here, db, options.seed)
        raging.rage(options.strikes, began + 60 * options.minutes)
        raged_s = time.monotonic() - began
        raging.calm()
        broken = [
            *raging.log.wrong,
            *raging.senders.wrong,
            *check.lost(db, raging.senders.sent, raging.senders.cancelled),
            *check.twice(here.notes),
            *check.books(db),
            *check.file(db),
            *check.processes(root),
        ]
    hits = raging.log.hits
    return {
        "strikes": raging.log.kills,
        "phases": {str(phase): n for phase, n in raging.log.per_phase().items()},
        "victims": {
            str(victim): sum(n for (_, one), n in hits.items() if one == victim)
            for victim in sorted({victim for _, victim in hits})
        },
        "jobs": len(raging.senders.sent),
        "jobs_cancelled": len(raging.senders.cancelled),
        "late_supervisors_stopped": raging.log.late_stopped,
        "broken": broken,
        "raged_s": round(raged_s, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=1))
        return
    print(f"{report['strikes']} strikes in {report['raged_s']} s on {report['jobs']} jobs")
    for title in ("phases", "victims"):
        print(f"\n| {title} | strikes |\n|---|---|")
        for name, n in report[title].items():
            print(f"| {name} | {n} |")
    print(f"\nlate supervisors that stopped themselves: {report['late_supervisors_stopped']}")
    for line in report["broken"]:
        print(f"BROKEN: {line}")
    print("nothing was lost" if not report["broken"] else f"{len(report['broken'])} rules broken")


if __name__ == "__main__":
    sys.exit(main())
