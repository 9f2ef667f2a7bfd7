"""Thousands of waiters on Redis. `SEMAFOR_WAITERS=10000 pytest -s` also prints the time that the server needs."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

from conftest import PATIENCE, RedisServer
from semafor import RedisSemaphore

WAITERS = int(os.environ.get("SEMAFOR_WAITERS", "2000"))


async def wait_for_waiters(server: RedisServer, name: str, count: int) -> None:
    deadline = time.monotonic() + 10 * PATIENCE
    while server.waiters(name) != count:
        assert time.monotonic() < deadline, f"{server.waiters(name)} waiters, not {count}"
        await asyncio.sleep(0.02)


def keys_of_waiters(server: RedisServer, name: str) -> dict[str, int]:
    kinds = ("waiting", "waiting_heartbeat", "own")
    sets = {kind: server.ask("ZCARD", f"adv-sem:semaphore_{kind}:{name}") for kind in kinds}
    return {kind: int(size.lstrip(":")) for kind, size in sets.items()}


async def time_out_together(server: RedisServer, count: int) -> Counter[str]:
    name = f"time out {count}"
    holder = RedisSemaphore(name=name, value=1, config=server.config())
    async with holder.cm():
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 4 + 0.003 * count

        async def wait() -> str:
            timeout = deadline - loop.time()
            sem = RedisSemaphore(name=name, value=1, config=server.config(), max_acquire_time=timeout)
            try:
                await sem.acquire()
            except TimeoutError:
                return "TimeoutError"
            except Exception as error:
                return type(error).__name__
            return "acquired"

        waiting = [asyncio.create_task(wait()) for _ in range(count)]
        await wait_for_waiters(server, name, count)
        # Heartbeats before the timeout must not be counted.
        await asyncio.sleep(max(deadline - loop.time() - 0.05, 0))
        before = server.script_time(), server.scripts()
        outcomes = Counter(await asyncio.gather(*waiting))
        cost, calls = (server.script_time() - before[0]) / count, server.scripts() - before[1]
        print(f"{count} waiters time out: {cost:.1f} us of server time each, {calls} scripts")
        assert keys_of_waiters(server, name) == {"waiting": 0, "waiting_heartbeat": 0, "own": 1}
        assert calls < count / 4 + 10, "they must leave in batches"
    assert server.ask("KEYS", "*acquisition_notification*") == "*0"
    return outcomes


def test_waiters_that_time_out_together_all_time_out_and_leave_nothing(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    for count in (100, WAITERS):
        assert asyncio.run(time_out_together(server, count)) == {"TimeoutError": count}


def test_locked_works_with_thousands_of_waiters(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)

    async def program() -> None:
        sem = RedisSemaphore(name="long", value=1, config=server.config())
        async with sem.cm():
            waiting = [asyncio.create_task(sem.acquire()) for _ in range(WAITERS)]
            await wait_for_waiters(server, "long", WAITERS)
            costs = []
            for _ in range(20):
                before = server.script_time()
                assert await sem.locked()
                costs.append(server.script_time() - before)
            # The lowest cost, because heartbeats add to some of them.
            print(f"{WAITERS} in line: locked() costs the server {min(costs)} us")
            for task in waiting:
                task.cancel()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert keys_of_waiters(server, "long") == {"waiting": 0, "waiting_heartbeat": 0, "own": 0}

    asyncio.run(program())
