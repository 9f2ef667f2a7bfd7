"""A cancelled task gets the error where it waits, and its cleanup may take as long as it needs."""

from __future__ import annotations

import pytest
from semafor.effects import (
    AcquireSemaphore,
    Cancel,
    CreatePromise,
    CreateSemaphore,
    Delay,
    Gather,
    Now,
    Priority,
    ReleaseSemaphore,
    Shield,
    Spawn,
    TaskCancelledError,
    TryAcquire,
    Wait,
    Yield,
    do,
    run,
)


@do
def hold(sem, seconds, log):
    yield AcquireSemaphore(sem)
    try:
        yield Delay(seconds)
    except TaskCancelledError:
        log.append("cancelled")
        raise
    finally:
        yield ReleaseSemaphore(sem)
        log.append("released")


def test_a_cancelled_holder_releases_in_finally() -> None:
    log = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        task = yield Spawn(hold(sem, 3600, log))
        yield Cancel(task)
        yield AcquireSemaphore(sem)
        assert log == ["cancelled", "released"]
        with pytest.raises(TaskCancelledError):
            yield Wait(task)
        yield ReleaseSemaphore(sem)
        return (yield Now())

    assert run(main()) == 0


def test_a_cancelled_waiter_leaves_the_line_and_consumes_nothing() -> None:
    log = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        first = yield Spawn(hold(sem, 1, log))
        second = yield Spawn(hold(sem, 1, log))
        yield Cancel(first)
        with pytest.raises(TaskCancelledError):
            yield Wait(first)
        assert log == []
        yield ReleaseSemaphore(sem)
        yield Wait(second)
        return (yield Now())

    assert run(main()) == 1
    assert log == ["released"]


def test_a_permit_granted_to_a_cancelled_task_goes_to_the_next_waiter() -> None:
    log = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        first = yield Spawn(hold(sem, 1, log))
        second = yield Spawn(hold(sem, 1, log))
        yield ReleaseSemaphore(sem)  # first is granted it, but has not run
        yield Cancel(first)
        yield Wait(second)
        with pytest.raises(TaskCancelledError):
            yield Wait(first)
        return (yield TryAcquire(sem)), (yield ReleaseSemaphore(sem))

    assert run(main()) == (True, None)


def test_cleanup_may_wait() -> None:
    @do
    def cleans_up_slowly(sem):
        yield AcquireSemaphore(sem)
        try:
            yield Delay(3600)
        finally:
            yield Delay(5)
            yield ReleaseSemaphore(sem)

    @do
    def main():
        sem = yield CreateSemaphore(1)
        task = yield Spawn(cleans_up_slowly(sem))
        yield Delay(1)
        yield Cancel(task)
        yield AcquireSemaphore(sem)
        yield ReleaseSemaphore(sem)
        return (yield Now())

    assert run(main()) == 6


def test_a_task_cancelled_before_it_starts_never_runs() -> None:
    started = []

    @do
    def child():
        started.append(True)
        yield Yield()

    @do
    def starter():
        # Its priority is lower than that of the root, so it does not run first.
        task = yield Spawn(child(), priority=Priority.IDLE)
        yield Cancel(task)
        errors = []
        for _ in range(2):
            try:
                yield Wait(task)
            except TaskCancelledError as error:
                errors.append(error)
        return errors[0] is errors[1]

    assert run(starter())
    assert started == []


def test_cancelling_an_ended_task_changes_nothing() -> None:
    @do
    def child():
        yield Yield()
        return "done"

    @do
    def main():
        task = yield Spawn(child())
        assert (yield Wait(task)) == "done"
        assert (yield Cancel(task)) is None
        assert (yield Cancel(task)) is None
        return (yield Wait(task))

    assert run(main()) == "done"


def test_a_task_that_cancels_itself_gets_the_error_at_its_next_wait() -> None:
    log = []
    tasks = []

    @do
    def child():
        yield Delay(1)
        yield Cancel(tasks[0])
        log.append("continues")
        yield CreateSemaphore(1)
        log.append("still")
        yield Delay(1)
        log.append("never")

    @do
    def main():
        tasks.append((yield Spawn(child())))
        with pytest.raises(TaskCancelledError):
            yield Wait(tasks[0])

    run(main())
    assert log == ["continues", "still"]
    tasks.clear()


def test_a_task_may_ignore_its_cancellation() -> None:
    @do
    def ignoring():
        try:
            yield Delay(10)
        except TaskCancelledError:
            pass
        yield Delay(1)
        return "continued"

    @do
    def main():
        task = yield Spawn(ignoring())
        yield Cancel(task)
        return (yield Wait(task)), (yield Now())

    assert run(main()) == ("continued", 1)


def test_cancelling_a_parent_does_not_cancel_its_children() -> None:
    @do
    def parent(children):
        children.append((yield Spawn(child())))
        yield Delay(10)

    @do
    def child():
        yield Delay(2)
        return "alive"

    @do
    def main():
        children = []
        task = yield Spawn(parent(children))
        yield Delay(1)
        yield Cancel(task)
        return (yield Wait(children[0]))

    assert run(main()) == "alive"


def test_a_shield_delays_cancellation() -> None:
    log = []

    @do
    def careful():
        yield Delay(5)
        log.append("shielded to the end")
        return "kept"

    @do
    def child():
        log.append((yield Shield(careful())))
        yield Delay(1)
        log.append("never")

    @do
    def main():
        task = yield Spawn(child())
        yield Delay(1)
        yield Cancel(task)
        with pytest.raises(TaskCancelledError):
            yield Wait(task)
        return (yield Now())

    assert run(main()) == 5
    assert log == ["shielded to the end", "kept"]


def test_every_kind_of_wait_can_be_cancelled() -> None:
    @do
    def forever(effect):
        try:
            yield effect
        except TaskCancelledError:
            yield Yield()
            return "cleaned up"

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        promise = yield CreatePromise()
        sleeper = yield Spawn(forever(Delay(3600)))
        effects = [
            AcquireSemaphore(sem),
            AcquireSemaphore(sem, timeout=60),
            Wait(promise.future),
            Gather(promise.future, sleeper),
            Delay(60),
        ]
        tasks = [sleeper]
        for effect in effects:
            tasks.append((yield Spawn(forever(effect))))
        for task in tasks[::-1]:
            yield Cancel(task)
        results = yield Gather(*tasks)
        yield ReleaseSemaphore(sem)
        return set(results), (yield Now())

    assert run(main()) == ({"cleaned up"}, 0)
