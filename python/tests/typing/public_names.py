"""Checked by mypy: the types of the public names."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import semafor
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
    effects,
)
from semafor.effects import do
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
    def on_progress(progress: PurgeProgress) -> None:
        assert_type(progress.dirs_removed, int)

    summary = await Purger("/data", dry_run=True, on_progress=on_progress).purge()
    assert_type(summary, PurgeSummary)
    assert_type(summary.errors_by_kind, dict[str, int])


assert_type(semafor.__version__, str)
assert_type(semafor.VERSION, str)
assert_type(semafor.purge.Purger("/data", exclude=".snapshot"), Purger)
semafor.nothing  # type: ignore[attr-defined]

MemorySemaphore(name="a", value=1, max_acquire_time=0.5, ttl=30, cancel_task_after_ttl=True)
RedisSemaphore(name="a", value=1, heartbeat_max_interval=60, config=RedisConfig(namespace="b"))


@do
def work(sem: effects.Semaphore, number: int) -> Generator[Any, Any, str]:
    yield effects.AcquireSemaphore(sem, weight=2, timeout=1.5)
    yield effects.ReleaseSemaphore(sem)
    return str(number)


@do
def programs() -> Generator[Any, Any, list[str]]:
    sem: effects.Semaphore = yield effects.CreateSemaphore(3, name="three")
    assert_type(sem.id, int)
    task: effects.Task[str] = yield effects.Spawn(work(sem, 1), priority=effects.Priority.HIGH, name="one")
    promise: effects.ExternalPromise[str] = yield effects.CreateExternalPromise()
    assert_type(promise.future, effects.Future[str])
    assert_type(promise.complete("value"), bool)
    results: list[str] = yield effects.Gather(task, effects.Wait(promise.future))
    return results


def run_programs() -> None:
    assert_type(effects.run(programs(), clock="real"), list[str])
    outcome = effects.outcome_of(programs(), seed=3)
    assert_type(outcome.result(), list[str])
    assert_type(outcome.log, list[effects.LogLine])
    failure = effects.explore(programs(), schedules=10).failure
    assert_type(failure, effects.Counterexample | None)
    if failure is not None and isinstance(failure.error, effects.SchedulerDeadlockError):
        assert_type(failure.error.links, list[effects.DeadlockLink])
        effects.run(programs(), replay=failure.trace)
