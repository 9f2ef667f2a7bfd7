"""Semaphores for the tasks and threads of this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _checks, _native
from .semaphore import Semaphore
from .stats import SemaphoreStats


@dataclass(kw_only=True)
class MemorySemaphore(Semaphore):
    """A semaphore for the tasks and threads of this process.

    >>> async def main():
    ...     sem = MemorySemaphore(name="doc-images", value=2, ttl=30)
    ...     async with sem.cm() as result:
    ...         print(result.slot_number, await sem.locked())
    ...     await sem.acquire(weight=2)
    ...     print(await sem.locked(), await MemorySemaphore.get_acquired_stats(names=["doc-images"]))
    ...     await sem.release()
    >>> import asyncio; asyncio.run(main())
    0 False
    True {'doc-images': SemaphoreStats(acquired_slots=2, max_slots=2)}
    """

    def _home(self) -> dict[str, Any]:
        return {}

    @classmethod
    async def get_acquired_stats(
        cls, *, names: list[str] | None = None, limit: int = 100
    ) -> dict[str, SemaphoreStats]:
        _checks.limit("limit", limit)
        names = _checks.names(names)
        usage = _native.memory_stats(names, limit if names is None else len(names))
        return {name: SemaphoreStats(held, slots) for name, held, slots in usage}
