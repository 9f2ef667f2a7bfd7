"""Abandoned objects are garbage collected, and release their slots. Memory does not grow."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from conftest import until, waiting
from semafor import AcquisitionResult, MemorySemaphore, _native

MANY = 100_000


def memory() -> int:
    """The memory of this process now, in bytes."""
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def abandoned_handles(name: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    async def abandon(count: int) -> None:
        for number in range(count):
            await MemorySemaphore(name=f"{name} {number % 100}", value=2).locked()

    return abandon


def abandoned_acquires(name: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    sem = MemorySemaphore(name=name, value=1)

    async def abandon(count: int) -> None:
        async with sem.cm():
            for _ in range(count):
                line = sem.acquire()
                line.send(None)
                del line
            assert await sem.waiters() == []

    return abandon


def abandoned_managers(name: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    sem = MemorySemaphore(name=name, value=1)

    async def abandon(count: int) -> None:
        for _ in range(count):
            await sem.cm().__aenter__()
            assert await sem.holders() == []

    return abandon


def abandoned_blocks(name: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    sem = MemorySemaphore(name=name, value=1)

    async def block() -> None:
        async with sem.cm():
            await asyncio.Event().wait()

    async def abandon(count: int) -> None:
        for _ in range(count):
            abandoned = block()
            abandoned.send(None)
            del abandoned
            assert await sem.holders() == []

    return abandon


def abandoned_calls(name: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    sem = MemorySemaphore(name=name, value=1)

    async def abandon(count: int) -> None:
        held = await sem.acquire()
        for _ in range(count):
            held.lost.wait().close()
            _native.stats(None, None, None, 10)
        await sem.release(held.acquisition_id)

    return abandon


def lost_slots(name: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    sem = MemorySemaphore(name=name, value=MANY, ttl=0.01)

    async def abandon(count: int) -> None:
        for start in range(0, count, 1000):
            for _ in range(min(1000, count - start)):
                await sem.acquire()
            await sem.acquire()
            await (await sem.acquire()).lost.wait()

    return abandon


@pytest.mark.parametrize(
    "kind",
    [
        abandoned_handles,
        abandoned_acquires,
        abandoned_managers,
        abandoned_blocks,
        abandoned_calls,
        lost_slots,
    ],
)
def test_memory_does_not_grow(kind: Any, name: str) -> None:
    abandon = kind(name)

    async def program() -> None:
        await abandon(MANY // 10)
        gc.collect()
        before = memory()
        await abandon(MANY)
        gc.collect()
        # A leak of a hundred bytes each would be ten megabytes.
        assert memory() - before < MANY * 40

    asyncio.run(program())


def run_and_abandon(main: Coroutine[Any, Any, None]) -> None:
    """Runs `main`, then closes the loop and drops it with all unfinished tasks."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(main)
    loop.close()
    del loop
    gc.collect()


def test_collected_task_releases_the_slot_of_its_block(name: str) -> None:
    sem = MemorySemaphore(name=name, value=2)

    async def entered(event: asyncio.Event) -> None:
        async with sem:
            event.set()
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        event = asyncio.Event()
        task = asyncio.get_running_loop().create_task(entered(event))
        await event.wait()
        del task

    run_and_abandon(main())

    async def no_holders() -> None:
        assert await sem.holders() == []

    asyncio.run(no_holders())


def test_collected_waiter_leaves_the_line(name: str) -> None:
    sem = MemorySemaphore(name=name, value=1)

    async def main() -> None:
        await sem.acquire()
        line = asyncio.get_running_loop().create_task(sem.acquire())
        while not await sem.waiters():
            await asyncio.sleep(0)
        del line

    run_and_abandon(main())

    async def no_waiters() -> None:
        assert await sem.waiters() == []

    asyncio.run(no_waiters())


def test_collected_task_does_not_release_the_slot_of_another_task(name: str) -> None:
    sem = MemorySemaphore(name=name, value=2)

    async def entered(event: asyncio.Event) -> None:
        async with sem:
            event.set()
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        event = asyncio.Event()
        task = asyncio.create_task(entered(event))
        await event.wait()
        del task
        async with sem as own:
            gc.collect()
            assert [each.acquisition_id for each in await sem.holders()] == [own.acquisition_id]
        assert await sem.holders() == []

    asyncio.run(main())


def test_loop_keeps_waiting_tasks_alive(name: str) -> None:
    """Like the semaphores of asyncio: a task that waits in line needs no other reference."""
    sem, done = MemorySemaphore(name=name, value=1), []

    async def work(number: int) -> None:
        async with sem.cm():
            done.append(number)

    async def main() -> None:
        async with sem.cm():
            for number in range(10):
                asyncio.get_running_loop().create_task(work(number))
            await waiting(sem, 10)
            gc.collect()
        await until(lambda: len(done) == 10)

    asyncio.run(main())


def test_loop_does_not_keep_tasks_that_wait_for_a_loss(name: str) -> None:
    """A loss may never happen, so such tasks could stay alive forever."""

    async def watch(result: AcquisitionResult) -> None:
        await result.lost.wait()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with MemorySemaphore(name=name, value=1).cm() as result:
            asyncio.get_running_loop().create_task(watch(result))
            await asyncio.sleep(0)
            gc.collect()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_release_by_the_interpreter_keeps_the_raised_exception(name: str) -> None:
    sem = MemorySemaphore(name=name, value=1)

    async def main() -> None:
        managers = [sem.cm()]
        await managers[0].__aenter__()
        line = asyncio.create_task(sem.acquire())
        await waiting(sem, 1)
        with pytest.raises(TypeError, match="has no len"):
            len(managers.pop())  # type: ignore[arg-type]
        await line

    asyncio.run(main())


def test_no_threads_until_they_are_needed(script: Any) -> None:
    text = """
import asyncio, os
from semafor import MemorySemaphore
sem = MemorySemaphore(name="quiet", value=1)
async def main():
    async with sem.cm():
        line = asyncio.create_task(sem.acquire())
        await asyncio.sleep(0)
    await line
asyncio.run(main())
print(len(os.listdir("/proc/self/task")))
"""
    program = script(text)
    program.expect_line("1")
    assert program.wait_for_exit() == 0


def test_cancelled_waiters_can_be_collected(name: str) -> None:
    """The engine keeps no references to tasks that waited."""
    sem = MemorySemaphore(name=name, value=1)

    async def program() -> None:
        held = await sem.acquire()
        tasks = [asyncio.create_task(sem.acquire()) for _ in range(100)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        del tasks, task
        await sem.release(held.acquisition_id)

    asyncio.run(program())
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]
