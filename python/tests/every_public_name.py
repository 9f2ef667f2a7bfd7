"""Says what the public names of a library do: `every_public_name.py LIBRARY URL NAMESPACE`."""

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
    say("config", lib.RedisConfig().namespace, config.max_connections, config == lib.RedisConfig(url=url, namespace=namespace))
    fails("few connections", lambda: lib.RedisConfig(max_connections=5))
    for kind, given in ((lib.MemorySemaphore, {}), (lib.RedisSemaphore, {"config": config})):
        await use(kind, given)
    say("heartbeat", lib.RedisSemaphore(name="h", value=1, ttl=20).heartbeat_max_interval)
    fails("ping", lambda: lib.RedisSemaphore(name="h", value=1, ping_interval=500))
    stats = lib.SemaphoreStats(acquired_slots=1, max_slots=3)
    say("stats", stats, f"{stats.acquired_percent:.1f}")
    say("result", lib.AcquisitionResult(acquisition_id="x", slot_number=2))
    await expiry()


async def use(kind: Any, given: dict[str, Any]) -> None:
    def new(**more: Any) -> Any:
        return kind(**{"name": "used", "value": 2, **given, **more})

    sem = new()
    query = {"config": given["config"]} if given else {}
    say(kind.__name__, isinstance(sem, lib.Semaphore), sem.name, sem.value, sem.ttl, sem.max_acquire_time)
    say("equal", sem == new(value=3))
    fails("no value", lambda: new(value=0))
    fails("positional", lambda: kind("used", 2))

    async with sem.cm() as result:
        say("in a block", type(result.acquisition_id), result.slot_number in (0, 1, 2), await sem.locked())
        say("stats", await kind.get_acquired_stats(**query))
        say("stats by name", await kind.get_acquired_stats(names=["used", "nobody"], **query))
        say("no stats", await kind.get_acquired_stats(names=["nobody"], **query))
        say("limit", len(await kind.get_acquired_stats(limit=1, **query)))
        second = await new().acquire()
        say("locked", await sem.locked(), second.acquisition_id != result.acquisition_id)
        await fails_in("timeout", new(max_acquire_time=0.05).acquire())
        await sem.release(second.acquisition_id)
        say("released", await sem.locked())
        await sem.release(second.acquisition_id)
        await sem.release("unknown")
        say("released again", await kind.get_acquired_stats(**query))
    say("left", await kind.get_acquired_stats(**query), await sem.locked())

    manager = sem.cm()
    await fails_in("left before entered", manager.__aexit__(None, None, None))
    async with manager:
        await fails_in("entered twice", manager.__aenter__())
    await fails_in("used again", manager.__aenter__())

    try:
        async with sem.cm():
            raise KeyError("from the block")
    except KeyError as error:
        say("exception", error, await sem.locked())

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
    say("cancelled", cancelled.cancelled())
    await only.release(held.acquisition_id)
    await asyncio.gather(*tasks)
    say("all had their turn", sorted(order), await kind.get_acquired_stats(**query))


async def expiry() -> None:
    sem = lib.MemorySemaphore(name="short", value=1, ttl=1, cancel_task_after_ttl=True)

    async def hang() -> None:
        async with sem.cm():
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await asyncio.wait([task])
    say("cancelled after its ttl", task.cancelled(), await sem.locked())
    kept = lib.MemorySemaphore(name="kept", value=1, ttl=1)
    await kept.acquire()
    again = await kept.acquire()
    say("taken back after its ttl", await kept.locked())
    await kept.release(again.acquisition_id)


def say(*words: Any) -> None:
    print(*words)


def fails(what: str, call: Any) -> None:
    try:
        call()
        say(what, "works")
    except Exception:
        say(what, "fails")


async def fails_in(what: str, awaitable: Any) -> None:
    try:
        await awaitable
        say(what, "works")
    except TimeoutError:
        say(what, "times out")
    except Exception:
        say(what, "fails")


asyncio.run(main())
