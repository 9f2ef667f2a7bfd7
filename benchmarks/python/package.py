"""The Python package beside its peers, in one run: `package.py FILE`, with rows as in `target/bench`.

All are measured in turn, round after round, in this process; a row has the median of each.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import asyncio_advanced_semaphores as advanced
import coop
import semafor
from semafor import effects

ROUNDS = int(os.environ.get("SEMAFOR_BENCH_ROUNDS", 7))
PYTHON = "Python {}.{}".format(*sys.version_info)
ASYNCIO, ADVANCED, LIMITERS = f"asyncio.Semaphore ({PYTHON})", f"asyncio-advanced-semaphores ({PYTHON})", "self-limiters"
CYCLES, TASKS, SLOTS = 20_000, 1000, 10


class Asyncio:
    def __init__(self, slots):
        self.sem = asyncio.Semaphore(slots)
        self.block = lambda: self.sem

    async def cycle(self):
        await self.sem.acquire()
        self.sem.release()


class ById:
    """The interface that both libraries have."""

    def __init__(self, sem):
        self.sem, self.block = sem, sem.cm

    async def cycle(self):
        held = await self.sem.acquire()
        await self.sem.release(held.acquisition_id)


class Limiters:
    def __init__(self, url, name, slots, most):
        import self_limiters

        self.sem = self_limiters.Semaphore(
            name=name, capacity=slots, max_sleep=600, redis_url=url, connection_pool_size=most + slots + 1
        )
        self.block = lambda: self.sem

    async def cycle(self):
        async with self.sem:
            pass


async def cycles(contestant, count):
    """Nanoseconds for each acquire and release, without contention."""
    start = time.perf_counter_ns()
    for _ in range(count // 100):
        for _ in range(100):
            await contestant.cycle()
        # Lets the loop remove its timers.
        await asyncio.sleep(0)
    return (time.perf_counter_ns() - start) / count


async def blocks(contestant, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        async with contestant.block():
            pass
    return (time.perf_counter_ns() - start) / count


async def contended(contestant, tasks, each):
    """Nanoseconds for each of the tasks' turns."""

    async def work():
        for _ in range(each):
            async with contestant.block():
                await asyncio.sleep(0)

    start = time.perf_counter_ns()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return (time.perf_counter_ns() - start) / (tasks * each)


async def handoff(contestant, period):
    """Nanoseconds from a release to the acquire of the waiter. Releases come at moments spread over a `period`."""
    turns, nanos = 10, []
    for turn in range(turns):
        leave = asyncio.Event()
        entered = asyncio.Event()

        async def first():
            async with contestant.block():
                entered.set()
                await leave.wait()
                return time.perf_counter_ns()

        async def second():
            async with contestant.block():
                return time.perf_counter_ns()

        one = asyncio.create_task(first())
        await entered.wait()
        other = asyncio.create_task(second())
        # Until it is in line, and then to a moment between two of its polls.
        await asyncio.sleep(0.05 + period * (turn + 0.5) / turns)
        leave.set()
        left, granted = await one, await other
        nanos.append(granted - left)
    return statistics.mean(nanos)


class Report:
    def __init__(self):
        self.rows = []

    async def compare(self, work, unit, per, rounds, contestants):
        """`contestants`: names, and functions that measure once. The first is ours."""
        values = {name: [] for name in contestants}
        for turn in range(rounds + 1):
            for name, measure in contestants.items():
                value = await measure()
                if turn > 0 or rounds == 1:
                    values[name].append(value / per)
        ours, *peers = values
        for peer in peers:
            self.add(work, unit, statistics.median(values[ours]), peer, statistics.median(values[peer]))

    def add(self, work, unit, ours, peer, theirs):
        ratio = ours / theirs
        print(f"{work:<44} {ours:>12.1f} {peer:<42} {theirs:>12.1f} {ratio:>8.4f}  {unit}", flush=True)
        row = {"area": "python", "work": work, "unit": unit, "ours": round(ours, 2), "peer": peer}
        self.rows.append(row | {"peer_value": round(theirs, 2), "ratio": round(ratio, 4)})


