"""Nanoseconds per acquire+release in Python, as JSON: `memory.py ROUNDS`.

The work is that of benchmarks/src/memory, on one event loop.
"""

import asyncio
import json
import logging
import statistics
import sys
import time

from asyncio_advanced_semaphores import MemorySemaphore

SLOTS = 10
CYCLES = 20_000
# The loop runs once per batch, so that it can remove the timers of released slots.
BATCH = 100


class Asyncio:
    def __init__(self, slots):
        self.sem = asyncio.Semaphore(slots)

    async def cycle(self):
        await self.sem.acquire()
        self.sem.release()

    async def hold_across_yield(self):
        await self.sem.acquire()
        await asyncio.sleep(0)
        self.sem.release()


class Advanced:
    def __init__(self, slots, ttl=None):
        self.sem = MemorySemaphore(name=f"bench-{slots}-{ttl}", value=slots, ttl=ttl)

    async def cycle(self):
        held = await self.sem.acquire()
        await self.sem.release(held.acquisition_id)

    async def hold_across_yield(self):
        held = await self.sem.acquire()
        await asyncio.sleep(0)
        await self.sem.release(held.acquisition_id)


async def uncontended(contestant):
    start = time.perf_counter_ns()
    for _ in range(CYCLES // BATCH):
        for _ in range(BATCH):
            await contestant.cycle()
        await asyncio.sleep(0)
    return (time.perf_counter_ns() - start) / CYCLES


async def contended(contestant, tasks=64):
    each = CYCLES // tasks

    async def work():
        for _ in range(each):
            await contestant.hold_across_yield()

    start = time.perf_counter_ns()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return (time.perf_counter_ns() - start) / (each * tasks)


async def medians(rounds, measure, contestants):
    """The median of each over interleaved rounds, after one round to warm up."""
    values = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, contestant in contestants.items():
            value = await measure(contestant)
            if turn > 0:
                values[name].append(value)
    return {name: statistics.median(values) for name, values in values.items()}


async def main(rounds):
    asyncios, advanced = "asyncio.Semaphore", "asyncio-advanced-semaphores"
    return {
        "python": "{}.{}".format(*sys.version_info),
        "uncontended": await medians(
            rounds, uncontended, {asyncios: Asyncio(SLOTS), advanced: Advanced(SLOTS)}
        ),
        "with_ttl": await medians(rounds, uncontended, {advanced: Advanced(SLOTS, ttl=30)}),
        "contended": await medians(rounds, contended, {asyncios: Asyncio(8), advanced: Advanced(8)}),
    }


if __name__ == "__main__":
    logging.disable()
    print(json.dumps(asyncio.run(main(int(sys.argv[1])))))
