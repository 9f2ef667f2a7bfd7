"""The works of benchmarks/src/coop/main.rs for asyncio, and for doeff if installed. Prints nanoseconds as JSON."""

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


def effect_works(api, do, run, **made_for_others):
    """The works for a library of effects: what runs them, by their counts.

    `made_for_others` is said of a semaphore that another task than the holder releases.
    """

    @do
    def pairs():
        semaphore = yield api.CreateSemaphore(PERMITS)
        for _ in range(PAIRS):
            yield api.AcquireSemaphore(semaphore)
            yield api.ReleaseSemaphore(semaphore)

    @do
    def visit(semaphore):
        yield api.AcquireSemaphore(semaphore)
        yield api.ReleaseSemaphore(semaphore)

    @do
    def parked():
        semaphore = yield api.CreateSemaphore(PERMITS)
        for _ in range(PERMITS):
            yield api.AcquireSemaphore(semaphore)
        tasks = []
        for _ in range(PARKED):
            task = yield api.Spawn(visit(semaphore))
            tasks.append(task)
        for _ in range(PERMITS):
            yield api.ReleaseSemaphore(semaphore)
        yield api.Gather(*tasks)

    @do
    def player(own, other):
        for _ in range(SWITCHES // 2):
            yield api.AcquireSemaphore(own)
            yield api.ReleaseSemaphore(other)

    @do
    def ping_pong():
        ping = yield api.CreateSemaphore(1, **made_for_others)
        pong = yield api.CreateSemaphore(1, **made_for_others)
        yield api.AcquireSemaphore(ping)
        yield api.AcquireSemaphore(pong)
        first = yield api.Spawn(player(ping, pong))
        second = yield api.Spawn(player(pong, ping))
        yield api.ReleaseSemaphore(ping)
        yield api.Gather(first, second)

    works = [(PAIRS, pairs), (PARKED, parked), (SWITCHES, ping_pong)]
    return [(count, lambda work=work: run(work())) for count, work in works]


def doeff_works():
    from doeff import do, run
    from doeff_core_effects import scheduler

    return effect_works(scheduler, do, lambda program: run(scheduler.scheduled(program)))


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
