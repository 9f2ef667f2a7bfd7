"""Semaphores for the processes of this machine."""

from __future__ import annotations

import functools
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _checks
from .semaphore import Semaphore
from .stats import SemaphoreStats, acquired


@dataclass(kw_only=True)
class LocalSemaphore(Semaphore):
    """A semaphore for the processes of this user on this machine, and for the command `semafor`.

    There is no server to set up: the first process that needs the agent starts it, and the agent exits after a minute
    without use. When a process ends, in any way, its slots are released.

    - `name`: handles with the same name share the slots and the line.
    - `value`: the number of slots. If the name has another number, the first acquire raises ValueError while the name
      has holders or waiters; otherwise it changes the number.
    - `max_acquire_time`: the timeout: how many seconds an acquire waits in line before it raises TimeoutError. 0: no
      wait. None, the default: no limit.
    - `ttl`: the lease: how many seconds a slot may be held. After that the slot is lost: `result.lost` is set, and the
      next waiter gets the slot. None, the default: no limit.
    - `label`: a text that `holders()`, `waiters()` and `semafor inspect` show. None by default.
    - `cancel_task_after_ttl`: cancel the task whose slot is lost, for any reason. False by default.
    - `directory`: the directory of the agent's socket. Other users must not have access to it. None, the default: the
      directory that the command uses.

    Handles with the same name may have different `ttl`, `max_acquire_time` and `label`.

    >>> import asyncio
    >>> async def main():
    ...     sem = LocalSemaphore(name="doc-build", value=2, label="docs")
    ...     async with sem.cm():  # `semafor run --name doc-build` finds one slot left
    ...         print([(holder.label, holder.slot_number) for holder in await sem.holders()])
    >>> asyncio.run(main())
    [('docs', 0)]
    """

    directory: str | os.PathLike[str] | None = None

    _allowed = {**Semaphore._allowed, "directory": _checks.path(or_none=True)}

    def _home(self) -> dict[str, Any]:
        return {"url": _address(self.directory), "program": _command()}

    @classmethod
    async def get_acquired_stats(
        cls,
        *,
        names: list[str] | None = None,
        limit: int = 100,
        directory: str | os.PathLike[str] | None = None,
    ) -> dict[str, SemaphoreStats]:
        cls._allowed["directory"]("directory", directory)
        return await acquired(names, limit, url=_address(directory), program=_command())


def _address(directory: str | os.PathLike[str] | None) -> str:
    return "local:" if directory is None else f"local:{os.path.abspath(directory)}"


@functools.cache
def _command() -> str | None:
    """Returns the command that was installed with this package, or None: then the engine uses the one in PATH."""
    beside = Path(sysconfig.get_path("scripts"), "semafor")
    if beside.is_file():
        return str(beside)
    # The scripts were not installed into the scripts directory of this Python.
    from importlib import metadata

    try:
        files = metadata.files("semafor") or []
    except metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == "semafor"), None)
