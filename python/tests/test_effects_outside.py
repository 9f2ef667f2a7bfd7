"""Other threads, the real clock, signals and logging."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

import pytest
from conftest import PATIENCE
from semafor.effects import (
    AcquireSemaphore,
    CreateExternalPromise,
    CreateSemaphore,
    Delay,
    Gather,
    Log,
    Now,
    Race,
    ReleaseSemaphore,
    SchedulerDeadlockError,
    Spawn,
    Wait,
    do,
    run,
)


@pytest.fixture
def in_thread():
    """Runs each function in a new thread."""
    threads = []

    def start(function, *args):
        threads.append(threading.Thread(target=function, args=args))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_thread_completes_a_promise_while_the_run_waits(in_thread, clock) -> None:
    @do
    def main():
        promise = yield CreateExternalPromise()
        in_thread(lambda: (time.sleep(0.02), promise.complete("from outside")))
        return (yield Wait(promise.future))

    assert run(main(), clock=clock) == "from outside"


def test_many_threads_may_complete_promises(in_thread) -> None:
    @do
    def main():
        promises = []
        for _ in range(50):
            promises.append((yield CreateExternalPromise()))
        for number, promise in enumerate(promises):
            in_thread(promise.complete, number)
        return (yield Gather(*[promise.future for promise in promises]))

    assert run(main()) == list(range(50))


def test_an_external_promise_keeps_its_first_value(in_thread) -> None:
    @do
    def main():
        promise = yield CreateExternalPromise()
        assert promise.complete("first")
        assert not promise.complete("second")
        assert not promise.fail(KeyError())
        return (yield Wait(promise.future))

    assert run(main()) == "first"


def test_a_thread_fails_a_promise(in_thread) -> None:
    error = OSError("no route")

    @do
    def main():
        promise = yield CreateExternalPromise()
        in_thread(promise.fail, error)
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                yield Wait(promise.future)
            assert caught.value is error

    run(main())


def test_other_tasks_run_while_one_waits_for_another_thread(in_thread) -> None:
    done = threading.Event()

    @do
    def busy():
        for _ in range(10):
            yield Delay(1)
        done.set()

    @do
    def main():
        promise = yield CreateExternalPromise()
        in_thread(lambda: (done.wait(PATIENCE), promise.complete("afterwards")))
        yield Spawn(busy())
        return (yield Wait(promise.future)), (yield Now())

    assert run(main()) == ("afterwards", 10)


def test_dropping_the_last_handle_of_an_external_promise_is_a_deadlock(in_thread) -> None:
    @do
    def main():
        promise = yield CreateExternalPromise()
        future = promise.future
        in_thread(lambda promise: time.sleep(0.02), promise)
        del promise
        with pytest.raises(SchedulerDeadlockError):
            yield Wait(future)
        return "deadlock"

    assert run(main()) == "deadlock"


def test_a_promise_may_be_completed_after_the_run(in_thread) -> None:
    kept = []

    @do
    def main():
        kept.append((yield CreateExternalPromise()))

    run(main())
    assert kept[0].complete(1)
    in_thread(kept.clear)


def test_delays_take_time_only_on_the_real_clock() -> None:
    @do
    def main(seconds):
        yield Delay(seconds)
        return (yield Now())

    start = time.monotonic()
    assert run(main(1e6)) == 1e6
    assert time.monotonic() - start < PATIENCE
    start = time.monotonic()
    assert run(main(0.05), clock="real") >= 0.05
    assert time.monotonic() - start >= 0.05


def test_other_threads_run_during_a_real_delay(in_thread) -> None:
    ticks = []

    def tick(stop):
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.001)

    @do
    def main():
        yield Delay(0.1)

    stop = threading.Event()
    in_thread(tick, stop)
    run(main(), clock="real")
    stop.set()
    assert len(ticks) > 3


def test_a_timed_acquire_works_on_the_real_clock() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)
        with pytest.raises(TimeoutError):
            yield AcquireSemaphore(sem, timeout=0.02)
        yield ReleaseSemaphore(sem)

    run(main(), clock="real")


def test_a_delay_can_race_an_external_promise(in_thread) -> None:
    @do
    def timeout():
        yield Delay(0.02)
        return "too late"

    @do
    def main():
        promise = yield CreateExternalPromise()
        return (yield Race(promise.future, (yield Spawn(timeout()))))

    assert run(main(), clock="real") == "too late"


def test_runs_on_many_threads_at_once(in_thread) -> None:
    @do
    def visit(sem):
        yield AcquireSemaphore(sem)
        yield Delay(0.001)
        yield ReleaseSemaphore(sem)

    @do
    def main():
        sem = yield CreateSemaphore(2)
        tasks = []
        for _ in range(20):
            tasks.append((yield Spawn(visit(sem))))
        yield Gather(*tasks)
        return (yield Now())

    results = []
    for clock in ["virtual", "real"] * 4:
        in_thread(lambda clock=clock: results.append(run(main(), clock=clock)))
    deadline = time.monotonic() + PATIENCE
    while len(results) < 8:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert all(result >= 0.0099 for result in results)


@pytest.fixture
def interruptible():
    """Makes SIGINT raise KeyboardInterrupt, even if the tests were started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_an_interrupt_while_the_run_waits(interruptible, in_thread, clock) -> None:
    closed = []

    @do
    def main():
        promise = yield CreateExternalPromise()
        in_thread(lambda: (time.sleep(0.05), os.kill(os.getpid(), signal.SIGINT)))
        try:
            if clock == "real":
                yield Delay(3600)
            yield Wait(promise.future)
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        run(main(), clock=clock)
    assert closed == [True]


def test_log_lines_go_to_the_logging_module(caplog) -> None:
    @do
    def child():
        yield Delay(1.5)
        yield Log("hello")

    @do
    def main():
        yield Wait((yield Spawn(child(), name="child")))

    with caplog.at_level(logging.INFO, "semafor.effects"):
        run(main())
    assert caplog.messages == ["1.500 child (task 0): hello"]
