"""semafor limits how many do a thing at once: tasks in a process, processes on a machine, or a fleet through Redis.

Waiters are served first come, first served. No more slots are granted than there are. A slot comes back however its
holder ends. `holders()` and `waiters()` list the holders and the waiters.

- `MemorySemaphore` shares its slots with the tasks and threads of this process.
- `LocalSemaphore` shares its slots with the processes of this user on this machine, and with the command `semafor`.
- `RedisSemaphore` shares its slots with all processes that use the same Redis, namespace and name.
- `semafor.effects` runs generators as cooperative tasks on a deterministic scheduler.
- `semafor.purge` removes empty directories.

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
        """Imports `effects` and `purge` on first use: most programs need neither."""
        if name not in ("effects", "purge"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f".{name}", __name__)


_process.register_hooks()
