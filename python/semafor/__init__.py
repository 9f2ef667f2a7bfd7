"""Limit how many do a thing at once: fair, never over-admitting, never leaking a slot, always able to say who holds what.

>>> import asyncio
>>> from semafor import MemorySemaphore
>>> sem = MemorySemaphore(name="doc-jobs", value=2, max_acquire_time=5)
>>> async def job(number):
...     async with sem.cm() as result:
...         return result.slot_number
>>> async def main():
...     return await asyncio.gather(*(job(number) for number in range(3)))
>>> asyncio.run(main())
[0, 0, 0]
"""

from __future__ import annotations

from . import _process
from ._errors import NotHeldError
from ._native import AcquisitionResult, Lost
from .local import LocalSemaphore
from .memory import MemorySemaphore
from .redis import RedisConfig, RedisSemaphore
from .semaphore import Semaphore
from .stats import Holder, SemaphoreStats, Waiter

__all__ = [
    "AcquisitionResult",
    "Holder",
    "LocalSemaphore",
    "Lost",
    "MemorySemaphore",
    "NotHeldError",
    "RedisConfig",
    "RedisSemaphore",
    "Semaphore",
    "SemaphoreStats",
    "Waiter",
]

_process.watch()
