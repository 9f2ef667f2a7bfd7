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
    """A semaphore for all processes of this user on this machine, with no server to set up.

    It is shared with the `semafor` command, whose agent hosts it: the first one who needs the agent starts it, and a minute
    after the last one it is gone. A process that ends, however it ends, gives its slots back.

    - `name`: who uses the same one shares the slots.
    - `value`: how many may hold a slot at once. As long as the name is in use, it has to be the same everywhere.
    - `max_acquire_time`: how long to wait for a slot, in seconds; then it is a TimeoutError. 0: not at all. None, which is the
      default: for as long as it takes.
    - `ttl`: how long a slot may be held, in seconds; then it is taken back, and `result.lost` is set. None, which is the default:
      for as long as it takes.
    - `label`: what holders and waiters are called in `holders()` and `waiters()`. None by default: nothing.
    - `cancel_task_after_ttl`: whether the task that holds a slot is cancelled when the slot is lost. False by default.
    - `directory`: where the agent's socket is, a folder that is closed to other users. None, which is the default: where the
      command looks, too.

    Another handle of the same name may have another `max_acquire_time`, `ttl` and `label`.

    >>> import asyncio
    >>> async def main():
    ...     sem = LocalSemaphore(name="doc-build", value=2, label="docs")
    ...     async with sem.cm():  # in `semafor run --name doc-build` there is one slot left
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
    """The command that came with this package. None: the one in PATH."""
    beside = Path(sysconfig.get_path("scripts"), "semafor")
    if beside.is_file():
        return str(beside)
    # Installed elsewhere than where this Python has its scripts.
    from importlib import metadata

    try:
        files = metadata.files("semafor") or []
    except metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == "semafor"), None)
