"""Programs as generators on a deterministic scheduler. Programs `yield` effects.

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
>>> run(main())  # virtual time: it takes no real time
[0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.5]

Errors are raised at the `yield`, so they can be caught there. This includes deadlocks: a `SchedulerDeadlockError` names
the tasks that wait for each other, and the lines where they wait. A program that works in one order may fail in
another. `explore` searches for an order in which it fails:

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
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, TypeVar

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
    """The order in which ready tasks run. Of equal ones, the task that was ready first runs first.

    A semaphore's line is in order of arrival, regardless of priority.
    """

    IDLE = 0
    NORMAL = 10
    HIGH = 20


def do(function):
    """Decorates a generator function: a call returns a `Program` that can be run many times."""
    if not callable(function):
        raise TypeError(f"@do needs a generator function, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"@do needs a generator function, and {function!r} is async: write `def`, and `yield` effects")

    @functools.wraps(function)
    def program(*args, **kwargs):
        return Program(function, args, kwargs)

    return program


def run(program, *, clock="virtual", deadlocks="certain", max_steps=None, seed=None, replay=None):
    """Runs a program to its end, and returns what it returns.

    - `clock`: "virtual" or "real". Virtual time moves only when no task can run, and takes no real time.
    - `max_steps`: the run ends with a `RuntimeError` if it has not ended after this number of steps. In a step, one
      task runs until it waits; with `seed` or `replay`, until its next effect. None, the default: no limit.
    - `seed`: run in a random order, which is the same for the same seed. By default, tasks run first come, first
      served.
    - `replay`: run in the order of this trace.
    - `deadlocks`: which deadlocks are reported:
      - "certain", the default: a wait that no other task can resolve. Any task may release a semaphore, so a wait for
        one is not reported while another task can run, now or after a delay, a timeout or an external promise. Two
        kinds are reported even while other tasks run: tasks that wait for each other's `WithSemaphore` permits, and a
        wait for a promise that can't be completed any more, because no reference to it is left.
      - "holders": while other tasks run, also a circle of holders that wait for each other, and a wait for a permit
        of a task that has ended. This assumes that the task that acquired a permit releases it. If another task would have
        released it later, the report is wrong.
      - "global": only when no task of the run can run any more.
      - "off": none is raised in a task. If no task can run any more, the run ends with a `SchedulerDeadlockError`.

    A `RuntimeWarning` reports a failed task that no task waited for, a task that ended without releasing a permit, and
    a task that had not ended. If the program itself failed, it reports only failed tasks.
    """
    outcome = outcome_of(program, clock=clock, deadlocks=deadlocks, max_steps=max_steps, seed=seed, replay=replay)
    for complaint in outcome.complaints:
        warnings.warn(complaint, RuntimeWarning, stacklevel=2)
    try:
        return outcome.result()
    finally:
        # The exception refers to this frame, so this breaks a reference cycle.
        del outcome


def outcome_of(program, *, clock="virtual", deadlocks="certain", max_steps=None, seed=None, replay=None):
    """Runs a program like `run`, and returns an `Outcome`, also if the program fails. Warns about nothing.

    An exception of the program that is no `Exception`, such as `KeyboardInterrupt`, ends the run and is raised.
    """
    _checks.whole(1, below=2**64, or_none=True)("max_steps", max_steps)
    _checks.whole(0, below=2**64, or_none=True)("seed", seed)
    value, error, report = _engine.run(
        program, clock=clock, deadlocks=deadlocks, max_steps=max_steps, seed=seed, replay=replay
    )
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
    """Runs a program in at most `schedules` orders, until one fails. Then searches for a simpler one that fails like it.

    At every effect another task may run. A run fails if the program raises an exception, if a task fails and no task
    waited for it, if a permit is not released, or if the run does not end within `max_steps` steps.

    - `search`: "random", by a `seed`. "pct" gives tasks random priorities and changes them `changes` times. "exhaustive"
      tries all orders, for small programs; with `preemptions`, all orders with at most this number of switches away
      from a task that could go on.
    - `clock`, `deadlocks`: as in `run`.
    - `max_steps`: as in `run`, but here every effect is a step. With None there is no limit, and a program that polls
      without end is explored forever.

    To replay a failure: `run(program, replay=failure.trace, **failure.options)`. A failure without an exception is then
    a `RuntimeWarning`.

    If an exhaustive search finds that the program is not deterministic, the failure is a `NotDeterministicError`. A
    program that polls with `Yield` has endlessly many orders: its exhaustive search is never complete, and ends with a
    run that fails because of `max_steps`.
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
    if failure is None:
        return Exploration(tried, is_complete, None)
    message, error, trace, found, is_at_limit = failure
    options = {}
    if clock != "virtual":
        options["clock"] = clock
    if deadlocks != "certain":
        options["deadlocks"] = deadlocks
    if is_at_limit:
        options["max_steps"] = max_steps
    return Exploration(tried, is_complete, Counterexample(message, error, trace, found, options))


