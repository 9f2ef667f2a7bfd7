"""Contends for semaphores with the library `asyncio-advanced-semaphores`, controlled through stdin.

    contender.py redis://host:port/ namespace

One JSON object per line. In: {"do": ..., "who": ..., ...}. Out: {"who": ..., "event": ..., "at": nanoseconds}, the time
being CLOCK_MONOTONIC: the same for all processes of a machine. A grant is stamped after it was received, an end before
the release, so that no hold looks longer than it was.
"""

import asyncio
import json
import logging
import sys
import time

from asyncio_advanced_semaphores import RedisConfig, RedisSemaphore
from asyncio_advanced_semaphores.redis import lua

# What it complains about is brought about on purpose. What ends this process is still said.
logging.disable(logging.CRITICAL)

CONFIG = RedisConfig(url=sys.argv[1], namespace=sys.argv[2])
asking: dict[str, asyncio.Task] = {}
held: dict[str, tuple[RedisSemaphore, str]] = {}


def tell(who: str, event: str, **more) -> None:
    at = more.pop("at", None) or time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    print(json.dumps({"who": who, "event": event, "at": at, **more}), flush=True)


def semaphore(order: dict) -> RedisSemaphore:
    return RedisSemaphore(
        name=order["name"],
        value=order["value"],
        ttl=order.get("ttl"),
        max_acquire_time=order.get("max_acquire_time"),
        config=CONFIG,
    )


async def acquire(order: dict) -> None:
    who, sem = order["who"], semaphore(order)
    try:
        result = await sem.acquire()
    except (TimeoutError, asyncio.CancelledError):
        tell(who, "gave_up")
        return
    held[who] = (sem, result.acquisition_id)
    tell(who, "granted", id=result.acquisition_id)


async def release(order: dict) -> None:
    who = order["who"]
    at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    sem, acquisition_id = held.pop(who)
    await sem.release(acquisition_id)
    tell(who, "released", at=at)


def wake_up_nexts(client, sem: RedisSemaphore):
    return client.eval(
        lua.WAKE_UP_NEXTS_SCRIPT,
        4,
        sem._get_semaphore_key(sem.name),
        sem._get_semaphore_ttl_key(sem.name),
        sem._get_semaphore_waiting_key(sem.name),
        sem._get_semaphore_waiting_heartbeat_key(sem.name),
        sem.value,
        sem.heartbeat_max_interval,
        sem._resolved_ttl,
        time.time(),
        sem._get_acquisition_notification_key("@@@ACQUISITION_ID@@@"),
    )


async def release_and_wake(order: dict) -> None:
    """Both in one step: no other client can serve the line in between."""
    who = order["who"]
    at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    sem, acquisition_id = held.pop(who)
    sem._cancel_ping_task(acquisition_id)
    async with sem._client_manager.get_release_client().pipeline(transaction=True) as both:
        both.eval(
            lua.RELEASE_SCRIPT,
            4,
            sem._get_semaphore_key(sem.name),
            sem._get_semaphore_ttl_key(sem.name),
            sem._get_semaphore_waiting_key(sem.name),
            sem._get_semaphore_waiting_heartbeat_key(sem.name),
            acquisition_id,
        )
        wake_up_nexts(both, sem)
        await both.execute()
    tell(who, "released", at=at)


async def stats(order: dict) -> None:
    found = await RedisSemaphore.get_acquired_stats(names=[order["name"]], config=CONFIG)
    one = found.get(order["name"])
    tell(order["who"], "stats", held=one and one.acquired_slots, slots=one and one.max_slots)


async def obey(order: dict) -> None:
    match order["do"]:
        case "acquire":
            asking[order["who"]] = asyncio.current_task()
            await acquire(order)
        case "give_up":
            asking.pop(order["who"]).cancel()
        case "release":
            await release(order)
        case "release_and_wake":
            await release_and_wake(order)
        case "stats":
            await stats(order)


async def main() -> None:
    orders = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tell("", "ready")
    tasks = set()
    while line := await orders.readline():
        task = asyncio.create_task(obey(json.loads(line)))
        tasks.add(task)
        # What goes wrong in one of them is no reason to go on: the test is told by our end.
        task.add_done_callback(lambda task: task.cancelled() or task.exception() is None or loop.stop())
        task.add_done_callback(tasks.discard)


asyncio.run(main())
