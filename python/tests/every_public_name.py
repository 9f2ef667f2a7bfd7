"""Prints what the public names of a library do: `every_public_name.py LIBRARY URL NAMESPACE`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from typing import Any

library, url, namespace = sys.argv[1:]
logging.disable()
lib: Any = importlib.import_module(library)


async def main() -> None:
    config = lib.RedisConfig(url=url, namespace=namespace)
    same = lib.RedisConfig(url=url, namespace=namespace)
    report("config", lib.RedisConfig().namespace, config.max_connections, config == same)
    report_call("few connections", lambda: lib.RedisConfig(max_connections=5))
    for kind, arguments in ((lib.MemorySemaphore, {}), (lib.RedisSemaphore, {"config": config})):
        await use(kind, arguments)
    report("heartbeat", lib.RedisSemaphore(name="h", value=1, ttl=20).heartbeat_max_interval)
    report_call("ping", lambda: lib.RedisSemaphore(name="h", value=1, ping_interval=500))
    stats = lib.SemaphoreStats(acquired_slots=1, max_slots=3)
    report("stats", stats, f"{stats.acquired_percent:.1f}")
    report("result", lib.AcquisitionResult(acquisition_id="x", slot_number=2))
    await expiry()


async def use(kind: Any, arguments: dict[str, Any]) -> None:
    def new(**more: Any) -> Any:
        return kind(**{"name": "used", "value": 2, **arguments, **more})

    sem = new()
    query = {"config": arguments["config"]} if arguments else {}
    report(kind.__name__, isinstance(sem, lib.Semaphore), sem.name, sem.value, sem.ttl, sem.max_acquire_time)
    report("equal", sem == new(value=3))
    report_call("no value", lambda: new(value=0))
    report_call("positional", lambda: kind("used", 2))

    async with sem.cm() as result:
        report("in a block", type(result.acquisition_id), result.slot_number in (0, 1, 2), await sem.locked())
        report("stats", await kind.get_acquired_stats(**query))
        report("stats by name", await kind.get_acquired_stats(names=["used", "unknown"], **query))
        report("no stats", await kind.get_acquired_stats(names=["unknown"], **query))
        report("limit", len(await kind.get_acquired_stats(limit=1, **query)))
        second = await new().acquire()
        report("locked", await sem.locked(), second.acquisition_id != result.acquisition_id)
        await report_await("timeout", new(max_acquire_time=0.05).acquire())
        await sem.release(second.acquisition_id)
        report("released", await sem.locked())
        await sem.release(second.acquisition_id)
        await sem.release("unknown")
        report("released again", await kind.get_acquired_stats(**query))
    report("exited", await kind.get_acquired_stats(**query), await sem.locked())

    manager = sem.cm()
    await report_await("exited before entered", manager.__aexit__(None, None, None))
    async with manager:
        await report_await("entered twice", manager.__aenter__())
    await report_await("used again", manager.__aenter__())

    try:
        async with sem.cm():
            raise KeyError("from the block")
    except KeyError as error:
        report("exception", error, await sem.locked())

    only = new(name="only", value=1)
    order: list[int] = []

    async def work(number: int) -> None:
        async with only.cm():
            order.append(number)

    held = await only.acquire()
    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    cancelled = asyncio.create_task(only.acquire())
    await asyncio.sleep(0.1)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    report("cancelled", cancelled.cancelled())
    await only.release(held.acquisition_id)
    await asyncio.gather(*tasks)
    report("all had their turn", sorted(order), await kind.get_acquired_stats(**query))


async def expiry() -> None:
    sem = lib.MemorySemaphore(name="short", value=1, ttl=1, cancel_task_after_ttl=True)

    async def hang() -> None:
        async with sem.cm():
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await asyncio.wait([task])
    report("cancelled after its ttl", task.cancelled(), await sem.locked())
    kept = lib.MemorySemaphore(name="kept", value=1, ttl=1)
    await kept.acquire()
    again = await kept.acquire()
    report("lost after its ttl", await kept.locked())
    await kept.release(again.acquisition_id)


def report(*words: Any) -> None:
    print(*words)


def report_call(what: str, call: Any) -> None:
    try:
        call()
        report(what, "works")
    except Exception:
        report(what, "fails")


async def report_await(what: str, awaitable: Any) -> None:
    try:
        await awaitable
        report(what, "works")
    except TimeoutError:
        report(what, "times out")
    except Exception:
        report(what, "fails")


asyncio.run(main())
