"""Semaphores for the tasks and threads of this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .semaphore import Semaphore
from .stats import SemaphoreStats, acquired


@dataclass(kw_only=True)
class MemorySemaphore(Semaphore):
    """A semaphore for the tasks and threads of this process.

    - `name`: who uses the same one shares the slots.
    - `value`: how many may hold a slot at once. As long as the name is in use, it has to be the same everywhere.
    - `max_acquire_time`: how long to wait for a slot, in seconds; then it is a TimeoutError. 0: not at all. None, which is the
      default: for as long as it takes.
    - `ttl`: how long a slot may be held, in seconds; then it is taken back, and `result.lost` is set. None, which is the default:
      for as long as it takes.
    - `label`: what holders and waiters are called in `holders()` and `waiters()`. None by default: nothing.
    - `cancel_task_after_ttl`: whether the task that holds a slot is cancelled when the slot is lost. False by default.

    Another handle of the same name may have another `max_acquire_time`, `ttl` and `label`.

    >>> import asyncio
    >>> async def main():
    ...     sem = MemorySemaphore(name="doc-images", value=2, ttl=30)
    ...     async with sem.cm() as result:
    ...         print(result.slot_number, await sem.locked())
    ...     await sem.acquire(weight=2)
    ...     print(await sem.locked(), await MemorySemaphore.get_acquired_stats(names=["doc-images"]))
    ...     impatient = MemorySemaphore(name="doc-images", value=2, max_acquire_time=0)
    ...     try:
    ...         await impatient.acquire()
    ...     except TimeoutError:
    ...         print("not now")
    ...     await sem.release()
    >>> asyncio.run(main())
    0 False
    True {'doc-images': SemaphoreStats(acquired_slots=2, max_slots=2)}
    not now
    """

    def _home(self) -> dict[str, Any]:
        return {}

    @classmethod
    async def get_acquired_stats(
        cls, *, names: list[str] | None = None, limit: int = 100
    ) -> dict[str, SemaphoreStats]:
        return await acquired(names, limit)
