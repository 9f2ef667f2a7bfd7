"""Programs as generators, on a deterministic scheduler: what they want done they `yield`.

>>> from semafor.effects import do, run, CreateSemaphore, AcquireSemaphore, ReleaseSemaphore
>>> from semafor.effects import Spawn, Gather, Wait, Delay, Now
>>> @do
... def worker(sem):
...     yield AcquireSemaphore(sem)
...     try:
...         yield Delay(0.5)
...         return (yield Now())
...     finally:
...         yield ReleaseSemaphore(sem)
>>> @do
... def main():
...     sem = yield CreateSemaphore(3)  # max 3 concurrent workers
...     tasks = []
...     for _ in range(7):
...         tasks.append((yield Spawn(worker(sem))))
...     return (yield Gather(*[Wait(t) for t in tasks]))
>>> run(main())  # virtual time: no sooner asked than done
[0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.5]

Errors are raised at the `yield`, so they can be caught there. That goes for deadlocks, too: a `SchedulerDeadlockError` says who
waits for whom, and where. In other orders a program may go wrong that works in this one; `explore` finds out:

>>> from semafor.effects import WithSemaphore, explore
>>> @do
... def transfer(one, other):
...     yield WithSemaphore(one, inner(other))
>>> @do
... def inner(other):
...     yield WithSemaphore(other, nothing())
>>> @do
... def nothing():
...     yield Delay(0)
>>> @do
... def bank():
...     a = yield CreateSemaphore(1, name="a")
...     b = yield CreateSemaphore(1, name="b")
...     there = yield Spawn(transfer(a, b), name="there")
...     yield Wait(there)
...     yield transfer(b, a)
>>> explore(bank(), schedules=100).failure is None  # one after the other
True
>>> @do
... def busy_bank():
...     a = yield CreateSemaphore(1, name="a")
...     b = yield CreateSemaphore(1, name="b")
...     there = yield Spawn(transfer(a, b), name="there")
...     back = yield Spawn(transfer(b, a), name="back")
...     yield Gather(there, back)
>>> failure = explore(busy_bank(), schedules=1000).failure
>>> print(failure.error.links[0])  # doctest: +ELLIPSIS
there (task 2) waits for semaphore b (id 1), held by back (task 3), at ...
>>> run(busy_bank(), replay=failure.trace)  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
semafor._errors.SchedulerDeadlockError: deadlock: 2 tasks wait in a circle
...
"""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from . import _checks
from ._errors import DeadlockLink, NotDeterministicError, SchedulerDeadlockError, TaskCancelledError
from ._native import effects as _engine

AcquireSemaphore = _engine.AcquireSemaphore
Cancel = _engine.Cancel
CompletePromise = _engine.CompletePromise
CreateExternalPromise = _engine.CreateExternalPromise
CreatePromise = _engine.CreatePromise
CreateSemaphore = _engine.CreateSemaphore
Delay = _engine.Delay
ExternalPromise = _engine.ExternalPromise
FailPromise = _engine.FailPromise
Future = _engine.Future
Gather = _engine.Gather
Log = _engine.Log
Now = _engine.Now
Program = _engine.Program
Promise = _engine.Promise
Race = _engine.Race
ReleaseSemaphore = _engine.ReleaseSemaphore
Semaphore = _engine.Semaphore
Shield = _engine.Shield
Spawn = _engine.Spawn
Task = _engine.Task
TryAcquire = _engine.TryAcquire
Wait = _engine.Wait
WithHandler = _engine.WithHandler
WithSemaphore = _engine.WithSemaphore
Yield = _engine.Yield

_T = TypeVar("_T")

__all__ = [
    "Abandoned",
    "AcquireSemaphore",
    "Cancel",
    "CompletePromise",
    "Counterexample",
    "CreateExternalPromise",
    "CreatePromise",
    "CreateSemaphore",
    "DeadlockLink",
    "Delay",
    "Exploration",
    "ExternalPromise",
    "FailPromise",
    "Future",
    "Gather",
    "Log",
    "LogLine",
    "NotDeterministicError",
    "Now",
    "Outcome",
    "Priority",
    "Program",
    "Promise",
    "Race",
    "ReleaseSemaphore",
    "SchedulerDeadlockError",
    "Semaphore",
    "Shield",
    "Spawn",
    "Task",
    "TaskCancelledError",
    "TryAcquire",
    "Unobserved",
    "Unreleased",
    "Wait",
    "WithHandler",
    "WithSemaphore",
    "Yield",
    "do",
    "explore",
    "outcome_of",
    "run",
]


