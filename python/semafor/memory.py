"""Semaphores for the tasks and threads of this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .semaphore import Semaphore
from .stats import SemaphoreStats, acquired


@dataclass(kw_only=True)
class MemorySemaphore(Semaphore):
    """A semaphore for the tasks and threads of this process.

    - `name`: handles of the same name share the slots.
    - `value`: the number of slots. While the name is in use, another number is a ValueError; a name without holders and
      waiters takes the new one.
    - `max_acquire_time`: the timeout in seconds; then TimeoutError. 0: do not wait. None, the default: no limit.
    - `ttl`: the lease in seconds: how long a slot may be held. Then it is taken back, and `result.lost` is set. None,
      the default: no limit.
    - `label`: shown in `holders()` and `waiters()`. None by default.
    - `cancel_task_after_ttl`: cancel the task whose slot is lost. False by default.

    Another handle of the same name may have another `ttl`, `max_acquire_time` and `label`.

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