@dataclass(frozen=True)
class LogLine:
    """A line of the log: the time by the run's clock, the task and the text."""

    at: float
    task: str
    text: str

    def __str__(self):
        return f"{self.at:.3f} {self.task}: {self.text}"


@dataclass(frozen=True)
class Unobserved:
    """A task that failed and that no task waited for, and its exception."""

    task: str
    error: BaseException

    def __str__(self):
        return f"{self.task} failed, and no task waited for it: {self.error!r}"


@dataclass(frozen=True)
class Unreleased:
    """Permits that their task had not released at its end, and no other task released later. Signals are left out.

    `semaphore` is the id of the semaphore, `permits` the number of permits.
    """

    task: str
    semaphore: int
    permits: int

    def __str__(self):
        return f"{self.task} ended with {self.permits} unreleased of semaphore {self.semaphore}"


@dataclass(frozen=True)
class Abandoned:
    """A task that had not ended when the root program did. Daemons are left out.

    `waiting_for` says what the task waited for; None if it could run. `was_started` is False if it never ran.
    """

    task: str
    waiting_for: str | None
    was_started: bool

    def __str__(self):
        if self.waiting_for is not None:
            return f"{self.task} was abandoned, waiting for {self.waiting_for}"
        return f"{self.task} was abandoned" + (", ready to run" if self.was_started else " before it started")


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """The result of a run, and its report.

    - `value`: the return value of the program; None if it failed.
    - `error`: the exception of the program; None if it succeeded.
    - `elapsed`: how long the run took, in seconds, by its own clock.
    - `trace`: the decisions of the schedule, for `run(replay=…)`.
    - `log`: the lines of `Log`, as `LogLine`s.
    - `unobserved`: the tasks that failed and that no task waited for.
    - `unreleased`: the permits that were not released.
    - `abandoned`: the tasks that had not ended.
    """

    value: _T | None
    error: Exception | None
    elapsed: float
    trace: str
    log: list[LogLine]
    unobserved: list[Unobserved]
    unreleased: list[Unreleased]
    abandoned: list[Abandoned]

    def result(self):
        """Returns what the program returned, or raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.value

    @property
    def complaints(self):
        """The texts that `run` gives as warnings. If the program failed, they are about `unobserved` only."""
        undone = [*self.unreleased, *self.abandoned] if self.error is None else []
        return [str(each) for each in [*self.unobserved, *undone]]


@dataclass(frozen=True)
class Counterexample:
    """An order in which the program fails, and how.

    - `message`: what went wrong.
    - `error`: the exception of the program; None if it raised none.
    - `trace`: the simplest order that was found to fail in this way.
    - `found`: the order that failed first.
    - `options`: the arguments of `explore` that a replay needs, too: `run(program, replay=trace, **options)`.
    """

    message: str
    error: Exception | None
    trace: str
    found: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self):
        message = self.message if self.error is None else f"{type(self.error).__name__}: {self.error}"
        options = "".join(f", {option}={value!r}" for option, value in self.options.items())
        return f"{message}\nreplay it with run(program, replay={self.trace!r}{options})"


@dataclass(frozen=True)
class Exploration:
    """The result of exploring a program.

    - `schedules`: how many orders were tried, including the one that failed.
    - `is_complete`: True only after an exhaustive search that has tried all orders, within its `preemptions`.
    - `failure`: the order that failed, a `Counterexample`; None if none failed.
    """

    schedules: int
    is_complete: bool
    failure: Counterexample | None

    def __str__(self):
        if self.failure is not None:
            return f"schedule {self.schedules} of the program fails: {self.failure}"
        tried = "1 schedule" if self.schedules == 1 else f"{self.schedules} schedules"
        return f"no failure in {tried}, and " + ("there are no others" if self.is_complete else "there may be others")

    def assert_holds(self):
        """For tests: raises an `AssertionError` if an order failed."""
        if self.failure is not None:
            raise AssertionError(str(self)) from self.failure.error