async def in_memory(report):
    def contestants(name, slots, measure):
        ours = ById(semafor.MemorySemaphore(name=name, value=slots))
        theirs = ById(advanced.MemorySemaphore(name=name, value=slots))
        each = {"ours": ours, ASYNCIO: Asyncio(slots), ADVANCED: theirs}
        return {name: lambda one=one: measure(one) for name, one in each.items()}

    cycle = contestants("cycle", SLOTS, lambda one: cycles(one, CYCLES))
    await report.compare("memory, acquire+release", "ns", 1, ROUNDS, cycle)
    block = contestants("block", SLOTS, lambda one: blocks(one, CYCLES))
    await report.compare("memory, async with", "ns", 1, ROUNDS, block)
    crowd = contestants("crowd", SLOTS, lambda one: contended(one, TASKS, 5))
    await report.compare("memory, 1000 tasks on 10 slots", "ns", 1, ROUNDS, crowd)


async def on_redis(report, url):
    def contestants(name, slots, most, measure):
        ours = semafor.RedisSemaphore(name=f"ours-{name}", value=slots, config=semafor.RedisConfig(url=url))
        theirs = advanced.RedisSemaphore(
            name=f"theirs-{name}", value=slots, config=advanced.RedisConfig(url=url)
        )
        each = {"ours": ById(ours), ADVANCED: ById(theirs)}
        if importlib.util.find_spec("self_limiters"):
            each[LIMITERS] = Limiters(url, f"limiters-{name}", slots, most)
        return {name: lambda name=name, one=one: measure(name, one) for name, one in each.items()}

    cycle = contestants("cycle", SLOTS, 1, lambda _, one: cycles(one, 500))
    await report.compare("redis, acquire+release", "µs", 1e3, ROUNDS, cycle)
    # For a library that polls once a second, releases come at moments spread over a second.
    hand = contestants("hand", 1, 2, lambda name, one: handoff(one, 1.0 if name == ADVANCED else 0.0))
    await report.compare("redis, handoff, mean", "µs", 1e3, 1, hand)
    crowd = contestants("crowd", SLOTS, TASKS, lambda name, one: contended(one, 100 if name == ADVANCED else TASKS, 1))
    # A thousand would take it minutes.
    crowd = {f"{name}, 100 tasks" if name == ADVANCED else name: measure for name, measure in crowd.items()}
    await report.compare("redis, 1000 tasks on 10 slots", "µs", 1e3, 1, crowd)


EFFECTS = ["effects, acquire+release", "effects, 10k tasks parked on 3 permits", "effects, ping-pong"]


async def of_effects(report):
    """Nanoseconds for each pair, task or switch. doeff is measured once: it takes minutes."""

    def blocking(run, count):
        async def measure():
            return coop.nanos_per(count, run)

        return measure

    def awaiting(run, count):
        async def measure():
            start = time.perf_counter_ns()
            await run()
            return (time.perf_counter_ns() - start) / count

        return measure

    ours = coop.effect_works(effects, effects.do, lambda program: effects.outcome_of(program).result(), signal=True)
    doeff = coop.doeff_works() if importlib.util.find_spec("doeff") else [None] * 3
    for work, (count, own), (_, theirs), once in zip(EFFECTS, ours, coop.ASYNCIO, doeff):
        contestants = {"ours": blocking(own, count), f"asyncio ({PYTHON})": awaiting(theirs, count)}
        await report.compare(work, "ns", 1, ROUNDS, contestants)
        if once:
            own = report.rows[-1]["ours"]
            report.add(work, "ns", own, f"doeff {version('doeff')}", coop.nanos_per(*once))


@contextmanager
def redis_server():
    program = shutil.which("redis-server")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        settings = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", ""]
        server = subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.01)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def main(path):
    logging.disable()
    report = Report()
    print(f"{'work':<44} {'ours':>12} {'peer':<42} {'theirs':>12} {'ratio':>8}  unit")
    asyncio.run(in_memory(report))
    asyncio.run(of_effects(report))
    with redis_server() as url:
        asyncio.run(on_redis(report, url))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report.rows, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
