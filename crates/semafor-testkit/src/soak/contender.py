"""Contends for a semaphore with the library `asyncio-advanced-semaphores`, and prints events as `contender.rs` does.

    contender.py redis://host:port/ namespace

It takes the orders `load FIRST TASKS NAME SLOTS HEARTBEAT HOLD PAUSE` (times in milliseconds, heartbeat in seconds) and `stop`.
"""

import asyncio
import logging
import random
import sys
import time

from asyncio_advanced_semaphores import RedisConfig, RedisSemaphore

# What it complains about is brought about on purpose.
logging.disable(logging.CRITICAL)

CONFIG = RedisConfig(
    url=sys.argv[1],
    namespace=sys.argv[2],
    socket_timeout=2,
    socket_connect_timeout=2,
    number_of_attempts=20,
    retry_multiplier=0.05,
    retry_min_delay=0.05,
    retry_max_delay=0.5,
)
is_stopped = False


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def tell(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.exit()


async def tick() -> None:
    while True:
        tell(f"tick {now()}")
        await asyncio.sleep(0.1)


async def contend(by: int, name: str, slots: int, heartbeat: int, hold: float, pause: float) -> None:
    while not is_stopped:
        await asyncio.sleep(random.random() * pause / 1000)
        # One object for each request, as its documentation shows it.
        sem = RedisSemaphore(name=name, value=slots, config=CONFIG, heartbeat_max_interval=heartbeat)
        tell(f"{now()} {by} asked")
        try:
            async with asyncio.timeout(30):
                result = await sem.acquire()
        except Exception as error:
            tell(f"{now()} {by} gave-up")
            tell(f"failure of {by}: {type(error).__name__}")
            continue
        tell(f"{now()} {by} granted {result.acquisition_id} - - 1")
        await asyncio.sleep(random.random() * hold / 1000)
        tell(f"{now()} {by} ended {result.acquisition_id}")
        try:
            await sem.release(result.acquisition_id)
        except Exception as error:
            tell(f"failure of {by}: {type(error).__name__}")


async def main() -> None:
    global is_stopped
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tasks = [asyncio.create_task(tick())]
    tell("ready")
    while line := await orders.readline():
        match line.decode().split():
            case ["load", first, number, name, slots, heartbeat, hold, pause]:
                for by in range(int(first), int(first) + int(number)):
                    work = contend(by, name, int(slots), int(heartbeat), float(hold), float(pause))
                    tasks.append(asyncio.create_task(work))
            case ["stop"]:
                is_stopped = True


asyncio.run(main())
