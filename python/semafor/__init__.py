"""Limit how many do a thing at once: fair, never over-admitting, never leaking a slot, always able to say who holds what.

>>> import asyncio
>>> from semafor import MemorySemaphore
>>> sem = MemorySemaphore(name="doc-jobs", value=2, max_acquire_time=5)
>>> async def job(number):
...     async with sem.cm() as result:  # waits in line, five seconds at most
...         print(f"job {number} has slot {result.slot_number}")
...         await asyncio.sleep(0.01)
>>> async def main():
...     await asyncio.gather(*(job(number) for number in range(3)))
>>> asyncio.run(main())
job 0 has slot 0
job 1 has slot 1
job 2 has slot 0

`LocalSemaphore` is for the processes of this machine, `RedisSemaphore` for a fleet. `semafor.effects` runs programs on a
deterministic scheduler, `semafor.purge` removes empty directories.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from . import _native, _process
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

__version__ = VERSION = _native.VERSION

if TYPE_CHECKING:
    from . import effects as effects
    from . import purge as purge
else:

    def __getattr__(name):
        """Modules that not everybody needs are imported when they are asked for."""
        if name not in ("effects", "purge"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f".{name}", __name__)


_process.watch()
