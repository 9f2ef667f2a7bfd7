"""Semaphores for the tasks and threads of this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .semaphore import Semaphore
from .stats import SemaphoreStats, acquired


@dataclass(kw_only=True)
class MemorySemaphore(Semaphore):
    """A semaphore for the tasks and threads of this process.

    - `name`: handles with the same name share the slots and the line.
    - `value`: the number of slots. If the name has another number, the first acquire raises ValueError while the name
      has holders or waiters; otherwise it changes the number.
    - `max_acquire_time`: the timeout: how many seconds an acquire waits in line before it raises TimeoutError. 0: no
      wait. None, the default: no limit.
    - `ttl`: the lease: how many seconds a slot may be held. After that the slot is lost: `result.lost` is set, and the
      next waiter gets the slot. None, the default: no limit.
    - `label`: a text that `holders()` and `waiters()` show. None by default.
    - `cancel_task_after_ttl`: cancel the task whose slot is lost, for any reason. False by default.

    Handles with the same name may have different `ttl`, `max_acquire_time` and `label`.

    >>> import asyncio
    >>> async def main():
    ...     sem = MemorySemaphore(name="doc-images", value=2, ttl=30)
    ...     async with sem.cm() as result:
    ...         print(result.slot_number, await sem.locked())
    ...     await sem.acquire(weight=2)
    ...     print(await sem.locked(), await MemorySemaphore.get_acquired_stats(names=["doc-images"]))
    ...     hurried = MemorySemaphore(name="doc-images", value=2, max_acquire_time=0)
    ...     try:
    ...         await hurried.acquire()
    ...     except TimeoutError:
    ...         print("all slots are held")
    ...     await sem.release()
    >>> asyncio.run(main())
    0 False
    True {'doc-images': SemaphoreStats(acquired_slots=2, max_slots=2)}
    all slots are held
    """

    def _home(self) -> dict[str, Any]:
        return {}

    @classmethod
    async def get_acquired_stats(
        cls, *, names: list[str] | None = None, limit: int = 100
    ) -> dict[str, SemaphoreStats]:
        return await acquired(names, limit)
