"""The engine, written in Rust: `crates/semafor-python`."""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar, final

T = TypeVar("T")

VERSION: str

_Holder = tuple[
    str, int | None, int | None, int, str | None, str | None, str | None, int | None, float, float | None
]
_Waiter = tuple[int, int, str | None, str | None, str | None, int | None, float]
_Usage = tuple[str, int, int]

@final
class Call(Generic[T]):
    """A call to the engine. Await it once."""

    def __await__(self) -> Generator[Any, None, T]: ...
    @property
    def surely_ends(self) -> bool: ...
    def poll(self, event_loop: AbstractEventLoop, woken: Future[None]) -> bool: ...
    def result(self) -> T: ...
    def cancel(self) -> None: ...
    def abandon(self) -> None: ...
    def wait(self, interruptible: bool) -> T: ...

@final
class Lost:
    """Set when the slot is lost: its lease expired, it was evicted, or its home was unreachable for too long. Also set
    when another process releases the slot, and when the slot of a `with` block is released by its id."""

    def is_set(self) -> bool:
        """Returns True once the slot is lost. The end of the block is not a loss, nor is the release of a slot of
        `acquire()` in its own process."""
    def wait(self) -> Coroutine[Any, Any, bool]:
        """`await result.lost.wait()`: waits until the slot is lost and returns True. Never returns if the slot is
        released without a loss."""
    @property
    def reason(self) -> str | None:
        """Why the slot was lost, as a sentence; None if it was not lost."""

@final
class AcquisitionResult:
    """A slot that was granted, and its id."""

    def __new__(cls, acquisition_id: str, slot_number: int) -> AcquisitionResult: ...
    @property
    def acquisition_id(self) -> str:
        """Identifies the slot that was granted, for `release`, `renew` and `evict`."""
    @property
    def slot_number(self) -> int:
        """The slot number, from 0. No two holders have the same, so it can stand for a port, a device or a worker.

        A holder has one slot number, whatever its weight is.
        """
    @property
    def fencing_token(self) -> int:
        """Grows with every grant of the name.

        With one slot, a resource that refuses tokens lower than the highest it has seen is safe from holders that lost
        their slot. With several slots, the resource must compare only the tokens of the same `slot_number`.
        """
    @property
    def waited(self) -> float:
        """How long the acquire waited in line, in seconds."""
    @property
    def lost(self) -> Lost:
        """Set when the slot is lost: `result.lost.is_set()`, or `await result.lost.wait()`."""
    def renew(self, ttl: float | None) -> Coroutine[Any, Any, None]:
        """`await result.renew(ttl)`: sets the lease of the slot to `ttl` seconds from now. None: no limit.

        Raises NotHeldError if the slot is no longer held.
        """

@final
class Semaphore:
    def __new__(
        cls,
        *,
        name: str,
        slots: int | None,
        ttl: float | None,
        max_acquire_time: float | None,
        cancel_task_after_ttl: bool,
        label: str | None,
        url: str | None = None,
        program: str | None = None,
        heartbeat_max_interval: float | None = None,
    ) -> Semaphore: ...
    def acquire_now(self, weight: int, by_id: bool) -> AcquisitionResult | None: ...
    def acquire(self, weight: int, by_id: bool) -> Call[AcquisitionResult]: ...
    def release(self, acquisition_id: str | None) -> Call[None] | None: ...
    def release_result(self, result: AcquisitionResult) -> Call[None] | None: ...
    def renew(self, acquisition_id: str, ttl: float | None) -> Call[None]: ...
    def resize(self, slots: int) -> Call[None]: ...
    def evict(self, acquisition_id: str) -> Call[None]: ...
    def locked(self) -> Call[bool]: ...
    def holders(self) -> Call[list[_Holder]]: ...
    def waiters(self) -> Call[list[_Waiter]]: ...

@final
class PurgeProgress:
    """The progress of a purge.

    - `dirs_scanned`, `files_scanned`: the directories that were read, and their other entries.
    - `dirs_removed`, `files_removed`: the directories and files that were removed.
    - `bytes_freed`: the sum of the sizes of the removed files.
    - `dirs_changed`, `files_changed`: the directories and files that stayed because they, or a directory above them,
      were changed or moved before their removal.
    - `errors`: the entries that could not be read or removed.
    - `fraction`: the share of the tree that is done, from 0 to 1; an estimate.
    - `memory_bytes`: the memory of this process.
    - `elapsed`: the seconds since the start.
    """

    dirs_scanned: int
    dirs_removed: int
    files_scanned: int
    files_removed: int
    bytes_freed: int
    dirs_changed: int
    files_changed: int
    errors: int
    fraction: float
    memory_bytes: int
    elapsed: float

@final
class PurgeSummary:
    """The result of a purge.

    - `dirs_scanned`, `files_scanned`: the directories that were read, and their other entries.
    - `dirs_removed`, `files_removed`: the directories and files that were removed; with `dry_run`, that would
      be removed.
    - `bytes_freed`: the sum of the sizes of the removed files.
    - `dirs_changed`, `files_changed`: the directories and files that stayed because they, or a directory above them,
      were changed or moved before their removal.
    - `errors`: the entries that could not be read or removed.
    - `errors_by_kind`: the number of errors of each kind.
    - `dry_run`: True if nothing was removed.
    - `stopped_by`: why the purge ended: "completed", "limit", "breaker" (memory) or "signal" (cancelled).
    - `peak_memory_bytes`: the highest measured memory of this process.
    - `backpressure_events`: how often the purge used fewer threads because memory was short.
    - `elapsed`: how long the purge took, in seconds.
    """

    dry_run: bool
    dirs_scanned: int
    dirs_removed: int
    files_scanned: int
    files_removed: int
    bytes_freed: int
    dirs_changed: int
    files_changed: int
    errors: int
    errors_by_kind: dict[str, int]
    peak_memory_bytes: int
    backpressure_events: int
    stopped_by: str
    elapsed: float

def purge(
    root: str | os.PathLike[str],
    *,
    dry_run: bool,
    max_concurrency_deletion: int | None,
    max_concurrency_scanning: int | None,
    memory_limit_mb: int,
    max_empty_dirs_to_delete: int,
    max_age: float | None,
    min_age: float,
    exclude: Sequence[str],
    remove_root: bool,
    rate: int,
    force: bool,
    progress: tuple[AbstractEventLoop, Callable[[PurgeProgress], object], float] | None,
) -> Call[PurgeSummary]: ...
def stats(url: str | None, program: str | None, names: list[str] | None, limit: int) -> Call[list[_Usage]]: ...
def check_redis_url(url: str) -> None: ...
def after_fork() -> None: ...
def at_exit() -> None: ...
