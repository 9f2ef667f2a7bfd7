"""The exceptions of this package."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

if sys.version_info >= (3, 11):
    AcquireTimeoutError = TimeoutError
else:

    class AcquireTimeoutError(TimeoutError, asyncio.TimeoutError):
        """No slot came free within `max_acquire_time`.

        Python 3.10 has two timeout errors, and this is both.
        """


class NotHeldError(Exception):
    """The slot can't be renewed, evicted or released, because it is not held."""


class TaskCancelledError(Exception):
    """This task was cancelled: clean up and return; effects still work meanwhile. Or the task that it waits for was."""


class SchedulerDeadlockError(RuntimeError):
    """This task waits in a circle of waiting tasks, or for something that can't happen any more.

    `links` lists the waiting tasks, what each one waits for, and where. Each task waits for the next one. If `is_cycle`
    is true, the last one waits for the first.
    """

    def __init__(self, is_cycle: bool, links: list[tuple[str, str, str | None]]):
        self.is_cycle = is_cycle
        self.links = [DeadlockLink(*link) for link in links]
        if not is_cycle:
            headline = "a task waits for something that can't happen any more"
        elif len(links) == 1:
            headline = "a task waits for itself"
        else:
            headline = f"{len(links)} tasks wait in a circle"
        super().__init__("\n  ".join([f"deadlock: {headline}", *map(str, self.links)]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.is_cycle, [(link.task, link.waits_for, link.at) for link in self.links])


class NotDeterministicError(RuntimeError):
    """A program was run again with the same schedule and behaved differently.

    It depends on more than the schedule: the real clock, other threads, or state that an earlier run left behind.
    """


@dataclass(frozen=True)
class DeadlockLink:
    """A waiting task, what it waits for, and where in the program it waits, if that is known."""

    task: str
    waits_for: str
    at: str | None

    def __str__(self) -> str:
        return f"{self.task} waits for {self.waits_for}" + (f", at {self.at}" if self.at else "")
