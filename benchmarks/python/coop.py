"""The works of benchmarks/src/coop/main.rs for asyncio, and for doeff where it is installed. Prints nanoseconds as JSON."""

import asyncio
import json
import sys
import time

PAIRS = 100_000
PARKED = 10_000
PERMITS = 3
SWITCHES = 50_000


def nanos_per(count, work):
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / count


async def asyncio_pairs():
    semaphore = asyncio.Semaphore(PERMITS)
    for _ in range(PAIRS):
        await semaphore.acquire()
        semaphore.release()


async def asyncio_parked():
    semaphore = asyncio.Semaphore(PERMITS)
    for _ in range(PERMITS):
        await semaphore.acquire()

    async def task():
        await semaphore.acquire()
        semaphore.release()

    tasks = [asyncio.create_task(task()) for _ in range(PARKED)]
    await asyncio.sleep(0)
    for _ in range(PERMITS):
        semaphore.release()
    await asyncio.gather(*tasks)


async def asyncio_ping_pong():
    ping, pong = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def player(own, other):
        for _ in range(SWITCHES // 2):
            await own.acquire()
            other.release()

    players = [asyncio.create_task(player(ping, pong)), asyncio.create_task(player(pong, ping))]
    ping.release()
    await asyncio.gather(*players)


def measure_asyncio():
    return [min(nanos_per(count, lambda: asyncio.run(work())) for _ in range(3)) for count, work in ASYNCIO]


ASYNCIO = [(PAIRS, asyncio_pairs), (PARKED, asyncio_parked), (SWITCHES, asyncio_ping_pong)]


def doeff_works():
    from doeff import do, run
    from doeff_core_effects.scheduler import (
        AcquireSemaphore,
        CreateSemaphore,
        Gather,
        ReleaseSemaphore,
        Spawn,
        scheduled,
    )

    @do
    def pairs():
        semaphore = yield CreateSemaphore(PERMITS)
        for _ in range(PAIRS):
            yield AcquireSemaphore(semaphore)
            yield ReleaseSemaphore(semaphore)

    @do
    def visit(semaphore):
        yield AcquireSemaphore(semaphore)
        yield ReleaseSemaphore(semaphore)

    @do
    def parked():
        semaphore = yield CreateSemaphore(PERMITS)
        for _ in range(PERMITS):
            yield AcquireSemaphore(semaphore)
        tasks = []
        for _ in range(PARKED):
            task = yield Spawn(visit(semaphore))
            tasks.append(task)
        for _ in range(PERMITS):
            yield ReleaseSemaphore(semaphore)
        yield Gather(*tasks)

    @do
    def player(own, other):
        for _ in range(SWITCHES // 2):
            yield AcquireSemaphore(own)
            yield ReleaseSemaphore(other)

    @do
    def ping_pong():
        ping = yield CreateSemaphore(1)
        pong = yield CreateSemaphore(1)
        yield AcquireSemaphore(ping)
        yield AcquireSemaphore(pong)
        first = yield Spawn(player(ping, pong))
        second = yield Spawn(player(pong, ping))
        yield ReleaseSemaphore(ping)
        yield Gather(first, second)

    works = [(PAIRS, pairs), (PARKED, parked), (SWITCHES, ping_pong)]
    return [(count, lambda work=work: run(scheduled(work()))) for count, work in works]


def measure_doeff():
    return [nanos_per(count, work) for count, work in doeff_works()]


def main():
    peers = {"asyncio": measure_asyncio()}
    try:
        from importlib.metadata import version

        peers[f"doeff {version('doeff')}"] = measure_doeff()
    except ImportError as reason:
        print(f"measuring without doeff: {reason}", file=sys.stderr)
    python = "{}.{}".format(*sys.version_info)
    print(json.dumps({"python": python, "peers": peers}))


if __name__ == "__main__":
    main()
