"""What a peer in Python needs to be measured: see benchmarks/src/redis/peer.rs for the requests."""

import asyncio
import json
import sys
import time

SLOTS = 10
AT_ONCE = 100


class Skip(Exception):
    """A request that this peer cannot do, with the reason."""


class Peer:
    """A subclass has a name, and `semaphore(name, slots, most)`: an object for at most `most` users at once, with
    `acquire()`, `release(held)` and `waiting()`, the number of waiters."""

    # The polling period of a waiter, in seconds: releases come at moments spread evenly over it.
    period = 0

    async def cycle(self, count):
        semaphore = self.semaphore("cycle", SLOTS, 1)
        micros = []
        for _ in range(count):
            start = time.perf_counter_ns()
            await semaphore.release(await semaphore.acquire())
            micros.append((time.perf_counter_ns() - start) / 1e3)
        return micros

    async def handoff(self, count):
        semaphore = self.semaphore("handoff", 1, 2)
        micros = []

        async def wait():
            held = await semaphore.acquire()
            return held, time.perf_counter_ns()

        held = await semaphore.acquire()
        for turn in range(count):
            waiter = asyncio.create_task(wait())
            await until_queued(semaphore, 1)
            await asyncio.sleep(self.period * (turn + 0.5) / count)
            start = time.perf_counter_ns()
            await semaphore.release(held)
            held, granted = await waiter
            micros.append((granted - start) / 1e3)
        await semaphore.release(held)
        return micros

    async def contend(self, contenders, cycles):
        semaphore = self.semaphore("contended", SLOTS, contenders)

        async def work():
            for _ in range(cycles):
                await semaphore.release(await semaphore.acquire())

        start = time.perf_counter_ns()
        await asyncio.gather(*(work() for _ in range(contenders)))
        return [(time.perf_counter_ns() - start) / 1e3 / (contenders * cycles)]

    async def wait(self, count):
        semaphore = self.semaphore("idle-waiters", 1, count + 1)
        await semaphore.acquire()
        self.tasks = [asyncio.create_task(semaphore.acquire()) for _ in range(count)]
        await until_queued(semaphore, count)
        return 0

    async def hold(self, count):
        semaphore = self.semaphore("idle-holders", count, count)
        for first in range(0, count, AT_ONCE):
            some = range(first, min(first + AT_ONCE, count))
            await asyncio.gather(*(semaphore.acquire() for _ in some))
        return 0


async def until_queued(semaphore, waiters):
    while await semaphore.waiting() != waiters:
        await asyncio.sleep(0.001)


async def serve(peer):
    answer({"ok": peer.name})
    # Read in a thread, so that waiters and holders continue meanwhile.
    while line := await asyncio.to_thread(sys.stdin.readline):
        work, *counts = line.split()
        try:
            answer({"ok": await getattr(peer, work)(*map(int, counts))})
        except Skip as reason:
            answer({"skip": str(reason)})


def answer(value):
    print(json.dumps(value), flush=True)


def python():
    return "Python {}.{}".format(*sys.version_info)
