"""Programs, tasks and waits: order, values and errors."""

from __future__ import annotations

import functools
import warnings

import pytest
from semafor.effects import (
    Cancel,
    CompletePromise,
    CreateExternalPromise,
    CreatePromise,
    CreateSemaphore,
    Delay,
    FailPromise,
    Gather,
    Log,
    Now,
    Priority,
    Program,
    Race,
    Shield,
    Spawn,
    TaskCancelledError,
    Wait,
    WithHandler,
    WithSemaphore,
    Yield,
    do,
    outcome_of,
    run,
)


@do
def give(value):
    yield Yield()
    return value


@do
def fail(error):
    yield Yield()
    raise error


@do
def later(seconds, value):
    yield Delay(seconds)
    return value


def test_do_makes_a_program_named_after_its_function() -> None:
    assert isinstance(give(1), Program)
    assert give.__name__ == "give"
    assert "give" in repr(give(1))


def test_do_works_on_methods_and_with_keywords() -> None:
    class Account:
        def __init__(self, money):
            self.money = money

        @do
        def pay(self, amount, *, fee=0):
            yield Yield()
            return self.money - amount - fee

    assert run(Account(10).pay(3, fee=1)) == 6


def test_a_function_without_yield_is_a_program_too() -> None:
    @do
    def plain(value):
        return value + 1

    @do
    def main():
        return (yield plain(1)) + (yield Wait((yield Spawn(plain(2)))))

    assert run(plain(1)) == 2
    assert run(main()) == 5


def test_a_program_that_is_yielded_runs_in_the_same_task() -> None:
    @do
    def inner():
        yield Log("inner")
        return 20

    @do
    def outer():
        yield Log("outer")
        first = yield inner()
        second = yield from plain_generator()
        third = yield plain_generator()
        return first + second + third

    def plain_generator():
        yield Log("plain")
        return 1

    outcome = outcome_of(outer())
    assert outcome.result() == 22
    assert [str(line) for line in outcome.log] == [
        "0.000 root: outer",
        "0.000 root: inner",
        "0.000 root: plain",
        "0.000 root: plain",
    ]


def test_the_error_of_a_program_that_is_yielded_is_raised_at_the_yield() -> None:
    error = KeyError("x")

    @do
    def main():
        with pytest.raises(KeyError) as caught:
            yield fail(error)
        return caught.value is error

    assert run(main())


def test_programs_can_be_nested_deeply() -> None:
    @do
    def deep(levels):
        if levels:
            return (yield deep(levels - 1)) + 1
        return 0

    assert run(deep(20_000)) == 20_000


def test_the_child_runs_first_and_a_task_runs_until_it_has_to_wait() -> None:
    order = []

    @do
    def child(name):
        for _ in range(3):
            order.append(name)
            yield CreateSemaphore(1)

    @do
    def main():
        tasks = []
        for name in "ab":
            tasks.append((yield Spawn(child(name))))
            order.append("main")
        yield Gather(*tasks)

    run(main())
    assert "".join(word[0] for word in order) == "aaambbbm"


def test_tasks_run_in_order_of_priority() -> None:
    order = []

    @do
    def child(name):
        order.append(name)
        yield Yield()

    @do
    def main():
        tasks = [
            (yield Spawn(child("idle"), priority=Priority.IDLE)),
            (yield Spawn(child("high"), Priority.HIGH)),
            (yield Spawn(child("normal"))),
        ]
        order.append("main")
        yield Gather(*tasks)

    run(main())
    assert order == ["high", "normal", "main", "idle"]


def test_tasks_promises_and_semaphores_share_one_counter_of_ids() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        task = yield Spawn(give(1))
        promise = yield CreatePromise()
        return sem.id, task.id, promise.id

    assert outcome_of(main()).value == (0, 1, 2)


def test_task_id_is_the_same_as_id() -> None:
    @do
    def main():
        yield CreateSemaphore(1)
        task = yield Spawn(give(1))
        return task.task_id, task.id

    assert outcome_of(main()).value == (1, 1)


def test_wait_returns_the_value_any_number_of_times() -> None:
    @do
    def main():
        task = yield Spawn(give("value"))
        return (yield Wait(task)), (yield Wait(task))

    assert run(main()) == ("value", "value")


def test_all_waiters_get_the_same_exception_and_its_traceback_does_not_grow() -> None:
    error = ValueError("broken")
    seen = []

    def depth():
        traceback, count = error.__traceback__, 0
        while traceback:
            traceback, count = traceback.tb_next, count + 1
        return count

    @do
    def waiter(task):
        try:
            yield Wait(task)
        except ValueError as caught:
            seen.append((caught is error, depth()))

    @do
    def main():
        task = yield Spawn(fail(error))
        for _ in range(50):
            yield waiter(task)
        yield Gather((yield Spawn(waiter(task))), (yield Spawn(waiter(task))))

    run(main())
    assert len(seen) == 52
    assert all(is_same for is_same, _ in seen)
    assert len({depth for _, depth in seen}) == 1


