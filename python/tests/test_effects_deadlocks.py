"""Deadlocks are reported with the names of the tasks, and can be caught."""

from __future__ import annotations

import copy
import pickle
import re
import threading

import pytest
from semafor.effects import (
    AcquireSemaphore,
    CompletePromise,
    CreateExternalPromise,
    CreatePromise,
    CreateSemaphore,
    Delay,
    Gather,
    Now,
    ReleaseSemaphore,
    SchedulerDeadlockError,
    Spawn,
    Wait,
    do,
    outcome_of,
    run,
)


@do
def transfer(one, other):
    yield AcquireSemaphore(one)
    try:
        yield Delay(1)
        yield AcquireSemaphore(other)
        yield ReleaseSemaphore(other)
    finally:
        yield ReleaseSemaphore(one)


@do
def bank():
    a = yield CreateSemaphore(1, name="a")
    b = yield CreateSemaphore(1, name="b")
    there = yield Spawn(transfer(a, b), name="there")
    back = yield Spawn(transfer(b, a), name="back")
    yield Gather(there, back)


def test_a_cycle_is_reported_with_the_lines_of_the_program() -> None:
    with pytest.raises(SchedulerDeadlockError) as caught:
        run(bank())
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert error.is_cycle
    assert {link.task for link in error.links} == {"there (task 2)", "back (task 3)"}
    for link in error.links:
        assert re.search(r"test_effects_deadlocks\.py:\d+ in transfer$", link.at)
    assert "there (task 2) waits for semaphore b (id 1), held by back (task 3), at " in str(error)
    assert ".rs" not in str(error)


def test_a_deadlock_error_can_be_copied_and_pickled() -> None:
    error = outcome_of(bank()).error
    assert isinstance(error, SchedulerDeadlockError)
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(same), same.is_cycle, same.links) == (str(error), error.is_cycle, error.links)


def test_one_task_can_catch_the_deadlock_and_the_other_continues() -> None:
    @do
    def careful(one, other):
        try:
            yield transfer(one, other)
        except SchedulerDeadlockError:
            return "gave way"
        return "done"

    @do
    def main():
        a = yield CreateSemaphore(1)
        b = yield CreateSemaphore(1)
        return (yield Gather((yield Spawn(careful(a, b))), (yield Spawn(careful(b, a)))))

    assert run(main()) == ["done", "gave way"]


def test_the_strict_search_finds_a_cycle_while_another_task_runs() -> None:
    @do
    def ticker():
        while True:
            yield Delay(0.25)

    @do
    def main():
        yield Spawn(ticker(), daemon=True)
        try:
            yield bank()
        except SchedulerDeadlockError:
            return (yield Now())

    assert run(main(), deadlocks="holders") == 1


def test_a_task_that_waits_for_its_own_permit_is_deadlocked() -> None:
    @do
    def main():
        lock = yield CreateSemaphore(1)
        yield AcquireSemaphore(lock)
        yield AcquireSemaphore(lock)

    with pytest.raises(SchedulerDeadlockError, match="a task waits for itself\n  root waits for semaphore 0"):
        run(main())


def test_waiting_for_a_promise_without_handles_is_a_deadlock() -> None:
    @do
    def main():
        promise = yield CreatePromise()
        future = promise.future
        del promise
        yield Wait(future)

    with pytest.raises(SchedulerDeadlockError, match="can't happen any more") as caught:
        run(main())
    assert not caught.value.is_cycle


def test_dropping_a_promise_while_another_task_runs_is_a_deadlock() -> None:
    @do
    def keeper(box):
        yield Delay(1)
        box.clear()
        yield Delay(10)

    @do
    def main():
        box = [(yield CreatePromise())]
        future = box[0].future
        yield Spawn(keeper(box), daemon=True)
        with pytest.raises(SchedulerDeadlockError):
            yield Wait(future)

    run(main())


def test_all_waiters_of_a_deadlocked_task_get_the_same_exception() -> None:
    @do
    def main():
        lock = yield CreateSemaphore(1)
        task = yield Spawn(twice(lock))
        errors = []
        for _ in range(2):
            try:
                yield Wait(task)
            except SchedulerDeadlockError as error:
                errors.append(error)
        return errors[0] is errors[1]

    @do
    def twice(lock):
        yield AcquireSemaphore(lock)
        yield AcquireSemaphore(lock)

    assert outcome_of(main()).result()


def test_waiting_for_a_signal_is_no_deadlock() -> None:
    @do
    def waiter(ready):
        yield AcquireSemaphore(ready)

    @do
    def main():
        ready = yield CreateSemaphore(1, signal=True)
        yield AcquireSemaphore(ready)
        task = yield Spawn(waiter(ready))
        yield Delay(5)
        yield ReleaseSemaphore(ready)
        yield Wait(task)
        return "signalled"

    assert outcome_of(main()).result() == "signalled"


@pytest.mark.parametrize("deadlocks", ["global", "off"])
def test_with_global_or_off_a_deadlock_is_found_once_no_task_can_run(deadlocks) -> None:
    @do
    def ticker():
        yield Delay(100)

    @do
    def main():
        yield Spawn(ticker())
        yield bank()

    outcome = outcome_of(main(), deadlocks=deadlocks)
    assert isinstance(outcome.error, SchedulerDeadlockError)
    assert outcome.elapsed == 100


def test_waiting_for_a_promise_that_a_task_completes_is_no_deadlock() -> None:
    @do
    def completer(promise):
        yield Delay(1)
        yield CompletePromise(promise, "value")

    @do
    def main():
        promise = yield CreatePromise()
        task = yield Spawn(completer(promise))
        return (yield Gather(promise.future, task))

    assert run(main()) == ["value", None]


@pytest.mark.parametrize("waits_for", ["semaphore", "promise"])
def test_a_deadlock_is_reported_despite_another_thread(waits_for) -> None:
    """Whatever the other thread does, the task that is gathered with its promise does not end."""
    completed = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        promise = yield CreatePromise()
        outside = yield CreateExternalPromise()
        stuck = yield Spawn(effect(AcquireSemaphore(sem) if waits_for == "semaphore" else Wait(promise.future)))
        # Completes the promise in the end, so that the test can't hang.
        timer = threading.Timer(20, lambda: completed.append(outside.complete(None)))
        timer.start()
        try:
            yield Gather(stuck, outside.future)
        finally:
            timer.cancel()

    @do
    def effect(each):
        yield each

    with pytest.raises(SchedulerDeadlockError):
        run(main())
    assert completed == []
