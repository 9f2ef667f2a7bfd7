"""Unused objects are freed, and memory does not grow, within a run and from run to run."""

from __future__ import annotations

import gc
import resource
import threading
import weakref

import pytest
from semafor.effects import (
    AcquireSemaphore,
    Cancel,
    CompletePromise,
    CreateExternalPromise,
    CreatePromise,
    CreateSemaphore,
    Delay,
    Gather,
    ReleaseSemaphore,
    Spawn,
    TaskCancelledError,
    Wait,
    WithSemaphore,
    Yield,
    do,
    outcome_of,
    run,
)

MANY = 100_000


def memory() -> int:
    """The resident memory in bytes."""
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


@do
def nothing():
    yield Yield()


@do
def fail():
    yield Yield()
    raise KeyError("x")


@do
def sleep():
    try:
        yield Delay(3600)
    finally:
        yield Yield()


@do
def semaphores(count):
    for _ in range(count):
        sem = yield CreateSemaphore(3)
        yield AcquireSemaphore(sem)
        yield ReleaseSemaphore(sem)


@do
def tasks(count):
    for _ in range(count):
        yield Wait((yield Spawn(nothing())))


@do
def tasks_without_handles(count):
    for _ in range(count):
        yield Spawn(nothing(), daemon=True)


@do
def failed_tasks(count):
    for _ in range(count):
        task = yield Spawn(fail())
        try:
            yield Wait(task)
        except KeyError:
            pass


@do
def fails_while_waiting():
    task = yield Spawn(fail())
    yield Wait(task)


@do
def failures_that_refer_to_their_handle(count):
    """The exception refers to the frame, the frame to the handle, and the handle to the exception."""
    for _ in range(count):
        task = yield Spawn(fails_while_waiting())
        try:
            yield Wait(task)
        except KeyError:
            pass


@do
def returns(box):
    yield Yield()
    return box


@do
def values_that_refer_to_their_handle(count):
    for _ in range(count):
        box = []
        task = yield Spawn(returns(box))
        box.append(task)
        yield Wait(task)


@do
def cancelled_tasks(count):
    for _ in range(count):
        task = yield Spawn(sleep())
        yield Cancel(task)
        try:
            yield Wait(task)
        except TaskCancelledError:
            pass


@do
def promises(count):
    for _ in range(count):
        promise = yield CreatePromise()
        yield CompletePromise(promise, [promise])
        yield Wait(promise.future)


@do
def promises_without_handles(count):
    for _ in range(count):
        yield CreatePromise()
        yield CreateExternalPromise()
        # The inbox of other threads is read between two tasks.
        yield Yield()


@do
def guarded(count):
    sem = yield CreateSemaphore(1)
    for _ in range(count):
        yield WithSemaphore(sem, nothing())


@do
def abandoned_generators(count):
    for _ in range(count // 100):
        outcome_of(abandons(100))
    yield Yield()


@do
def abandons(count):
    sem = yield CreateSemaphore(1)
    for _ in range(count):
        yield Spawn(holds(sem), daemon=True)


@do
def holds(sem):
    yield AcquireSemaphore(sem)
    try:
        yield Delay(1)
    finally:
        yield ReleaseSemaphore(sem)


KINDS = [
    semaphores,
    tasks,
    tasks_without_handles,
    failed_tasks,
    failures_that_refer_to_their_handle,
    values_that_refer_to_their_handle,
    cancelled_tasks,
    promises,
    promises_without_handles,
    guarded,
    abandoned_generators,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_memory_does_not_grow_within_a_run(kind) -> None:
    @do
    def main():
        yield kind(MANY // 10)
        gc.collect()
        before = memory()
        yield kind(MANY)
        gc.collect()
        return memory() - before

    # A hundred bytes for each would be ten megabytes.
    assert run(main()) < MANY * 40


def test_memory_does_not_grow_from_run_to_run() -> None:
    @do
    def small():
        sem = yield CreateSemaphore(1)
        yield Gather((yield Spawn(holds(sem))), (yield Spawn(holds(sem))))

    for _ in range(2000):
        run(small())
    gc.collect()
    before = memory()
    for _ in range(20_000):
        run(small())
    gc.collect()
    assert memory() - before < 20_000 * 40


class Thing:
    pass


def test_the_values_of_a_program_are_freed_with_it() -> None:
    things = []

    @do
    def child(thing):
        things.append(weakref.ref(thing))
        yield Delay(1)
        return thing

    @do
    def main():
        task = yield Spawn(child(Thing()))
        yield Wait(task)
        del task
        yield Yield()
        assert things[0]() is None
        yield Spawn(child(Thing()), daemon=True)
        assert things[1]() is not None

    run(main())
    assert [thing() for thing in things] == [None, None]


def test_a_handle_keeps_its_value_until_the_last_reference_is_gone() -> None:
    kept = []
    things = []

    @do
    def child():
        yield Yield()
        thing = Thing()
        things.append(weakref.ref(thing))
        return thing

    @do
    def main():
        kept.append((yield Spawn(child())))
        yield Wait(kept[0])

    run(main())
    assert things[0]() is not None
    kept.clear()
    assert things[0]() is None


def test_values_that_refer_to_other_handles_are_freed() -> None:
    things = []

    @do
    def child(depth):
        thing = Thing()
        things.append(weakref.ref(thing))
        inner = (yield Spawn(child(depth - 1))) if depth else (yield CreateSemaphore(1))
        promise = yield CreatePromise()
        yield CompletePromise(promise, thing)
        return [inner, promise, thing]

    @do
    def main():
        yield Wait((yield Spawn(child(20))))
        assert things[0]() is not None
        for _ in range(50):
            yield Yield()
        assert [thing() for thing in things] == [None] * 21

    run(main())


def test_a_reference_cycle_of_effects_is_collected() -> None:
    thing = Thing()
    gone = weakref.ref(thing)

    @do
    def program(box):
        yield Yield()

    box = [thing]
    box.append(Spawn(program(box)))
    box.append(CompletePromise(3, box))
    del thing, box
    gc.collect()
    assert gone() is None


def test_handles_may_be_freed_on_another_thread() -> None:
    kept = []

    @do
    def main():
        for _ in range(1000):
            kept.append((yield CreateSemaphore(1)))
            kept.append((yield Spawn(nothing())))
            kept.append((yield CreatePromise()))
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        yield Delay(1)
        yield semaphores(10)

    run(main())
    assert kept == []


def test_abandoned_generators_are_closed_without_output(capfd) -> None:
    run(abandons(10))
    gc.collect()
    assert capfd.readouterr().err == ""
