"""Programs that end are never reported as deadlocked, and programs that poll are not reported as endless."""

from __future__ import annotations

import itertools
import threading

import pytest
from semafor.effects import (
    AcquireSemaphore,
    CreateExternalPromise,
    CreateSemaphore,
    Delay,
    Gather,
    NotDeterministicError,
    Now,
    ReleaseSemaphore,
    SchedulerDeadlockError,
    Spawn,
    Wait,
    WithSemaphore,
    Yield,
    do,
    explore,
    outcome_of,
    run,
)


@do
def release_after(sem, effect):
    yield effect
    yield ReleaseSemaphore(sem)


@do
def passed_on():
    sem = yield CreateSemaphore(1)
    yield AcquireSemaphore(sem)
    releaser = yield Spawn(release_after(sem, Delay(1)))
    yield AcquireSemaphore(sem)
    yield ReleaseSemaphore(sem)
    yield Wait(releaser)
    return (yield Now())


@pytest.mark.parametrize("search", ["random", "pct", "exhaustive"])
def test_a_permit_released_by_another_task_after_a_delay_is_no_deadlock(search) -> None:
    outcome = outcome_of(passed_on())
    assert (outcome.result(), outcome.complaints) == (1, [])
    explore(passed_on(), 300, search=search, preemptions=2).assert_holds()


def test_the_strict_search_reports_a_permit_that_another_task_would_release() -> None:
    with pytest.raises(SchedulerDeadlockError, match="a task waits for itself"):
        run(passed_on(), deadlocks="holders")
    failure = explore(passed_on(), 300, deadlocks="holders").failure
    assert failure is not None and isinstance(failure.error, SchedulerDeadlockError)


def test_a_permit_released_after_another_thread_completes_a_promise_is_no_deadlock() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        promise = yield CreateExternalPromise()
        releaser = yield Spawn(release_after(sem, Wait(promise.future)))
        thread = threading.Thread(target=promise.complete, args=(None,))
        thread.start()
        yield AcquireSemaphore(sem)
        thread.join()
        yield ReleaseSemaphore(sem)
        yield Wait(releaser)

    assert outcome_of(main()).complaints == []
    run(main())


def test_a_permit_released_after_the_end_of_its_task_is_not_reported() -> None:
    @do
    def taker(sem):
        yield AcquireSemaphore(sem)

    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield Wait((yield Spawn(taker(sem))))
        yield ReleaseSemaphore(sem)

    assert outcome_of(main()).unreleased == []
    explore(main(), 50).assert_holds()


def test_a_cycle_of_with_semaphore_is_found_while_another_task_runs() -> None:
    @do
    def ticker():
        while True:
            yield Delay(0.25)

    @do
    def second(other):
        yield Delay(1)
        yield WithSemaphore(other, nothing())

    @do
    def nothing():
        yield Yield()

    @do
    def first(one, other):
        yield WithSemaphore(one, second(other))

    @do
    def main():
        yield Spawn(ticker(), daemon=True)
        a = yield CreateSemaphore(1)
        b = yield CreateSemaphore(1)
        there = yield Spawn(first(a, b))
        back = yield Spawn(first(b, a))
        yield Gather(there, back)

    outcome = outcome_of(main(), max_steps=10_000)
    assert isinstance(outcome.error, SchedulerDeadlockError)
    assert outcome.error.is_cycle and outcome.elapsed == 1


def test_a_program_that_is_not_deterministic_is_reported() -> None:
    runs = itertools.count()

    @do
    def nothing():
        yield Yield()

    @do
    def main():
        tasks = []
        for _ in range(8 - next(runs) % 7):
            tasks.append((yield Spawn(nothing())))
        yield Gather(*tasks)

    exploration = explore(main(), search="exhaustive")
    failure = exploration.failure
    assert failure is not None and isinstance(failure.error, NotDeterministicError)
    assert isinstance(failure.error, Exception)
    assert "not deterministic: at choice " in str(failure)
    with pytest.raises(AssertionError, match="not deterministic"):
        exploration.assert_holds()


def test_exploring_on_the_real_clock_does_not_panic() -> None:
    @do
    def sleeper(seconds):
        yield Delay(seconds)

    @do
    def main():
        tasks = []
        for number in range(4):
            tasks.append((yield Spawn(sleeper(number % 2 * 0.000_01))))
        yield Gather(*tasks)

    failure = explore(main(), 200, search="exhaustive", clock="real").failure
    assert failure is None or isinstance(failure.error, NotDeterministicError)


@pytest.mark.parametrize("search", ["random", "pct"])
def test_a_task_that_polls_by_yielding_lets_the_others_run(search) -> None:
    @do
    def poller(flag):
        while not flag:
            yield Yield()

    @do
    def raiser(flag):
        yield Yield()
        flag.append(True)

    @do
    def main():
        flag = []
        tasks = [(yield Spawn(poller(flag))), (yield Spawn(raiser(flag)))]
        yield Gather(*tasks)

    explore(main(), 500, search=search, max_steps=2_000).assert_holds()


@pytest.mark.parametrize("effect", [Yield(), Delay(1), Now()])
@pytest.mark.parametrize("search", ["random", "pct", "exhaustive"])
def test_an_endless_program_fails_with_a_trace(effect, search) -> None:
    @do
    def endless():
        while True:
            yield effect

    @do
    def main():
        yield Gather((yield Spawn(endless())), (yield Spawn(endless())))

    failure = explore(main(), 3, search=search, max_steps=2_000).failure
    assert failure is not None and isinstance(failure.error, RuntimeError)
    assert failure.message == "the program had not ended after 2000 steps, its limit"
    with pytest.raises(RuntimeError, match="had not ended after 2000 steps"):
        run(main(), replay=failure.trace, max_steps=2_000)


def test_explore_limits_the_steps_by_default() -> None:
    @do
    def main():
        while True:
            yield Yield()

    failure = explore(main(), 1).failure
    assert failure is not None and "steps" in failure.message


@pytest.mark.parametrize(
    "max_steps, error",
    [(0, ValueError), (-1, ValueError), (2**64, ValueError), ("3", TypeError), (True, TypeError)],
)
def test_an_invalid_number_of_steps_is_refused(max_steps, error) -> None:
    for call in (run, outcome_of, explore):
        with pytest.raises(error, match="max_steps must be"):
            call(passed_on(), max_steps=max_steps)


@pytest.mark.parametrize("field", ["seed", "changes", "preemptions"])
@pytest.mark.parametrize("given, error", [(-1, ValueError), (2**64, ValueError), ("3", TypeError)])
def test_invalid_search_parameters_are_refused(field, given, error) -> None:
    with pytest.raises(error, match=f"{field} must be"):
        explore(passed_on(), 1, **{field: given})
    with pytest.raises(error, match="seed must be"):
        run(passed_on(), seed=given)


def test_a_consumer_of_signals_leaves_nothing_unreleased() -> None:
    @do
    def consumer(ready):
        yield AcquireSemaphore(ready)

    @do
    def main():
        ready = yield CreateSemaphore(1, signal=True)
        yield AcquireSemaphore(ready)
        task = yield Spawn(consumer(ready))
        yield Delay(1)
        yield ReleaseSemaphore(ready)
        yield Wait(task)

    assert outcome_of(main()).complaints == []
    explore(main(), 100).assert_holds()
