"""Other queues on the same two things: jobs put in a second, jobs taken and finished a second.

Run by the interpreter of .venv-peers: `python bench/queues_peers.py WARM huey DIR COUNT`. Prints
one JSON object of rates. Each peer is used as its documentation says it is fast, with every commit
synced to disk; WARM jobs go through it before the clock starts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path


def huey(place: str, warm: int, count: int) -> dict[str, float]:
    """SqliteHuey with WAL and full sync; the consumer's own steps, without its polling pause.

    It deletes a task when it takes it: one that a crash interrupts is lost.
    """
    from huey import SqliteHuey  # noqa: PLC0415 - each peer is imported only where it runs

    queue = SqliteHuey(filename=str(Path(place) / "huey.db"), fsync=True, journal_mode="wal")

    @queue.task()
    def noop(number: int, text: str) -> None:
        del number, text

    def put(jobs: int) -> None:
        for number in range(jobs):
            noop(number, "text")

    def work(jobs: int) -> None:
        for _ in range(jobs):
            queue.execute(queue.dequeue())

    put(warm)
    work(warm)
    began = time.perf_counter()
    put(count)
    middle = time.perf_counter()
    work(count)
    return _rates(count, began, middle, time.perf_counter())


def procrastinate(url: str, warm: int, count: int) -> dict[str, float]:
    """Its asynchronous connector, one worker."""
    import procrastinate as library  # noqa: PLC0415 - each peer is imported only where it runs

    app = library.App(connector=library.PsycopgConnector(conninfo=url, min_size=1, max_size=3))

    @app.task(name="noop")
    async def noop(number: int, text: str) -> None:
        del number, text

    async def measure() -> dict[str, float]:
        async with app.open_async():
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()

            async def put(jobs: int) -> None:
                for number in range(jobs):
                    await noop.defer_async(number=number, text="text")

            async def work() -> None:
                await app.run_worker_async(concurrency=1, wait=False, install_signal_handlers=False)

            await put(warm)
            await work()
            began = time.perf_counter()
            await put(count)
            middle = time.perf_counter()
            await work()
            return _rates(count, began, middle, time.perf_counter())

    return asyncio.run(measure())


def dbos(place: str, warm: int, count: int) -> dict[str, float]:
    """A queue of durable workflows on SQLite, polled as often as it allows."""
    from dbos import DBOS  # noqa: PLC0415 - each peer is imported only where it runs

    url = f"sqlite:///{Path(place) / 'dbos.sqlite'}"
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False})

    @DBOS.workflow()
    def noop(number: int, text: str) -> None:
        del number, text

    DBOS.launch()
    queue = DBOS.register_queue("bench", polling_interval_sec=0.01)
    try:
        _dbos_rates(queue, noop, warm // 10)  # as slow as it is
        return _dbos_rates(queue, noop, count)
    finally:
        DBOS.destroy()


def _dbos_rates(queue: object, noop: object, count: int) -> dict[str, float]:
    """It starts to work while it is still being fed: the second rate is over the whole time."""
    began = time.perf_counter()
    handles = [queue.enqueue(noop, number, "text") for number in range(count)]  # type: ignore[attr-defined]
    put = time.perf_counter()
    for handle in handles:
        handle.get_result()
    end = time.perf_counter()
    return {"enqueue": count / (put - began), "finish": count / (end - began)}


def _rates(count: int, began: float, put: float, end: float) -> dict[str, float]:
    return {"enqueue": count / (put - began), "finish": count / (end - put)}


def main() -> None:
    """`WARM PEER PLACE COUNT`."""
    logging.disable(logging.CRITICAL)
    warm, peer, place, count = sys.argv[1:]
    run = {"huey": huey, "procrastinate": procrastinate, "dbos": dbos}[peer]
    print(json.dumps(run(place, int(warm), int(count))))


if __name__ == "__main__":
    main()
