"""Named semaphores: limit how many tasks, processes or machines do a thing at once.

First come, first served; never more holders than slots; no slot is leaked; and you can always list the holders and the
waiters.

- A semaphore is a handle to a name. All handles to the same name share the slots: in this process (`MemorySemaphore`),
  between the processes of this user on this machine and the command `semafor` (`LocalSemaphore`), or between many
  machines through Redis (`RedisSemaphore`).
- `async with sem.cm() as result` holds a slot in the block. `result = await sem.acquire()` holds it until
  `await sem.release(result.acquisition_id)`. The result is an `AcquisitionResult` with an id, a slot number and a
  fencing token. The slot may have a lease (`ttl`). When the slot is lost, `result.lost` is set.
- `get_acquired_stats()`, `holders()` and `waiters()` show what is held and waiting.

Works under asyncio and uvloop, and on plain threads (`sem.sync()`). A lease ends on time even if the holder's event
loop is blocked or closed.

`semafor.effects` runs generators as cooperative tasks on a deterministic scheduler. `semafor.purge` removes empty
directories.

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
