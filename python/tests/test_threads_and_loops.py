"""Many event loops in many threads, and threads without an event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop
from conftest import PATIENCE, RedisServer, waiting
from homes import New, new  # noqa: F401


class Counter:
    """Counts how many are inside, now and at most."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = self.most = self.total = 0

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            self.total += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1


def in_loop(number: int, program: Any) -> None:
    loop = uvloop.new_event_loop() if number % 2 else asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(program, PATIENCE * 2))
    finally:
        loop.close()


def test_many_loops_and_plain_threads_share_one_line(new: New, run: Any) -> None:
    slots, loops, tasks, rounds = 3, 6, 10, 5
    counter = Counter()

    async def work() -> None:
        for _ in range(rounds):
            async with new(value=slots).cm():
                with counter:
                    await asyncio.sleep(0)

    async def program() -> None:
        await asyncio.gather(*(work() for _ in range(tasks)))

    def on_plain_thread() -> None:
        sem = new(value=slots)
        for _ in range(rounds * tasks):
            with sem.sync():
                with counter:
                    pass

    with ThreadPoolExecutor(loops + 2) as pool:
        jobs = [pool.submit(in_loop, number, program()) for number in range(loops)]
        jobs += [pool.submit(on_plain_thread) for _ in range(2)]
        for job in jobs:
            job.result()
    assert (counter.inside, counter.total) == (0, (loops + 2) * tasks * rounds)
    assert counter.most <= slots

    async def nothing_left() -> None:
        sem = new(value=slots)
        assert await sem.holders() == [] and await sem.waiters() == []

    run(nothing_left())


def test_acquired_in_one_loop_and_released_in_another(new: New) -> None:
    sem = new()
    first = asyncio.run(sem.acquire())

    async def next_in_line() -> str:
        task = asyncio.create_task(sem.acquire())
        await waiting(sem, 1)
        with ThreadPoolExecutor(1) as pool:
            release = pool.submit(asyncio.run, sem.release(first.acquisition_id))
            result = await task
            await asyncio.wrap_future(release)
        return result.acquisition_id

    asyncio.run(sem.release(asyncio.run(next_in_line())))
    assert not asyncio.run(sem.locked())


def test_slot_outlives_the_loop_it_was_acquired_in(new: New) -> None:
    sem = new(ttl=1)
    held = asyncio.run(sem.acquire())

    async def next_in_line() -> None:
        # The lease ends on time, although the loop of the holder is closed.
        await sem.acquire()
        assert held.lost.is_set()
        await sem.release()

    asyncio.run(next_in_line())


def test_waiter_of_a_closed_loop_does_not_block_the_line(new: New) -> None:
    sem = new()
    held = asyncio.run(sem.acquire())
    closed = asyncio.new_event_loop()
    # It would report the unfinished task.
    closed.set_exception_handler(lambda *_: None)
    abandoned = closed.create_task(sem.acquire())
    closed.run_until_complete(waiting(sem, 1))
    closed.close()

    async def program() -> None:
        task = asyncio.create_task(sem.acquire())
        await waiting(sem, 2)
        await sem.release(held.acquisition_id)
        await sem.release((await task).acquisition_id)
        await waiting(sem, 0)
        assert await sem.holders() == []

    asyncio.run(program())
    assert not abandoned.done()


def test_loop_may_move_to_another_thread(new: New) -> None:
    sem = new()
    loop = asyncio.new_event_loop()
    held = loop.run_until_complete(sem.acquire())
    line = loop.create_task(sem.acquire())
    loop.run_until_complete(waiting(sem, 1))

    def go_on() -> str:
        return loop.run_until_complete(asyncio.wait_for(line, PATIENCE)).acquisition_id

    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(go_on)
        while not loop.is_running():
            pass
        # On the thread where the loop ran before.
        asyncio.run(sem.release(held.acquisition_id))
        asyncio.run(sem.release(moved.result()))
    loop.close()
    assert not asyncio.run(sem.locked())


def test_sync_times_out_and_misuse_raises_a_clear_error(new: New) -> None:
    sem = new(max_acquire_time=0.05)
    manager = sem.sync()
    with pytest.raises(RuntimeError, match="exited without having been entered"):
        manager.__exit__(None, None, None)
    with manager as result:
        assert result.slot_number == 0
        with pytest.raises(TimeoutError):
            sem.sync().__enter__()
        with pytest.raises(RuntimeError, match="already entered"):
            manager.__enter__()
    with pytest.raises(RuntimeError, match="already used"):
        manager.__enter__()
    with sem.sync(weight=1):
        pass


def test_process_needs_one_connection(redis: RedisServer, script: Any) -> None:
    """The loops, threads, semaphores and waiters of a process share it."""
    program = script(
        """
import asyncio, sys, threading
from semafor import RedisConfig, RedisSemaphore

config = RedisConfig(url=sys.argv[1])

async def use(number):
    sems = [RedisSemaphore(name=f"one-connection-{number}-{each}", value=1, config=config) for each in range(5)]
    for sem in sems:
        await sem.acquire()
    lines = [asyncio.create_task(sem.acquire()) for sem in sems for _ in range(10)]
    for sem in sems:
        while len(await sem.waiters()) != 10:
            await asyncio.sleep(0.001)
    ready.wait()
    await asyncio.to_thread(go_on.wait)
    for line in lines:
        line.cancel()
    await asyncio.wait(lines)

ready, go_on = threading.Barrier(5), threading.Event()
threads = [threading.Thread(target=lambda number=number: asyncio.run(use(number))) for number in range(4)]
for thread in threads:
    thread.start()
ready.wait()
print("ready")
sys.stdin.readline()
go_on.set()
""",
        redis.url,
    )
    before = connections(redis)
    program.expect_line("ready")
    assert connections(redis) - before == 1
    program.resume()
    assert program.wait_for_exit() == 0


def connections(redis: RedisServer) -> int:
    import socket

    with socket.create_connection(("127.0.0.1", redis.port), PATIENCE) as connection:
        connection.sendall(b"INFO clients\r\n")
        lines = iter(connection.makefile().readline, "")
        line = next(line for line in lines if line.startswith("connected_clients:"))
        return int(line.split(":")[1])