def test_gather_returns_values_in_the_order_of_its_arguments() -> None:
    @do
    def main():
        slow = yield Spawn(later(2, "slow"))
        quick = yield Spawn(later(1, "quick"))
        return (yield Gather(slow, Wait(quick), slow)), (yield Gather())

    assert run(main()) == (["slow", "quick", "slow"], [])


def test_gather_raises_the_first_failure_and_the_other_tasks_continue() -> None:
    @do
    def main():
        good = yield Spawn(later(2, "good"))
        bad = yield Spawn(fail(KeyError("bad")))
        with pytest.raises(KeyError):
            yield Gather(good, bad)
        at = yield Now()
        return at, (yield Wait(good))

    assert run(main()) == (0, "good")


def test_gather_of_several_failed_tasks_raises_the_first_argument() -> None:
    @do
    def main():
        one = yield Spawn(fail(KeyError("one")))
        two = yield Spawn(fail(KeyError("two")))
        yield Delay(1)
        with pytest.raises(KeyError, match="two"):
            yield Gather(two, one)
        with pytest.raises(KeyError, match="one"):
            yield Gather(one, two)

    run(main())


def test_race_returns_the_winner_and_the_losers_continue() -> None:
    @do
    def main():
        slow = yield Spawn(later(2, "slow"))
        quick = yield Spawn(later(1, "quick"))
        winner = yield Race(slow, Wait(quick))
        again = yield Race(quick, slow)
        return winner, again, (yield Wait(slow))

    assert run(main()) == ("quick", "quick", "slow")


def test_race_raises_if_the_winner_failed_or_if_it_is_empty() -> None:
    @do
    def main():
        slow = yield Spawn(later(2, "slow"))
        bad = yield Spawn(fail(KeyError("bad")))
        with pytest.raises(KeyError):
            yield Race(slow, bad)
        with pytest.raises(ValueError, match="^Race needs at least one task or promise"):
            yield Race()
        yield Wait(slow)

    run(main())


def test_a_task_that_waits_for_itself_gets_an_error() -> None:
    tasks = []

    @do
    def waits_for_itself():
        yield Yield()
        with pytest.raises(RuntimeError, match="itself"):
            yield Wait(tasks[0])
        return "refused"

    @do
    def main():
        tasks.append((yield Spawn(waits_for_itself())))
        return (yield Wait(tasks[0]))

    assert run(main()) == "refused"
    tasks.clear()


def test_a_promise_keeps_its_first_value() -> None:
    order = []

    @do
    def waiter(promise):
        value = yield Wait(promise.future)
        order.append(value)
        return value

    @do
    def main():
        promise = yield CreatePromise()
        task = yield Spawn(waiter(promise))
        yield CompletePromise(promise, "first")
        order.append("completer")
        with pytest.raises(RuntimeError, match="already completed"):
            yield CompletePromise(promise, "second")
        with pytest.raises(RuntimeError, match="already completed"):
            yield FailPromise(promise, KeyError())
        return (yield Gather(task, promise.future))

    assert run(main()) == ["first", "first"]
    assert order == ["first", "completer"]


def test_all_waiters_of_a_failed_promise_get_the_same_exception() -> None:
    error = LookupError("no")

    @do
    def main():
        promise = yield CreatePromise()
        yield FailPromise(promise, error)
        for _ in range(2):
            with pytest.raises(LookupError) as caught:
                yield Wait(promise.future)
            assert caught.value is error
        other = yield CreatePromise()
        yield FailPromise(other, KeyError)
        with pytest.raises(KeyError):
            yield Wait(other.future)

    run(main())


def test_tasks_that_the_root_program_abandons_are_reported() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield Spawn(later(1, None), name="sleeper")
        yield Spawn(later(1, None), daemon=True)
        return sem.id

    with pytest.warns(RuntimeWarning, match=r"sleeper \(task 1\) was abandoned, waiting for a timer") as warned:
        assert run(main()) == 0
    assert len(warned) == 1


def test_cleanup_of_abandoned_tasks_runs_but_cannot_yield(capfd) -> None:
    order = []

    @do
    def child():
        try:
            yield Delay(1)
        finally:
            order.append("inner")
            yield Delay(1)

    @do
    def parent():
        try:
            yield child()
        finally:
            order.append("outer")

    @do
    def main():
        yield Spawn(parent(), daemon=True)

    run(main())
    assert order == ["inner", "outer"]
    assert capfd.readouterr().err == ""


