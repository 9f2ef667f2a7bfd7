"""Removes empty directories and, on request, old files. Linux only."""

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
    """Removes the empty directories below `root_path`, and the directories that become empty by that.

    - `root_path`: the directory to purge.
    - `max_concurrency_deletion`, `max_concurrency_scanning`: how many entries to remove, and how many directories to
      read, at once. None, the default: 128.
    - `memory_limit_mb`: the purge slows down at 85 % of this and stops at 95 %, and the same for the memory limit of
      the container, if it has one; 800 by default. 0: neither limit counts.
    - `max_empty_dirs_to_delete`: stop after this number of directories. 0, the default: no limit.
    - `dry_run`: remove nothing, and count what would be removed. False by default.
    - `max_age`: also remove files whose last change is at least this number of seconds ago. None, the default: no
      files.
    - `min_age`: keep directories that were changed in the last `min_age` seconds before the start, or later; 0 by
      default.
    - `exclude`: entries to keep, with everything in them: a name, a path below the root, or a list of these. The
      wildcards are `*`, `?`, `[a-z]` and `**`.
    - `remove_root`: also remove the root if it is empty at the end. False by default.
    - `rate`: the highest number of removals per second. 0, the default: no limit.
    - `force`: purge even if the root belongs to the system, such as `/etc`. False by default.
    - `on_progress`, `progress_interval`: the event loop calls `on_progress` with a PurgeProgress every
      `progress_interval` seconds and at the end. None and 1 by default.

    >>> import asyncio, os, tempfile
    >>> async def main(root):
    ...     os.makedirs(f"{root}/2024/01/logs")
    ...     would = await Purger(root, dry_run=True).purge()
    ...     done = await Purger(root).purge()
    ...     print(would.dirs_removed, done.dirs_removed, done.stopped_by)
    >>> with tempfile.TemporaryDirectory() as root:
    ...     asyncio.run(main(root))
    3 3 completed

    If the task is cancelled, the purge stops before CancelledError is raised. Entries removed until then stay removed.
    """

    root_path: str | os.PathLike[str]
    max_concurrency_deletion: int | None = None
    memory_limit_mb: int = 800
    max_empty_dirs_to_delete: int = 0
    dry_run: bool = False
    max_concurrency_scanning: int | None = None
    max_age: float | None = None
    min_age: float = 0
    exclude: str | Collection[str] = ()
    remove_root: bool = False
    rate: int = 0
    force: bool = False
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
        """Runs the purge and returns its summary.

        Raises OSError if the root can't be opened, and ValueError if it belongs to the system or a pattern is invalid.
        """
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
