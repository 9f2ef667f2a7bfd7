"""The base class of all semaphores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

from . import _checks, _native
from ._native import AcquisitionResult
from .managers import Entered, Manager, SyncManager, wait_until_released
from .stats import Holder, SemaphoreStats, Waiter


@dataclass(kw_only=True)
class Semaphore(ABC):
    """Limits how many tasks, processes or machines do a thing at once.

    A named set of slots with one line of waiters, first come, first served. All handles to the same name share the
    slots and the line; they may have different `ttl`, `max_acquire_time` and `label`. Any number of event loops and
    threads may use a handle. An argument that is changed by assignment applies from the next use on.

    A copy or an unpickled object is another handle to the same name. It holds nothing.
    """

    name: str
    value: int
    max_acquire_time: float | None = None
    ttl: float | None = None
    label: str | None = None
    cancel_task_after_ttl: bool = False

    _opened: _native.Semaphore | None = field(default=None, init=False, repr=False, compare=False)
    _entered: Entered = field(default_factory=Entered, init=False, repr=False, compare=False)

    _allowed: ClassVar[Mapping[str, _checks.Check]] = {
        "name": _checks.text(),
        "value": _checks.whole(1),
        "max_acquire_time": _checks.seconds(may_be_zero=True, may_be_infinite=True, or_none=True),
        "ttl": _checks.seconds(may_be_infinite=True, or_none=True),
        "label": _checks.text(may_be_empty=True, or_none=True),
        "cancel_task_after_ttl": _checks.flag,
    }

    def __setattr__(self, field: str, value: Any) -> None:
        check = self._allowed.get(field)
        if check is not None:
            check(field, value)
        super().__setattr__(field, value)
        if not field.startswith("_"):
            # The open handle has the old value: the next use opens it again.
            super().__setattr__("_opened", None)

    def __getstate__(self) -> dict[str, Any]:
        """The slots of the `async with` blocks stay with this handle: a copy starts with none."""
        return {**self.__dict__, "_opened": None, "_entered": Entered()}

    def _open(self) -> _native.Semaphore:
        """Opens the semaphore with the current arguments, and keeps it in `_opened`."""
        self._opened = _native.Semaphore(
            name=self.name,
            slots=self.value,
            ttl=self.ttl,
            max_acquire_time=self.max_acquire_time,
            cancel_task_after_ttl=self.cancel_task_after_ttl,
            label=self.label,
            **self._home(),
        )
        return self._opened

    @abstractmethod
    def _home(self) -> dict[str, Any]:
        """Returns the arguments of the engine that say where the semaphore is."""

    async def acquire(self, *, weight: int = 1) -> AcquisitionResult:
        """Waits in line for a slot, and holds it until `release(result.acquisition_id)`. `weight=2` acquires two slots.

        Raises TimeoutError if no slot comes free within `max_acquire_time`, and ConnectionError if the home does not
        answer.
        """
        native = self._opened or self._open()
        return native.acquire_now(weight, True) or await native.acquire(weight, True)

    async def release(self, acquisition_id: str | None = None) -> None:
        """Releases a slot by its id. Without an id, the latest slot that the current task acquired with `acquire()`.

        Releasing a slot that is no longer held is not an error. Without an id, raises NotHeldError if the task has
        acquired no slot that it could release.
        """
        if acquisition_id.__class__ is not str:
            _checks.acquisition_id(acquisition_id, or_none=True)
        released = (self._opened or self._open()).release(acquisition_id)
        if released is not None:
            await released

    def cm(self, *, weight: int = 1) -> AbstractAsyncContextManager[AcquisitionResult]:
        """`async with sem.cm() as result`: holds a slot in the block. `cm(weight=2)` holds two slots."""
        return Manager(self._opened or self._open(), weight)

    def sync(self, *, weight: int = 1) -> AbstractContextManager[AcquisitionResult]:
        """`with sem.sync() as result`: holds a slot in the block, on a thread without an event loop."""
        return SyncManager(self._opened or self._open(), weight)

    async def __aenter__(self) -> AcquisitionResult:
        """`async with sem as result`: holds a slot in the block. Blocks may be nested, and many tasks may enter."""
        native = self._opened or self._open()
        result = native.acquire_now(1, False) or await native.acquire(1, False)
        self._entered.push(result)
        return result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        result = self._entered.pop(kind is GeneratorExit)
        if result is None:
            return
        released = (self._opened or self._open()).release_result(result)
        if released is not None:
            await wait_until_released(released, kind)

    async def locked(self) -> bool:
        """Returns True if an acquire of one slot would have to wait now."""
        return await (self._opened or self._open()).locked()

    async def renew(self, acquisition_id: str, ttl: float | None) -> None:
        """Sets the lease of the slot to `ttl` seconds from now. None: no limit.

        Raises NotHeldError if the id no longer holds a slot.
        """
        _checks.acquisition_id(acquisition_id)
        self._allowed["ttl"]("ttl", ttl)
        await (self._opened or self._open()).renew(acquisition_id, ttl)

    async def resize(self, value: int) -> None:
        """Changes the number of slots of the name, and the `value` of this handle.

        With more slots, waiters get them at once. With fewer slots, holders keep theirs, and waiters wait until enough
        slots are released.
        """
        self._allowed["value"]("value", value)
        await (self._opened or self._open()).resize(value)
        self.value = value

    async def evict(self, acquisition_id: str) -> None:
        """Takes the slot away from its holder, in this or another process. The holder's `result.lost` is set.

        Raises NotHeldError if the id no longer holds a slot.
        """
        _checks.acquisition_id(acquisition_id)
        await (self._opened or self._open()).evict(acquisition_id)

    async def holders(self) -> list[Holder]:
        """Returns the holders, in the order of their slot numbers."""
        return [Holder(*holder) for holder in await (self._opened or self._open()).holders()]

    async def waiters(self) -> list[Waiter]:
        """Returns the waiters, in the order of the line."""
        return [Waiter(*waiter) for waiter in await (self._opened or self._open()).waiters()]

    @classmethod
    @abstractmethod
    async def get_acquired_stats(
        cls, *, names: list[str] | None = None, limit: int = 100
    ) -> dict[str, SemaphoreStats]:
        """Returns the slots held and the slots in total, by name. The fullest semaphore is first.

        Without `names`, returns at most `limit` semaphores that have a holder. With `names`, returns these semaphores,
        with or without holders; names that were never used, or not for a while, are left out.
        """

    @classmethod
    async def get_acquisition_statistics(cls, **query: Any) -> dict[str, SemaphoreStats]:
        """The same as `get_acquired_stats`."""
        return await cls.get_acquired_stats(**query)
