from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import IntEnum
from types import GenericAlias
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, final

from ._errors import DeadlockLink as DeadlockLink
from ._errors import NotDeterministicError as NotDeterministicError
from ._errors import SchedulerDeadlockError as SchedulerDeadlockError
from ._errors import TaskCancelledError as TaskCancelledError

_T = TypeVar("_T")
_E = TypeVar("_E")
_P = ParamSpec("_P")

_Runnable: TypeAlias = Program[_T] | Generator[Any, Any, _T]
_Awaitable: TypeAlias = Task[Any] | Future[Any] | Wait
_Clock: TypeAlias = Literal["virtual", "real"]
_Deadlocks: TypeAlias = Literal["certain", "holders", "global", "off"]

def do(function: Callable[_P, Generator[Any, Any, _T]]) -> Callable[_P, Program[_T]]: ...
def run(
    program: _Runnable[_T],
    *,
    clock: _Clock = "virtual",
    deadlocks: _Deadlocks = "certain",
    max_steps: int | None = None,
    seed: int | None = None,
    replay: str | None = None,
) -> _T: ...
def outcome_of(
    program: _Runnable[_T],
    *,
    clock: _Clock = "virtual",
    deadlocks: _Deadlocks = "certain",
    max_steps: int | None = None,
    seed: int | None = None,
    replay: str | None = None,
) -> Outcome[_T]: ...
def explore(
    program: Program[Any],
    schedules: int = 10_000,
    *,
    search: Literal["random", "pct", "exhaustive"] = "random",
    seed: int = 0,
    changes: int = 3,
    preemptions: int | None = None,
    clock: _Clock = "virtual",
    deadlocks: _Deadlocks = "certain",
    max_steps: int | None = 100_000,
) -> Exploration: ...

class Priority(IntEnum):
    IDLE = 0
    NORMAL = 10
    HIGH = 20

@final
class Program(Generic[_T]):
    def __class_getitem__(cls, key: object) -> GenericAlias: ...
    def __new__(
        cls, function: Callable[..., Generator[Any, Any, _T]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Program[_T]: ...

@final
class Semaphore:
    @property
    def id(self) -> int: ...
    @property
    def sem_id(self) -> int: ...

@final
class Task(Generic[_T]):
    def __class_getitem__(cls, key: object) -> GenericAlias: ...
    @property
    def id(self) -> int: ...
    @property
    def task_id(self) -> int: ...

@final
class Future(Generic[_T]):
    def __class_getitem__(cls, key: object) -> GenericAlias: ...

@final
class Promise(Generic[_T]):
    def __class_getitem__(cls, key: object) -> GenericAlias: ...
    @property
    def id(self) -> int: ...
    @property
    def future(self) -> Future[_T]: ...

@final
class ExternalPromise(Generic[_T]):
    def __class_getitem__(cls, key: object) -> GenericAlias: ...
    @property
    def future(self) -> Future[_T]: ...
    def complete(self, value: _T) -> bool: ...
    def fail(self, error: BaseException | type[BaseException]) -> bool: ...

@final
class CreateSemaphore:
    def __new__(cls, permits: int = 1, *, name: str | None = None, signal: bool = False) -> CreateSemaphore: ...

@final
class AcquireSemaphore:
    def __new__(
        cls, semaphore: Semaphore, *, weight: int | None = None, timeout: float | None = None
    ) -> AcquireSemaphore: ...

@final
class ReleaseSemaphore:
    def __new__(cls, semaphore: Semaphore) -> ReleaseSemaphore: ...

@final
class TryAcquire:
    def __new__(cls, semaphore: Semaphore) -> TryAcquire: ...

@final
class WithSemaphore:
    def __new__(cls, semaphore: Semaphore, program: _Runnable[Any]) -> WithSemaphore: ...

@final
class Spawn:
    def __new__(
        cls,
        program: _Runnable[Any],
        priority: Priority | None = None,
        daemon: bool = False,
        name: str | None = None,
    ) -> Spawn: ...

@final
class Wait:
    def __new__(cls, awaited: Task[Any] | Future[Any]) -> Wait: ...

@final
class Gather:
    def __new__(cls, *awaited: _Awaitable) -> Gather: ...

@final
class Race:
    def __new__(cls, *awaited: _Awaitable) -> Race: ...

@final
class Cancel:
    def __new__(cls, task: Task[Any]) -> Cancel: ...

@final
class CreatePromise: ...

@final
class CreateExternalPromise: ...

@final
class CompletePromise:
    def __new__(cls, promise: Promise[_T], value: _T) -> CompletePromise: ...

@final
class FailPromise:
    def __new__(cls, promise: Promise[Any], error: BaseException | type[BaseException]) -> FailPromise: ...

@final
class Delay:
    def __new__(cls, seconds: float) -> Delay: ...

@final
class Now: ...

@final
class Log:
    def __new__(cls, text: object) -> Log: ...

@final
class Yield: ...

@final
class Shield:
    def __new__(cls, program: _Runnable[Any]) -> Shield: ...

@final
class WithHandler:
    def __new__(
        cls, effect: type[_E], handler: Callable[[_E], object], program: _Runnable[Any]
    ) -> WithHandler: ...

@dataclass(frozen=True)
class LogLine:
    at: float
    task: str
    text: str

@dataclass(frozen=True)
class Unobserved:
    task: str
    error: BaseException

@dataclass(frozen=True)
class Unreleased:
    task: str
    semaphore: int
    permits: int

@dataclass(frozen=True)
class Abandoned:
    task: str
    waiting_for: str | None
    was_started: bool

@dataclass(frozen=True)
class Outcome(Generic[_T]):
    value: _T | None
    error: Exception | None
    elapsed: float
    trace: str
    log: list[LogLine]
    unobserved: list[Unobserved]
    unreleased: list[Unreleased]
    abandoned: list[Abandoned]
    def result(self) -> _T: ...
    @property
    def complaints(self) -> list[str]: ...

@dataclass(frozen=True)
class Counterexample:
    message: str
    error: Exception | None
    trace: str
    found: str
    options: dict[str, Any] = ...

@dataclass(frozen=True)
class Exploration:
    schedules: int
    is_complete: bool
    failure: Counterexample | None
    def assert_holds(self) -> None: ...
