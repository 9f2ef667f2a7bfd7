"""Programs as generators, on a deterministic scheduler: what they want done they `yield`.

>>> from semafor.effects import do, run, CreateSemaphore, AcquireSemaphore, ReleaseSemaphore
>>> from semafor.effects import Spawn, Gather, Wait, Delay, Now
>>> @do
... def worker(sem):
...     yield AcquireSemaphore(sem)
...     try:
...         yield Delay(0.1)
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
>>> run(main())  # in virtual time: it takes none
[0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.30000000000000004]
"""

from __future__ import annotations

import functools
import logging
import warnings
from dataclasses import dataclass
from enum import IntEnum

from ._errors import DeadlockLink, SchedulerDeadlockError, TaskCancelledError
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


def do(function):
    @functools.wraps(function)
    def program(*args, **kwargs):
        return Program(function, args, kwargs)
    return program


def run(program, *, clock="virtual", deadlocks="holders", seed=None, replay=None):
    value, error, report = _engine.run(program, clock=clock, deadlocks=deadlocks, seed=seed, replay=replay)
    if error is not None:
        raise error
    return value
