"""A cancelled task has left the line and released its slot when CancelledError is raised."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from conftest import waiting
from homes import New, new  # noqa: F401
from semafor import RedisConfig, RedisSemaphore, _calls


def test_cancel_while_waiting_in_line(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        async with sem.cm():
            for _ in range(20):
                task = asyncio.create_task(sem.acquire())
                await waiting(sem, 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await sem.waiters() == []

    run(program())


def test_cancel_at_every_step_of_an_acquire(run: Any, new: New) -> None:
    """Cancels after 0, 1, 3, 7... turns of the event loop, until the acquire succeeds."""

    async def program() -> None:
        sem = new()
        await sem.locked()
        has_ended = False
        turns = 0
        while not has_ended:
            task = asyncio.create_task(sem.acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                result = await task
            except asyncio.CancelledError:
                pass
            else:
                has_ended = True
                await sem.release(result.acquisition_id)
            assert await sem.holders() == [] and await sem.waiters() == []
            turns = turns * 2 + 1

    run(program())


def test_cancel_just_after_the_grant(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        first = await sem.acquire()
        second, third = asyncio.create_task(sem.acquire()), None
        await waiting(sem, 1)
        third = asyncio.create_task(sem.acquire())
        await waiting(sem, 2)
        await sem.release(first.acquisition_id)
        second.cancel()
        await asyncio.wait([second])
        result = second.result() if not second.cancelled() else None
        if result is not None:
            await sem.release(result.acquisition_id)
        await sem.release((await third).acquisition_id)
        assert await sem.holders() == [] and await sem.waiters() == []

    run(program())


def test_cancel_during_a_release(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()

        async def work(entered: asyncio.Event) -> None:
            async with sem.cm():
                entered.set()

        for _ in range(20):
            entered = asyncio.Event()
            task = asyncio.create_task(work(entered))
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            assert await sem.holders() == []

    run(program())


def test_cancel_while_connecting(run: Any, name: str) -> None:
    async def program() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            config = RedisConfig(url=f"redis://127.0.0.1:{silent.getsockname()[1]}")
            task = asyncio.create_task(RedisSemaphore(name=name, value=1, config=config).acquire())
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                task.cancel()
                # There is nothing to release, so nothing to wait for.
                ended, _ = await asyncio.wait([task], timeout=_calls.CANCEL_TIMEOUT / 2)
                assert ended

    run(program())


def test_cancel_three_times(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        async with sem.cm():
            task = asyncio.create_task(sem.acquire())
            await waiting(sem, 1)
            for _ in range(3):
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await sem.waiters() == []

    run(program())


def test_wait_for_that_times_out_leaves_the_line(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        async with sem.cm():
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sem.acquire(), 0.05)
            assert await sem.waiters() == []

    run(program())


def test_cancelling_every_third_task_leaks_no_slot(run: Any, new: New) -> None:
    async def program() -> None:
        sem, inside, most = new(value=2), 0, 0

        async def work(number: int) -> None:
            nonlocal inside, most
            async with sem.cm():
                inside += 1
                most = max(most, inside)
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1

        for round in range(5):
            tasks = [asyncio.create_task(work(number)) for number in range(40)]
            for turn, task in enumerate(tasks):
                if turn % 3 == round % 3:
                    task.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)
        # Holders need not overlap: each holds its slot for one turn of the loop only.
        assert inside == 0 and 1 <= most <= 2
        assert await sem.holders() == [] and await sem.waiters() == []

    run(program())
