"""The `with` statements of a semaphore."""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar

from ._native import AcquisitionResult, Call, Semaphore

NOT_ENTERED = "this context manager was exited without having been entered"
ALREADY_ENTERED = "this context manager is already entered: call {} for each `with`, do not share its result"
ALREADY_USED = "this context manager was already used: call {} for each `with`"


class SingleUse:
    """A context manager that holds a slot and can be used once."""

    __slots__ = ("_native", "_weight", "_result", "_is_entered", "_is_exited")

    # The method that returns it, for error messages.
    made_by: ClassVar[str]

    def __init__(self, native: Semaphore, weight: int):
        self._native = native
        self._weight = weight
        self._result: AcquisitionResult | None = None
        self._is_entered = False
        self._is_exited = False

    def _begin(self) -> None:
        if self._is_entered:
            raise RuntimeError((ALREADY_USED if self._is_exited else ALREADY_ENTERED).format(self.made_by))
        self._is_entered = True

    def _end(self) -> Call[None] | None:
        """Releases the slot. Returns the call to wait for, or None if the slot is already released."""
        result = self._result
        if result is None:
            raise RuntimeError(ALREADY_USED.format(self.made_by) if self._is_exited else NOT_ENTERED)
        self._result = None
        self._is_exited = True
        return self._native.release_result(result)


class Manager(SingleUse, AbstractAsyncContextManager[AcquisitionResult]):
    """`async with sem.cm() as result`."""

    __slots__ = ()
    made_by = "cm()"

    async def __aenter__(self) -> AcquisitionResult:
        self._begin()
        native = self._native
        try:
            self._result = result = native.acquire_now(self._weight, False) or await native.acquire(self._weight, False)
        except BaseException:
            self._is_entered = False
            raise
        return result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        released = self._end()
        if released is not None:
            await wait_until_released(released, kind)


class SyncManager(SingleUse, AbstractContextManager[AcquisitionResult]):
    """`with sem.sync() as result`, on a thread without an event loop."""

    __slots__ = ()
    made_by = "sync()"

    def __enter__(self) -> AcquisitionResult:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("sync() would block the event loop of this thread: use `async with sem.cm()`")
        self._begin()
        native = self._native
        try:
            result = native.acquire_now(self._weight, False)
            if result is None:
                result = native.acquire(self._weight, False).wait(is_main_thread())
        except BaseException:
            self._is_entered = False
            raise
        self._result = result
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        released = self._end()
        if released is not None:
            try:
                released.wait(is_main_thread())
            except Exception:
                # As in `wait_until_released`: do not replace the block's own exception.
                if kind is None:
                    raise


async def wait_until_released(released: Call[None], kind: type[BaseException] | None) -> None:
    """Waits until the slot is released, after a block that ended with an exception of this kind, or with none.

    If the block and the release both fail, the exception of the block is raised. The release is tried again in the
    background.
    """
    # A coroutine that is being closed must not await. Its slot is released in the background.
    if kind is GeneratorExit:
        return
    try:
        await released
    except Exception:
        if kind is None:
            raise


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Entered:
    """The results of `async with sem` blocks by task, the latest last.

    A task that is garbage collected drops its results, which releases their slots. Its blocks are exited after that,
    when its coroutine is closed.
    """

    __slots__ = ("_by_task", "_dropped")

    def __init__(self) -> None:
        self._by_task: dict[weakref.ref[asyncio.Task[Any]], list[AcquisitionResult]] = {}
        # The number of blocks that are not exited yet, although their slots are already released.
        self._dropped = 0

    def push(self, result: AcquisitionResult) -> None:
        task = current_task()
        own = self._by_task.get(weakref.ref(task))
        if own is None:
            self._by_task[weakref.ref(task, self._drop_results)] = [result]
        else:
            own.append(result)

    def pop(self, is_closed: bool) -> AcquisitionResult | None:
        """Returns the result of the block that is exited now; None if it was dropped with its task.

        `is_closed`: a coroutine is being closed, perhaps that of a collected task. A task without results here exits
        a block of another task, because generators and exit stacks can be closed anywhere. It gets the latest result.
        """
        task = asyncio.current_task() if asyncio._get_running_loop() else None
        key = None if task is None else weakref.ref(task)
        is_own = key in self._by_task
        if self._dropped > 0 and (is_closed or not is_own):
            self._dropped -= 1
            return None
        if not is_own:
            key = next(reversed(self._by_task), None)
        if key is None:
            return None
        own = self._by_task[key]
        result = own.pop()
        if not own:
            del self._by_task[key]
        return result

    def _drop_results(self, task: weakref.ref[asyncio.Task[Any]]) -> None:
        self._dropped += len(self._by_task.pop(task, ()))


def current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("`async with sem` needs a running task; without one, use `with sem.sync()`")
    return task
