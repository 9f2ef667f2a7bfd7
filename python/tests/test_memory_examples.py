"""The examples of the specification of the memory semaphore, verbatim except for the import."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from semafor import MemorySemaphore


async def do_work() -> None:
    await asyncio.sleep(0)


def test_basic_usage_with_context_manager(run: Any) -> None:
    async def example() -> None:
        sem = MemorySemaphore(value=5, name="my-resource")

        async with sem:
            # At most 5 concurrent executions reach here
            await do_work()
        # Slot automatically released on exit

        assert "my-resource" not in await MemorySemaphore.get_acquired_stats()

    run(example())


def test_with_ttl_and_auto_cancel(run: Any) -> None:
    async def potentially_hanging_operation() -> None:
        await asyncio.sleep(0)

    async def example() -> None:
        sem = MemorySemaphore(
            value=1,
            name="critical-resource",
            ttl=30,                    # Auto-release after 30 seconds
            cancel_task_after_ttl=True # Also cancel the hung task
        )  # fmt: skip

        async with sem:
            await potentially_hanging_operation()

        assert not await sem.locked()

    run(example())


def test_shared_semaphores_across_instances(run: Any) -> None:
    async def example() -> None:
        # These two instances share the same underlying queue
        sem1 = MemorySemaphore(value=3, name="shared")
        sem2 = MemorySemaphore(value=3, name="shared")

        async with sem1:  # Uses 1 of 3 slots
            async with sem2:  # Uses another slot from the SAME semaphore
                # Only 1 slot remaining for "shared"
                stats = await MemorySemaphore.get_acquired_stats(names=["shared"])
                assert stats["shared"].acquired_slots == 2

        assert (await MemorySemaphore.get_acquired_stats(names=["shared"]))["shared"].acquired_slots == 0

    run(example())


def test_with_acquire_timeout(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def example() -> None:
        sem = MemorySemaphore(
            value=1,
            name="limited-resource",
            max_acquire_time=5.0  # Raise TimeoutError if can't acquire within 5s
        )  # fmt: skip
        sem.max_acquire_time = 0.01
        held = await sem.acquire()

        try:
            async with sem:
                await do_work()
        except asyncio.TimeoutError:
            print("Could not acquire semaphore in time")

        await sem.release(held.acquisition_id)

    run(example())
    assert capsys.readouterr().out == "Could not acquire semaphore in time\n"


def test_monitoring_acquisition_statistics(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def example() -> None:
        async with MemorySemaphore(value=4, name="watched"):
            stats = await MemorySemaphore.get_acquisition_statistics()
            for name, stat in stats.items():
                print(f"{name}: {stat.acquired_slots}/{stat.max_slots} ({stat.acquired_percent:.1f}%)")

    run(example())
    assert "watched: 1/4 (25.0%)\n" in capsys.readouterr().out
