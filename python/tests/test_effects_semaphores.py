"""Semaphores: first come, first served; no permit is lost, and none is created."""

from __future__ import annotations

import pytest
from semafor.effects import (
    AcquireSemaphore,
    Cancel,
    CreateSemaphore,
    Delay,
    Gather,
    Now,
    Priority,
    ReleaseSemaphore,
    SchedulerDeadlockError,
    Semaphore,
    Spawn,
    TaskCancelledError,
    TryAcquire,
    Wait,
    WithSemaphore,
    Yield,
    do,
    outcome_of,
    run,
)


@do
def visit(sem, order, name, times=1):
    for _ in range(times):
        yield AcquireSemaphore(sem)
        order.append(name)
        yield ReleaseSemaphore(sem)


def test_the_handle_is_opaque() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(2)
        assert (sem.id, sem.sem_id, repr(sem)) == (0, 0, "Semaphore(0)")
        with pytest.raises(AttributeError):
            sem.id = 3
        with pytest.raises(AttributeError):
            sem.other = 3

    run(main())
    with pytest.raises(TypeError):
        Semaphore()
    with pytest.raises(TypeError):
        Semaphore(1)


def test_acquire_and_release_return_none_and_do_not_switch() -> None:
    order = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        assert (yield AcquireSemaphore(sem)) is None
        assert (yield ReleaseSemaphore(sem)) is None
        yield Gather((yield Spawn(visit(sem, order, "a", 3))), (yield Spawn(visit(sem, order, "b", 3))))

    run(main())
    assert "".join(order) == "aaabbb"


def test_the_line_is_in_order_of_arrival_regardless_of_priority() -> None:
    order = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        tasks = []
        for number in range(20):
            priority = Priority.HIGH if number % 2 else Priority.NORMAL
            tasks.append((yield Spawn(visit(sem, order, number), priority=priority)))
        yield ReleaseSemaphore(sem)
        order.append("releaser")
        yield Gather(*tasks)

    run(main())
    assert order == ["releaser", *range(20)]


def test_a_task_that_acquires_again_goes_to_the_end_of_the_line() -> None:
    order = []

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        task = yield Spawn(visit(sem, order, "waiter"))
        yield ReleaseSemaphore(sem)
        yield AcquireSemaphore(sem)
        order.append("main")
        yield ReleaseSemaphore(sem)
        yield Wait(task)

    run(main())
    assert order == ["waiter", "main"]


def test_over_release_is_an_error_and_changes_nothing() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        with pytest.raises(RuntimeError, match="^semaphore released too many times$"):
            yield ReleaseSemaphore(sem)
        yield AcquireSemaphore(sem)
        assert not (yield TryAcquire(sem))
        yield ReleaseSemaphore(sem)

    run(main())


def test_another_task_may_release() -> None:
    @do
    def releaser(sem):
        yield ReleaseSemaphore(sem)

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        yield Wait((yield Spawn(releaser(sem))))
        return (yield TryAcquire(sem))

    with pytest.warns(RuntimeWarning, match="root ended with 1 unreleased of semaphore 0"):
        assert run(main())


def test_try_acquire_never_overtakes() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(2)
        yield AcquireSemaphore(sem)
        heavy = yield Spawn(both(sem))
        assert not (yield TryAcquire(sem))
        yield ReleaseSemaphore(sem)
        yield Wait(heavy)
        assert (yield TryAcquire(sem))
        yield ReleaseSemaphore(sem)

    @do
    def both(sem):
        yield AcquireSemaphore(sem, weight=2)
        yield Delay(1)
        yield ReleaseSemaphore(sem)

    run(main())


def test_a_weight_above_the_permits_is_refused() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(2)
        with pytest.raises(ValueError, match="3 permits of a semaphore of 2"):
            yield AcquireSemaphore(sem, weight=3)

    run(main())


def test_a_timed_acquire_times_out_and_leaves_the_line() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        with pytest.raises(TimeoutError):
            yield AcquireSemaphore(sem, timeout=5.0)
        assert (yield Now()) == 5
        with pytest.raises(TimeoutError):
            yield AcquireSemaphore(sem, timeout=0)
        yield ReleaseSemaphore(sem)
        yield AcquireSemaphore(sem, timeout=5)
        assert (yield Now()) == 5
        yield ReleaseSemaphore(sem)

    run(main())


