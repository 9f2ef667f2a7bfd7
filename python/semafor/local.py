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
    """A semaphore for the processes of this user on this machine, and the command `semafor`; no server to set up.

    The first process that needs the agent starts it; the agent exits after a minute without use. A process that ends,
    in any way, releases its slots.

    - `name`: handles of the same name share the slots.
    - `value`: the number of slots. While the name is in use, another number is a ValueError; a name without holders and
      waiters takes the new one.
    - `max_acquire_time`: the timeout in seconds; then TimeoutError. 0: do not wait. None, the default: no limit.
    - `ttl`: the lease in seconds: how long a slot may be held. Then it is taken back, and `result.lost` is set. None,
      the default: no limit.
    - `label`: shown in `holders()`, `waiters()` and `semafor inspect`. None by default.
    - `cancel_task_after_ttl`: cancel the task whose slot is lost. False by default.
    - `directory`: the directory of the agent's socket; other users must not have access to it. None, the default: the
      same one as the command uses.

    Another handle of the same name may have another `ttl`, `max_acquire_time` and `label`.

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
    """Returns the command that was installed with this package. None: use the one in PATH."""
    beside = Path(sysconfig.get_path("scripts"), "semafor")
    if beside.is_file():
        return str(beside)
    # The package was installed into another place than this Python's scripts directory.
    from importlib import metadata

    try:
        files = metadata.files("semafor") or []
    except metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == "semafor"), None)
