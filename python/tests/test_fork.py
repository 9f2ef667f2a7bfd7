"""A forked child has its own engine, and holds none of its parent's slots."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from conftest import RedisServer, waiting
from homes import New, new  # noqa: F401
from semafor import MemorySemaphore, NotHeldError, RedisSemaphore

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(work: Callable[[], object]) -> None:
    """Runs `work` in a forked child. Fails if it fails there."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_child_inherits_no_slot_and_releases_none(new: New) -> None:
    sem = new(value=2)
    inherited: list[Any] = []

    async def parent() -> None:
        held = await sem.acquire()
        other = new(name=f"{sem.name}, dropped in the child")
        inherited.extend([other, await other.acquire(), other.cm()])
        async with sem.cm() as guarded:
            line = asyncio.create_task(sem.acquire())
            await waiting(sem, 1)

            def child() -> None:
                asyncio.run(in_the_child(held.acquisition_id, guarded))

            await asyncio.to_thread(in_child, child)
            assert len(await sem.holders()) == 2 and len(await sem.waiters()) == 1
            assert not held.lost.is_set() and not guarded.lost.is_set()
        await sem.release(held.acquisition_id)
        await sem.release((await line).acquisition_id)
        assert await sem.holders() == []

    async def in_the_child(held: str, guarded: Any) -> None:
        if isinstance(sem, MemorySemaphore):
            # The child has its own slots, all of them free.
            assert await sem.holders() == []
            await sem.release(held)
        else:
            assert len(await sem.holders()) == 2
        with pytest.raises(NotHeldError, match="forked from"):
            await guarded.renew(5)
        assert not guarded.lost.is_set()
        inherited.clear()
        gc.collect()
        fresh = new(name=f"{sem.name} in the child", value=1, ttl=1)
        async with fresh.cm() as result:
            assert [holder.pid for holder in await fresh.holders()] in ([os.getpid()], [None])
            waiter = asyncio.create_task(fresh.acquire())
            assert await result.lost.wait()
            await fresh.release((await waiter).acquisition_id)
        del guarded

    asyncio.run(parent())


def test_child_of_a_busy_process_works(new: New) -> None:
    """The parent forks while its threads acquire and release."""
    sem = new(value=2)

    async def work() -> None:
        for _ in range(30):
            async with sem.cm():
                await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(work() for _ in range(5)))

    async def parent() -> None:
        busy = asyncio.create_task(many())
        children = [asyncio.to_thread(in_child, lambda: asyncio.run(many())) for _ in range(5)]
        await asyncio.gather(busy, *children)
        assert await sem.holders() == [] and await sem.waiters() == []

    asyncio.run(parent())


def test_child_of_multiprocessing_releases_its_slots(redis: RedisServer, name: str) -> None:
    sem = RedisSemaphore(name=name, value=1, config=redis.config())

    async def hold() -> None:
        await sem.acquire()

    asyncio.run(sem.locked())
    child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(hold()))
    child.start()
    child.join()
    assert (child.exitcode, redis.holders(name)) == (0, 0)


# Starts a child of multiprocessing that acquires a slot and ends. The parent does not import the package itself.
START_CHILD = """
import multiprocessing, sys

work = '''
import asyncio
from semafor import RedisConfig, RedisSemaphore
async def hold():
    await RedisSemaphore(name=name, value=1, config=RedisConfig(url=url)).acquire()
asyncio.run(hold())
'''
method, url, name, imports = sys.argv[1:]
arguments = {"url": url, "name": name}
if imports == "before it runs":
    from semafor import Holder
    arguments["the child imports semafor to unpickle this"] = Holder
child = multiprocessing.get_context(method).Process(target=exec, args=(work, arguments))
child.start()
child.join()
sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("imports", ["before it runs", "while it runs"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_of_every_start_method_releases_its_slots(
    redis: RedisServer, script: Any, name: str, method: str, imports: str
) -> None:
    assert script(START_CHILD, method, redis.url, name, imports).wait_for_exit() == 0
    assert redis.holders(name) == 0