def test_a_permit_that_comes_at_the_moment_of_the_timeout_is_not_lost() -> None:
    @do
    def holder(sem):
        yield AcquireSemaphore(sem)
        yield Delay(1)
        yield ReleaseSemaphore(sem)

    @do
    def main():
        sem = yield CreateSemaphore(1)
        task = yield Spawn(holder(sem))
        try:
            yield AcquireSemaphore(sem, timeout=1)
            yield ReleaseSemaphore(sem)
        except TimeoutError:
            pass
        yield Wait(task)
        assert (yield TryAcquire(sem))
        yield ReleaseSemaphore(sem)

    run(main())


def test_with_semaphore_releases_however_the_program_ends() -> None:
    @do
    def body(how):
        yield Yield()
        if how == "raise":
            raise KeyError(how)
        if how == "wait":
            yield Delay(3600)
        return how

    @do
    def main():
        sem = yield CreateSemaphore(1)
        assert (yield WithSemaphore(sem, body("return"))) == "return"
        with pytest.raises(KeyError):
            yield WithSemaphore(sem, body("raise"))
        task = yield Spawn(within(sem, "wait"))
        yield Cancel(task)
        with pytest.raises(TaskCancelledError):
            yield Wait(task)
        yield Spawn(within(sem, "wait"), daemon=True)
        with pytest.raises(RuntimeError, match="too many times"):
            yield ReleaseSemaphore(sem)
        return sem

    @do
    def within(sem, how):
        return (yield WithSemaphore(sem, body(how)))

    assert outcome_of(main()).complaints == []


def test_a_permit_leaked_by_a_failed_task_is_reported() -> None:
    @do
    def careless(sem):
        yield AcquireSemaphore(sem)
        raise KeyError("oops")

    @do
    def main():
        sem = yield CreateSemaphore(1)
        task = yield Spawn(careless(sem), name="careless")
        with pytest.raises(KeyError):
            yield Wait(task)
        with pytest.raises(SchedulerDeadlockError, match="held by a task that has ended, at .*py") as caught:
            yield AcquireSemaphore(sem)
        assert ".rs" not in str(caught.value)

    with pytest.warns(RuntimeWarning, match="careless .* ended with 1 unreleased of semaphore 0"):
        run(main())


@pytest.mark.parametrize("permits", [0, -1, -(2**70)])
def test_a_semaphore_needs_at_least_one_permit(permits) -> None:
    @do
    def main():
        with pytest.raises(ValueError, match="^permits must be >= 1$"):
            yield CreateSemaphore(permits)
        return "caught"

    assert run(main()) == "caught"


@pytest.mark.parametrize("permits", [True, False, 1.5, "x", None, object()])
def test_permits_must_be_a_number(permits) -> None:
    @do
    def main():
        with pytest.raises(TypeError, match="a number of permits"):
            yield CreateSemaphore(permits)
        return "caught"

    assert run(main()) == "caught"


def test_errors_of_an_acquire_name_the_argument() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        for arguments, message in (
            ({"weight": 0}, "weight must be >= 1"),
            ({"weight": 2**32}, r"weight must be < 2\*\*32"),
            ({"timeout": -1}, "timeout must be a number of seconds >= 0, got -1"),
            ({"timeout": float("nan")}, "timeout must be a number of seconds >= 0, got NaN"),
        ):
            with pytest.raises(ValueError, match=f"^{message}$"):
                yield AcquireSemaphore(sem, **arguments)
        with pytest.raises(ValueError, match="^a delay or timeout must be a number of seconds >= 0, not -1$"):
            yield Delay(-1)
        return "caught"

    assert run(main()) == "caught"


def test_a_handle_of_another_run_is_refused() -> None:
    kept = []

    @do
    def first():
        kept.append((yield CreateSemaphore(1)))
        kept.append((yield Spawn(visit(kept[0], [], "x"))))
        yield Wait(kept[1])

    @do
    def second():
        own = yield CreateSemaphore(1)
        assert own.id == kept[0].id
        for effect in (AcquireSemaphore(kept[0]), ReleaseSemaphore(kept[0]), TryAcquire(kept[0])):
            with pytest.raises(RuntimeError, match="another run"):
                yield effect
        for effect in (Wait(kept[1]), Gather(kept[1]), Cancel(kept[1])):
            with pytest.raises(RuntimeError, match="another run"):
                yield effect
        return (yield TryAcquire(own))

    run(first())
    assert outcome_of(second()).result()
