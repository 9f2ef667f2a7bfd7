"""Removes empty directories, and old files if asked to. Linux only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from . import _checks, _native
from ._native import PurgeProgress, PurgeSummary

__all__ = ["PurgeProgress", "PurgeSummary", "Purger"]


@dataclass
class Purger:
    """Removes the empty directories below `root_path`, and those that become empty by it.

    >>> import asyncio, os, tempfile
    >>> async def main(root):
    ...     os.makedirs(f"{root}/2024/01/logs")
    ...     would = await Purger(root, dry_run=True).purge()
    ...     done = await Purger(root).purge()
    ...     print(would.dirs_removed, done.dirs_removed, done.stopped_by)
    >>> with tempfile.TemporaryDirectory() as root:
    ...     asyncio.run(main(root))
    3 3 completed

    A task that is cancelled while it purges stops the purge first. What was removed by then is gone.
    """

    root_path: str | os.PathLike[str]
    # So many removals at once at most; None leaves it to the purger.
    max_concurrency_deletion: int | None = None
    # Does less at once at 85 % of this, and stops at 95 %. 0: off
    memory_limit_mb: int = 800
    # Stops after so many directories. 0: unlimited
    max_empty_dirs_to_delete: int = 0
    # Removes nothing, and says what would be removed.
    dry_run: bool = False
    max_concurrency_scanning: int | None = None
    # Also removes files that were last changed so many seconds ago, or longer.
    max_age: float | None = None
    # Keeps directories that were changed within so many seconds before the start.
    min_age: float = 0
    # Names, or paths below the root, that are left alone: *, ?, [a-z], **
    exclude: str | Collection[str] = ()
    remove_root: bool = False
    # Removals per second at most. 0: unlimited
    rate: int = 0
    # Even if the root belongs to the system.
    force: bool = False
    # Called by the event loop, every `progress_interval` seconds.
    on_progress: Callable[[PurgeProgress], object] | None = None
    progress_interval: float = 1.0

    _allowed: ClassVar[Mapping[str, _checks.Check]] = {
        "root_path": _checks.path(),
        "max_concurrency_deletion": _checks.whole(1, or_none=True),
        "memory_limit_mb": _checks.whole(0, below=2**64),
        "max_empty_dirs_to_delete": _checks.whole(0, below=2**64),
        "dry_run": _checks.flag,
        "max_concurrency_scanning": _checks.whole(1, or_none=True),
        "max_age": _checks.seconds(may_be_zero=True, or_none=True),
        "min_age": _checks.seconds(may_be_zero=True),
        "exclude": _checks.patterns,
        "remove_root": _checks.flag,
        "rate": _checks.whole(0),
        "force": _checks.flag,
        "on_progress": _checks.function,
        "progress_interval": _checks.seconds(may_be_zero=True),
    }

    def __setattr__(self, field: str, value: Any) -> None:
        check = self._allowed.get(field)
        if check is not None:
            check(field, value)
        super().__setattr__(field, value)

    async def purge(self) -> PurgeSummary:
        """Purges, and says what it has done."""
        progress = None
        if self.on_progress is not None:
            progress = (asyncio.get_running_loop(), self.on_progress, self.progress_interval)
        return await _native.purge(
            self.root_path,
            dry_run=self.dry_run,
            max_concurrency_deletion=self.max_concurrency_deletion,
            max_concurrency_scanning=self.max_concurrency_scanning,
            memory_limit_mb=self.memory_limit_mb,
            max_empty_dirs_to_delete=self.max_empty_dirs_to_delete,
            max_age=self.max_age,
            min_age=self.min_age,
            exclude=[self.exclude] if isinstance(self.exclude, str) else list(self.exclude),
            remove_root=self.remove_root,
            rate=self.rate,
            force=self.force,
            progress=progress,
        )
