"""What every semaphore promises, on every home, under asyncio and uvloop."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from conftest import waiting
from homes import New, new, stats_arguments  # noqa: F401
from semafor import AcquisitionResult, MemorySemaphore, NotHeldError, Semaphore, SemaphoreStats


def test_never_more_holders_than_slots(run: Any, new: New) -> None:
    async def program() -> None:
        sem, inside, most = new(value=3), 0, 0

        async def work() -> None:
            nonlocal inside, most
            async with sem.cm():
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(50)))
        assert most <= 3 and inside == 0
        assert await sem.holders() == [] and await sem.waiters() == []

    run(program())


def test_first_come_first_served(run: Any, new: New) -> None:
    async def program() -> None:
        sem, order = new(), []

        async def work(number: int) -> None:
            async with sem.cm():
                order.append(number)

        async with sem.cm():
            tasks = []
            for number in range(10):
                tasks.append(asyncio.create_task(work(number)))
                await waiting(sem, number + 1)
        await asyncio.gather(*tasks)
        assert order == list(range(10))

    run(program())


def test_slot_numbers_are_unique_and_tokens_grow(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=3)
        held = [await sem.acquire() for _ in range(3)]
        assert sorted(each.slot_number for each in held) == [0, 1, 2]
        tokens = [each.fencing_token for each in held]
        assert tokens == sorted(set(tokens))
        await sem.release(held[1].acquisition_id)
        again = await sem.acquire()
        assert again.slot_number == held[1].slot_number and again.fencing_token > tokens[-1]
        for each in (held[0], held[2], again):
            await sem.release(each.acquisition_id)

    run(program())


def test_timeout_raises_timeout_error(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(max_acquire_time=0.05)
        async with sem.cm():
            with pytest.raises(TimeoutError, match=r"semaphore .*: no slot within \d+ms: 1 of 1 slots held"):
                await sem.acquire()
            with pytest.raises(asyncio.TimeoutError):
                await sem.acquire()
        assert await sem.waiters() == [] and await sem.holders() == []

    run(program())


def test_release_by_id_is_idempotent(run: Any, new: New) -> None:
    async def program() -> None:
        sem, same = new(value=2), new(value=2)
        first, second = await sem.acquire(), await sem.acquire()
        await same.release(first.acquisition_id)
        await sem.release(first.acquisition_id)
        await sem.release("never-issued")
        await sem.release("0" * 32)
        assert [holder.acquisition_id for holder in await sem.holders()] == [second.acquisition_id]
        await sem.release(second.acquisition_id)
        assert await sem.holders() == []

    run(program())


def test_id_is_valid_for_one_semaphore_only(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        held = await sem.acquire()
        for other in (new(name=f"{sem.name}, another"), MemorySemaphore(name="elsewhere", value=1)):
            await other.release(held.acquisition_id)
            assert await sem.locked()
        await sem.release(held.acquisition_id)

    run(program())


def test_release_without_an_id_releases_the_latest_slot_of_the_task(run: Any, new: New) -> None:
    async def program() -> None:
        sem, same = new(value=4), new(value=4)

        async def other() -> None:
            await sem.acquire()
            await sem.release()
            with pytest.raises(NotHeldError, match="this task holds no slot"):
                await sem.release()

        first, second = await sem.acquire(), await sem.acquire()
        await asyncio.create_task(other())
        await same.release()
        assert [holder.acquisition_id for holder in await sem.holders()] == [first.acquisition_id]
        await sem.release()
        assert await sem.holders() == []
        assert second.acquisition_id != first.acquisition_id

    run(program())


def test_release_without_an_id_means_the_latest_slot_even_if_it_is_lost(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=2, ttl=1)
        outer = await sem.acquire()
        await outer.renew(None)
        inner = await sem.acquire()
        assert await inner.lost.wait()
        await sem.release()
        assert [holder.acquisition_id for holder in await sem.holders()] == [outer.acquisition_id]
        await sem.release()
        assert await sem.holders() == []

    run(program())


def test_block_may_be_exited_by_another_task(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=2)

        async def numbers() -> AsyncIterator[int]:
            async with sem:
                yield 1
                yield 2

        async for _ in numbers():
            break
        # The event loop closes the generator, in a task of its own.
        gc.collect()
        deadline = time.monotonic() + 10
        while await sem.holders():
            assert time.monotonic() < deadline
            await asyncio.sleep(0)

        stack = AsyncExitStack()
        await stack.enter_async_context(sem)
        await asyncio.create_task(stack.aclose())
        assert await sem.holders() == []

    run(program())


def test_nested_with_statements(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=2)

        async def work() -> None:
            async with sem as outer:
                await asyncio.sleep(0)
                async with sem as inner:
                    assert outer.slot_number != inner.slot_number
                    await asyncio.sleep(0)
                assert [each.acquisition_id for each in await sem.holders()] == [outer.acquisition_id]

        for _ in range(3):
            await asyncio.create_task(work())
        assert await sem.holders() == []

    run(program())


def test_misused_context_manager_raises_a_clear_error(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=2)
        manager = sem.cm()
        with pytest.raises(RuntimeError, match="exited without having been entered"):
            await manager.__aexit__(None, None, None)
        async with manager:
            with pytest.raises(RuntimeError, match="already entered"):
                await manager.__aenter__()
        with pytest.raises(RuntimeError, match="already used"):
            await manager.__aenter__()
        with pytest.raises(RuntimeError, match="already used"):
            await manager.__aexit__(None, None, None)
        with pytest.raises(RuntimeError, match="block the event loop"):
            sem.sync().__enter__()
        shared = sem.cm()
        async with sem.cm(weight=2):
            line = asyncio.create_task(shared.__aenter__())
            await waiting(sem, 1)
            with pytest.raises(RuntimeError, match="already entered"):
                await shared.__aenter__()
        await line
        await shared.__aexit__(None, None, None)
        assert await sem.holders() == []

    run(program())


def test_failed_block_releases_its_slot(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        with pytest.raises(ZeroDivisionError):
            async with sem.cm():
                raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            async with sem:
                raise ZeroDivisionError
        assert not await sem.locked()

    run(program())


def test_weights(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=3)
        async with sem.cm(weight=2):
            one = await sem.acquire()
            assert await sem.locked()
            await sem.release(one.acquisition_id)
            heavy = asyncio.create_task(sem.acquire(weight=3))
            await waiting(sem, 1)
        assert [holder.weight for holder in await sem.holders() if await heavy] == [3]
        await sem.release((await heavy).acquisition_id)
        for weight in (4, 0, -1):
            with pytest.raises(ValueError, match="weight"):
                await sem.acquire(weight=weight)
        for weight in (2**32, 2**70):
            with pytest.raises(ValueError, match=f"weight must be from 1 to 4294967295, got {weight}"):
                await sem.acquire(weight=weight)

    run(program())


def test_resize(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=1)
        first = await sem.acquire()
        second = asyncio.create_task(sem.acquire())
        await waiting(sem, 1)
        await sem.resize(2)
        assert sem.value == 2
        await sem.release((await second).acquisition_id)
        await sem.resize(1)
        assert await sem.locked()
        await sem.release(first.acquisition_id)
        for value in (0, -1, 2**32, 2**70):
            with pytest.raises(ValueError, match=f"got {value}"):
                await sem.resize(value)
        assert sem.value == 1

    run(program())


def test_handles_that_acquired_before_a_resize_go_on(run: Any, new: New) -> None:
    async def program() -> None:
        one, other = new(value=1), new(value=1)
        await other.release((await other.acquire()).acquisition_id)
        first = await one.acquire()
        await one.resize(3)
        second = await one.acquire()
        third = await other.acquire()
        assert (other.value, await other.locked()) == (1, True)
        for held in (first, second, third):
            await other.release(held.acquisition_id)

    run(program())


def test_handle_with_another_value_can_do_everything_but_acquire(run: Any, new: New) -> None:
    async def program() -> None:
        sem, other = new(value=2), new(value=3)
        first, second, third = await sem.acquire(), await sem.acquire(), asyncio.create_task(sem.acquire())
        await waiting(sem, 1)
        with pytest.raises(ValueError, match="is in use with 2 slots, not 3"):
            await other.acquire()
        assert (len(await other.holders()), len(await other.waiters()), await other.locked()) == (2, 1, True)
        await other.release(first.acquisition_id)
        await other.release(first.acquisition_id)
        await other.evict(second.acquisition_id)
        await other.renew((await third).acquisition_id, 60)
        await other.resize(4)
        assert (await other.acquire()).slot_number != (await third).slot_number
        await other.release()
        await other.release((await third).acquisition_id)
        assert await sem.holders() == []

    run(program())


def test_release_by_id_sets_lost_of_a_block(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        async with sem.cm() as result:
            await sem.release(result.acquisition_id)
            assert await result.lost.wait()
            assert result.lost.reason == "this permit was released already"

    run(program())


def test_lost_slot_sets_lost_and_goes_to_the_next_waiter(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(ttl=1)
        first = await sem.acquire()
        assert not first.lost.is_set() and first.lost.reason is None
        second = asyncio.create_task(sem.acquire())
        assert await asyncio.create_task(first.lost.wait()) and first.lost.is_set()
        assert first.lost.reason == "this permit lost its slot: its time to live ran out"
        assert (await second).fencing_token > first.fencing_token
        with pytest.raises(NotHeldError):
            await first.renew(5)
        await sem.release(first.acquisition_id)
        assert "time to live" in repr(first.lost)
        assert [each.acquisition_id for each in await sem.holders()] == [(await second).acquisition_id]
        await sem.release((await second).acquisition_id)
        assert not (await second).lost.is_set(), "a release is not a loss"

    run(program())


def test_evict(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new()
        held = await sem.acquire()
        next_one = asyncio.create_task(sem.acquire())
        await waiting(sem, 1)
        await sem.evict(held.acquisition_id)
        assert await held.lost.wait() and "evicted" in (held.lost.reason or "")
        await sem.release((await next_one).acquisition_id)
        with pytest.raises(NotHeldError):
            await sem.evict(held.acquisition_id)
        with pytest.raises(NotHeldError, match="invalid acquisition id"):
            await sem.evict("no id")

    run(program())


def test_lost_can_be_read_after_the_block(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(ttl=1)
        async with sem.cm() as result:
            second = await sem.acquire()
        assert result.lost.is_set() and result.lost.reason
        await sem.release(second.acquisition_id)
        assert not second.lost.is_set() and second.lost.reason is None

    run(program())


def test_renew(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(ttl=2)
        held = await sem.acquire()
        await asyncio.create_task(held.renew(1000))
        [holder] = await sem.holders()
        assert holder.expires_in is not None and holder.expires_in > 500
        await sem.renew(held.acquisition_id, None)
        [holder] = await sem.holders()
        assert holder.expires_in is None
        await sem.release(held.acquisition_id)
        with pytest.raises(NotHeldError):
            await sem.renew(held.acquisition_id, 5)

    run(program())


def test_cancel_task_after_ttl_cancels_the_task_that_lost_its_slot(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(ttl=1, cancel_task_after_ttl=True)  # type: ignore[call-arg]

        reasons: list[str] = []

        async def be_cancelled() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as cancelled:
                reasons.append(cancelled.args[0])
                raise

        async def by_id() -> None:
            await sem.acquire()
            await be_cancelled()

        async def in_a_block() -> None:
            async with sem.cm():
                await be_cancelled()

        async def in_time() -> None:
            async with sem.cm():
                pass
            await sem.acquire()
            await sem.release()
            # A task that has released its slots is not cancelled later.
            await asyncio.gather(*others, return_exceptions=True)

        others = [asyncio.create_task(by_id()), asyncio.create_task(in_a_block())]
        await asyncio.create_task(in_time())
        assert all(task.cancelled() for task in others)
        assert all("lost its slot: its time to live ran out" in reason for reason in reasons) and len(reasons) == 2
        assert await sem.holders() == []

    run(program())


def test_task_is_not_cancelled_after_it_exited_the_block(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(ttl=0.1, cancel_task_after_ttl=True)  # type: ignore[call-arg]

        async def work() -> None:
            async with sem.cm() as result:
                while not result.lost.is_set():
                    time.sleep(0.001)
            # More turns of the event loop than the queued callback needs.
            for _ in range(100):
                await asyncio.sleep(0)

        await asyncio.create_task(work())

    run(program())


def test_statistics(run: Any, new: New, name: str, request: pytest.FixtureRequest) -> None:
    async def program() -> None:
        sem = new(value=4)
        query = stats_arguments(sem)
        assert name not in await sem.get_acquired_stats(**query)
        async with sem.cm():
            everything = await sem.get_acquired_stats(**query)
            assert everything[name] == SemaphoreStats(acquired_slots=1, max_slots=4)
            assert everything[name].acquired_percent == 25.0
            named = await sem.get_acquisition_statistics(names=[name, "unknown"], **query)
            assert named == {name: SemaphoreStats(acquired_slots=1, max_slots=4)}
            assert len(await sem.get_acquired_stats(limit=1, **query)) == 1
            assert list(await sem.get_acquired_stats(names=[name], limit=0, **query)) == [name]

    run(program())


def test_holders_and_waiters(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(label="resize", ttl=60)
        async with sem.cm() as result:
            second = asyncio.create_task(new(label="crop").acquire())
            await waiting(sem, 1)
            [holder], [waiter] = await sem.holders(), await sem.waiters()
            assert (holder.acquisition_id, holder.slot_number) == (result.acquisition_id, 0)
            assert (holder.fencing_token, holder.weight, holder.label) == (result.fencing_token, 1, "resize")
            assert (waiter.ahead, waiter.weight, waiter.label) == (0, 1, "crop")
            second.cancel()
            await asyncio.wait([second])

    run(program())


def test_another_value_is_refused_while_the_name_is_in_use(run: Any, new: New) -> None:
    async def program() -> None:
        async with new(value=2).cm():
            with pytest.raises(ValueError, match="in use with 2 slots, not 3"):
                await new(value=3).acquire()
        async with new(value=3).cm():
            pass

    run(program())


def test_invalid_values_are_refused(new: New) -> None:
    with pytest.raises(ValueError, match="value must be at least 1, got 0"):
        new(value=0)
    with pytest.raises(ValueError, match="value must be from 1 to 4294967295, got 4294967296"):
        new(value=2**32).cm()
    with pytest.raises(TypeError):
        type(new())("positional", 1)  # type: ignore[call-arg]



def test_attributes_equality_and_repr(new: New) -> None:
    sem = new(value=3, ttl=30)
    assert isinstance(sem, Semaphore)
    assert (sem.value, sem.ttl, sem.max_acquire_time) == (3, 30, None)
    assert sem == new(value=3, ttl=30) and sem != new(value=4, ttl=30)
    assert repr(sem).startswith(f"{type(sem).__name__}(name=")
    made_up = AcquisitionResult(acquisition_id="a", slot_number=1)
    assert made_up == AcquisitionResult("a", 1) and made_up != AcquisitionResult("b", 1)
    assert repr(made_up) == "AcquisitionResult(acquisition_id='a', slot_number=1)"


def test_a_copy_holds_nothing(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(value=2)
        async with sem:
            for same in (copy.deepcopy(sem), pickle.loads(pickle.dumps(sem))):
                assert same == sem
                async with same:
                    assert len(await sem.holders()) == 2
                assert len(await sem.holders()) == 1

    run(program())


def test_changed_arguments_apply_from_the_next_use(run: Any, new: New) -> None:
    async def program() -> None:
        sem = new(max_acquire_time=1000)
        async with sem:
            sem.max_acquire_time = 0
            with pytest.raises(TimeoutError):
                await sem.acquire()
        assert not await sem.locked()

    run(program())