class Priority(IntEnum):
    """Who runs first. Among equals it is who came first; a semaphore's line is in order of arrival, whatever the priorities."""

    IDLE = 0
    NORMAL = 10
    HIGH = 20


def do(function):
    """Makes programs of a generator function: called with its arguments, it gives a `Program` that can be run many times."""
    if not callable(function):
        raise TypeError(f"@do needs a generator function, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"@do needs a generator function, and {function!r} is async: write `def`, and `yield` effects")

    @functools.wraps(function)
    def program(*args, **kwargs):
        return Program(function, args, kwargs)

    return program


def run(program, *, clock="virtual", deadlocks="certain", max_steps=None, seed=None, replay=None):
    """Runs a program to its end, and gives what it returns.

    `clock` is "virtual", where time passes when no task can run, and takes none; or "real". The order is first come, first served,
    or that of a random `seed`, or that of a trace, to `replay` what was explored. With `max_steps` the run ends with a
    `RuntimeError` if it has not ended after so many steps; a step lets one task run until it waits.

    `deadlocks` says which are looked for. "certain": those that no task can end any more. A semaphore has no owner, so while any
    task can run, now or after a delay, a timeout or an external promise, it may release what others wait for; but a permit of
    `WithSemaphore` is released by its own task, a promise without a handle by none, and a circle through these is found while other
    tasks live on. "holders": a stricter search, in which the task that acquired is taken to be the one that releases; it
    calls programs deadlocked in which another task would have released later. "global": only when no task can run any
    more. "off": none; the run ends then.

    What nobody awaited is said by a `RuntimeWarning`: tasks that failed, that ended with permits, or that had not ended.
    """
    outcome = outcome_of(program, clock=clock, deadlocks=deadlocks, max_steps=max_steps, seed=seed, replay=replay)
    for complaint in outcome.complaints:
        warnings.warn(complaint, RuntimeWarning, stacklevel=2)
    try:
        return outcome.result()
    finally:
        # The exception knows this frame.
        del outcome


def outcome_of(program, *, clock="virtual", deadlocks="certain", max_steps=None, seed=None, replay=None):
    """Runs a program as `run` does, and tells all there is to tell. Raises nothing but what ends the whole run."""
    _checks.whole(1, below=2**64, or_none=True)("max_steps", max_steps)
    _checks.whole(0, below=2**64, or_none=True)("seed", seed)
    value, error, report = _engine.run(program, clock=clock, deadlocks=deadlocks, max_steps=max_steps, seed=seed, replay=replay)
    if error is not None and not isinstance(error, Exception):
        raise error
    elapsed, trace, log, unobserved, unreleased, abandoned = report
    return Outcome(
        value=value,
        error=error,
        elapsed=elapsed,
        trace=trace,
        log=[LogLine(*line) for line in log],
        unobserved=[Unobserved(*each) for each in unobserved],
        unreleased=[Unreleased(*each) for each in unreleased],
        abandoned=[Abandoned(*each) for each in abandoned],
    )


def explore(
    program,
    schedules=10_000,
    *,
    search="random",
    seed=0,
    changes=3,
    preemptions=None,
    clock="virtual",
    deadlocks="certain",
    max_steps=100_000,
):
    """Runs a program in so many orders at most, for the first in which it goes wrong; that one is made as simple as possible.

    Every effect is a place where another task may go on. A run goes wrong by an exception of the program or of a task
    that no task waited for, and by a permit that was not released. `search` is "random" by a `seed`; "pct", by random
    ranks with so many `changes`; or "exhaustive", for small programs: with so many `preemptions` at most, if that is
    said. `deadlocks` are those of `run`.

    A run that has not ended after `max_steps` steps is wrong, too; every effect is a step here. `max_steps=None` sets
    no limit: a program that polls without end is explored for ever then. To see it again, give `run` the trace and the
    same `max_steps`. A program that an exhaustive search finds to be not deterministic fails with a
    `NotDeterministicError`. A program that polls by `Yield` has orders without end: an exhaustive search of it is never
    complete, and comes to `max_steps` if it may try enough of them.
    """
    _checks.whole(1, below=2**64)("schedules", schedules)
    _checks.whole(1, below=2**64, or_none=True)("max_steps", max_steps)
    _checks.whole(0, below=2**64)("seed", seed)
    _checks.whole(0, below=2**64)("changes", changes)
    _checks.whole(0, below=2**64, or_none=True)("preemptions", preemptions)
    tried, is_complete, failure = _engine.explore(
        program,
        schedules=schedules,
        clock=clock,
        deadlocks=deadlocks,
        max_steps=max_steps,
        search=search,
        seed=seed,
        changes=changes,
        preemptions=preemptions,
    )
    return Exploration(tried, is_complete, None if failure is None else Counterexample(*failure))


@dataclass(frozen=True)
class LogLine:
    """A line of the log: when, by the run's clock, who, and what."""

    at: float
    task: str
    text: str

    def __str__(self):
        return f"{self.at:.3f} {self.task}: {self.text}"


@dataclass(frozen=True)
class Unobserved:
    """A task that failed, and nobody waited for it."""

    task: str
    error: BaseException

    def __str__(self):
        return f"{self.task} failed, and nobody waited for it: {self.error!r}"


@dataclass(frozen=True)
class Unreleased:
    """Permits whose task ended without releasing them, and that no other task released later. Signals are not counted."""

    task: str
    semaphore: int
    permits: int

    def __str__(self):
        return f"{self.task} ended with {self.permits} unreleased of semaphore {self.semaphore}"


@dataclass(frozen=True)
class Abandoned:
    """A task that had not ended when the root program did. Daemons are not counted."""

    task: str
    waiting_for: str | None
    was_started: bool

    def __str__(self):
        if self.waiting_for is not None:
            return f"{self.task} was abandoned, waiting for {self.waiting_for}"
        return f"{self.task} was abandoned" + (", ready to go on" if self.was_started else " before it started")


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """How a run ended, and what was noticed on the way."""

    # None if it failed.
    value: _T | None
    error: Exception | None
    # How long it took, by its own clock.
    elapsed: float
    # The decisions of the schedule, for `run(replay=…)`.
    trace: str
    log: list[LogLine]
    unobserved: list[Unobserved]
    unreleased: list[Unreleased]
    abandoned: list[Abandoned]

    def result(self):
        """What the program returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.value

    @property
    def complaints(self):
        """What should not be. That a program that failed leaves things undone goes without saying."""
        undone = [*self.unreleased, *self.abandoned] if self.error is None else []
        return [str(each) for each in [*self.unobserved, *undone]]


@dataclass(frozen=True)
class Counterexample:
    """An order in which the program goes wrong, and how."""

    message: str
    # The exception of the program, if that is how.
    error: Exception | None
    # The simplest that was found to go wrong in this way, and the one that was found first.
    trace: str
    found: str

    def __str__(self):
        message = self.message if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return f"{message}\nreplay it with run(program, replay={self.trace!r})"


@dataclass(frozen=True)
class Exploration:
    """What exploring a program came to."""

    # How many orders were tried, up to the one that failed.
    schedules: int
    # True if there are no others.
    is_complete: bool
    failure: Counterexample | None

    def __str__(self):
        if self.failure is not None:
            return f"schedule {self.schedules} of the program fails: {self.failure}"
        tried = "1 schedule" if self.schedules == 1 else f"{self.schedules} schedules"
        return f"no failure in {tried}, and " + ("there are no others" if self.is_complete else "there may be others")

    def assert_holds(self):
        """For tests: nothing must have gone wrong."""
        if self.failure is not None:
            raise AssertionError(str(self)) from self.failure.error
