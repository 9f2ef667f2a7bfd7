"""Checked by mypy: what the public names take and give."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from semafor import (
    AcquisitionResult,
    Holder,
    Lost,
    MemorySemaphore,
    RedisConfig,
    RedisSemaphore,
    Semaphore,
    SemaphoreStats,
    Waiter,
)
from semafor.purge import PurgeProgress, Purger, PurgeSummary

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


async def use(sem: Semaphore) -> None:
    result = await sem.acquire(weight=2)
    assert_type(result, AcquisitionResult)
    assert_type(result.acquisition_id, str)
    assert_type(result.slot_number, int)
    assert_type(result.fencing_token, int)
    assert_type(result.waited, float)
    assert_type(result.lost, Lost)
    assert_type(result.lost.is_set(), bool)
    assert_type(await result.lost.wait(), bool)
    await result.renew(5)
    await sem.renew(result.acquisition_id, None)
    await sem.release(result.acquisition_id)
    await sem.release()
    await sem.resize(3)
    assert_type(await sem.locked(), bool)
    assert_type(await sem.holders(), list[Holder])
    assert_type(await sem.waiters(), list[Waiter])
    assert_type(sem.cm(), AbstractAsyncContextManager[AcquisitionResult, bool | None])
    assert_type(sem.sync(), AbstractContextManager[AcquisitionResult, bool | None])
    async with sem.cm(weight=2) as held:
        assert_type(held, AcquisitionResult)
    async with sem as held:
        assert_type(held, AcquisitionResult)
    with sem.sync() as held:
        assert_type(held, AcquisitionResult)


async def statistics() -> None:
    assert_type(await MemorySemaphore.get_acquired_stats(names=["a"], limit=3), dict[str, SemaphoreStats])
    stats = await RedisSemaphore.get_acquired_stats(config=RedisConfig(url="redis://localhost"))
    assert_type(stats["a"].acquired_percent, float)


async def purge() -> None:
    def tell(progress: PurgeProgress) -> None:
        assert_type(progress.dirs_removed, int)

    summary = await Purger("/data", dry_run=True, on_progress=tell).purge()
    assert_type(summary, PurgeSummary)
    assert_type(summary.errors_by_kind, dict[str, int])


MemorySemaphore(name="a", value=1, max_acquire_time=0.5, ttl=30, cancel_task_after_ttl=True)
RedisSemaphore(name="a", value=1, heartbeat_max_interval=60, config=RedisConfig(namespace="b"))