def test_an_unobserved_failure_is_reported_at_the_end() -> None:
    @do
    def main():
        yield Spawn(fail(ValueError("unseen")), name="unlucky")
        seen = yield Spawn(fail(ValueError("seen")))
        with pytest.raises(ValueError):
            yield Wait(seen)

    with pytest.warns(RuntimeWarning, match="unlucky .* no task waited for it: ValueError.'unseen'.") as warned:
        run(main())
    assert len(warned) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_task_ends_the_run(kind) -> None:
    closed = []

    @do
    def other():
        try:
            yield Delay(3600)
        finally:
            closed.append(True)

    @do
    def main():
        yield Spawn(other())
        yield Spawn(fail(kind()))
        yield Delay(3600)

    with pytest.raises(kind):
        run(main())
    assert closed == [True]


def test_a_program_may_start_another_run() -> None:
    @do
    def main():
        yield Delay(1)
        inner = run(later(5, "inner"))
        return inner, (yield Now())

    assert run(main()) == ("inner", 1)


def test_failed_and_cancelled_tasks_do_not_affect_others() -> None:
    @do
    def main():
        tasks = []
        for number in range(30):
            program = fail(KeyError()) if number % 3 else later(number, number)
            tasks.append((yield Spawn(program)))
        yield Cancel(tasks[3])
        kinds = []
        for task in tasks:
            try:
                kinds.append(type((yield Wait(task))))
            except (KeyError, TaskCancelledError) as error:
                kinds.append(type(error))
        return kinds

    kinds = run(main())
    assert kinds.count(KeyError) == 20 and kinds.count(TaskCancelledError) == 1 and kinds.count(int) == 9


def test_run_accepts_only_programs() -> None:
    with pytest.raises(TypeError, match="@do"):
        run(3)
    with pytest.raises(TypeError, match="@do"):
        run(give)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run((lambda: (yield Yield()))()) is None


def test_do_refuses_async_functions_and_objects_that_are_not_callable() -> None:
    async def coroutine():
        pass

    async def generator():
        yield

    for function in (coroutine, generator, functools.partial(coroutine)):
        with pytest.raises(TypeError, match="needs a generator function, and .* is async: write `def`"):
            do(function)
    for nothing in (None, 5, give(1)):
        with pytest.raises(TypeError, match="needs a generator function, not"):
            do(nothing)


def test_the_error_for_a_program_that_was_not_called_says_what_to_do() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        task = yield Spawn(give(1))
        for effect in (
            lambda: Spawn(give),
            lambda: Shield(give),
            lambda: WithSemaphore(sem, give),
            lambda: WithHandler(int, print, give),
        ):
            with pytest.raises(TypeError, match="a program is needed, not function: decorate .* with @do, and call it"):
                yield effect()
        for effect in (Wait, Gather, Race, lambda function: Gather(task, function)):
            with pytest.raises(TypeError, match="not function: decorate it with @do, call it, and Spawn the result"):
                yield effect(give)
            with pytest.raises(TypeError, match="a Task or a Future is needed here, not Program: Spawn it"):
                yield effect(give(1))
            with pytest.raises(TypeError, match="a Task or a Future is needed here, not int$"):
                yield effect(5)
        yield Wait(task)

    run(main())


def test_waiting_for_a_promise_itself_names_its_future() -> None:
    @do
    def main():
        for create in (CreatePromise(), CreateExternalPromise()):
            promise = yield create
            for effect in (Wait, Gather, Race):
                with pytest.raises(TypeError, match="not (External)?Promise: use promise.future$"):
                    yield effect(promise)
        return "caught"

    assert run(main()) == "caught"


def test_exceptions_in_the_cleanup_of_abandoned_tasks_are_reported(monkeypatch) -> None:
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", lambda hook_args: unraisable.append(hook_args.exc_value))

    @do
    def child():
        try:
            yield Delay(1)
        finally:
            raise LookupError("while cleaning up")

    @do
    def main():
        yield Spawn(child(), daemon=True)
        return "value"

    assert run(main()) == "value"
    assert [str(error) for error in unraisable] == ["while cleaning up"]


def test_a_program_with_wrong_arguments_fails_where_it_is_run() -> None:
    @do
    def main():
        with pytest.raises(TypeError, match="positional argument"):
            yield give()
        task = yield Spawn(give(1, 2))
        with pytest.raises(TypeError, match="positional argument"):
            yield Wait(task)

    run(main())
    with pytest.raises(TypeError, match="positional argument"):
        run(give())


def test_abandoned_tasks_are_closed_in_the_order_they_were_spawned() -> None:
    order = []

    @do
    def child(number):
        try:
            yield Delay(1)
        finally:
            order.append(number)

    @do
    def main():
        for number in range(100):
            yield Spawn(child(number), daemon=True)

    run(main())
    assert order == list(range(100))
