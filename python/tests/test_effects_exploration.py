"""Failures in other orders are found, simplified and replayed."""

from __future__ import annotations

import pytest
from semafor.effects import (
    AcquireSemaphore,
    CreateSemaphore,
    Delay,
    Gather,
    ReleaseSemaphore,
    SchedulerDeadlockError,
    Spawn,
    Wait,
    Yield,
    do,
    explore,
    outcome_of,
    run,
)


@do
def transfer(one, other):
    yield AcquireSemaphore(one)
    yield AcquireSemaphore(other)
    yield ReleaseSemaphore(other)
    yield ReleaseSemaphore(one)


@do
def bank():
    a = yield CreateSemaphore(1, name="a")
    b = yield CreateSemaphore(1, name="b")
    there = yield Spawn(transfer(a, b), name="there")
    back = yield Spawn(transfer(b, a), name="back")
    yield Gather(there, back)


@do
def increment(account):
    seen = account["money"]
    yield Yield()
    account["money"] = seen + 1


@do
def lost_update():
    account = {"money": 0}
    tasks = [(yield Spawn(increment(account))), (yield Spawn(increment(account)))]
    yield Gather(*tasks)
    assert account["money"] == 2, account


@pytest.mark.parametrize("search", ["random", "pct", "exhaustive"])
def test_a_deadlock_is_found_and_replayed(search) -> None:
    assert run(bank()) is None  # the default order works
    exploration = explore(bank(), schedules=2000, search=search)
    failure = exploration.failure
    assert failure is not None
    assert isinstance(failure.error, SchedulerDeadlockError)
    assert {link.task for link in failure.error.links} == {"there (task 2)", "back (task 3)"}
    assert ".rs" not in failure.message
    assert all("in transfer" in link.at for link in failure.error.links)
    for trace in (failure.trace, failure.found):
        with pytest.raises(SchedulerDeadlockError) as again:
            run(bank(), replay=trace)
    assert str(again.value).splitlines()[0] == str(failure.error).splitlines()[0]
    assert failure.trace in str(failure)
    with pytest.raises(AssertionError, match="replay it with"):
        exploration.assert_holds()


def replay(exploration, program) -> None:
    """Runs the call that the exploration prints."""
    line = str(exploration).splitlines()[-1]
    call = line.removeprefix("replay it with ")
    assert call != line
    eval(call, {"run": run, "program": program})


@pytest.mark.filterwarnings("ignore:.*(unreleased|deadlock)")
def test_the_printed_replay_finds_a_deadlock_of_holders() -> None:
    """With the default of `run`, this is not a deadlock: the root could release."""

    @do
    def main():
        a = yield CreateSemaphore(1)
        b = yield CreateSemaphore(1)
        yield Spawn(transfer(a, b))
        yield Spawn(transfer(b, a))
        for _ in range(10):
            yield Delay(1)

    exploration = explore(main(), 2000, deadlocks="holders")
    assert exploration.failure is not None
    assert exploration.failure.options == {"deadlocks": "holders"}
    outcome = outcome_of(main(), replay=exploration.failure.trace, **exploration.failure.options)
    assert any(isinstance(each.error, SchedulerDeadlockError) for each in outcome.unobserved)
    with pytest.warns(RuntimeWarning, match="deadlock: 2 tasks wait in a circle"):
        replay(exploration, main())


def test_the_printed_replay_of_an_endless_program_ends() -> None:
    @do
    def endless():
        while True:
            yield Yield()

    for limit in ({}, {"max_steps": 50}):
        exploration = explore(endless(), 3, **limit)
        assert exploration.failure.options == {"max_steps": 100_000, **limit}
        with pytest.raises(RuntimeError, match="had not ended after (100000|50) steps"):
            replay(exploration, endless())


def test_the_printed_replay_has_the_clock() -> None:
    @do
    def main():
        yield Delay(0)
        raise KeyError

    exploration = explore(main(), 1, clock="real", deadlocks="off", max_steps=50)
    assert str(exploration).endswith(", clock='real', deadlocks='off')")
    with pytest.raises(KeyError):
        replay(exploration, main())


def test_a_lost_update_is_found_with_its_own_exception() -> None:
    @do
    def main():
        yield lost_update()

    failure = explore(main(), schedules=2000).failure
    assert failure is not None and isinstance(failure.error, AssertionError)
    with pytest.raises(AssertionError, match="money"):
        run(main(), replay=failure.trace)


def test_an_unobserved_failure_counts_as_a_failure() -> None:
    @do
    def child():
        yield Yield()
        raise KeyError("unseen")

    @do
    def main():
        yield Spawn(child())
        yield Delay(1)

    failure = explore(main(), schedules=10).failure
    assert failure is not None and failure.error is None
    assert "no task waited for it: KeyError: 'unseen'" in failure.message


def test_an_unreleased_permit_counts_as_a_failure() -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        yield AcquireSemaphore(sem)

    failure = explore(main(), schedules=10).failure
    assert failure is not None and failure.message == "root ended with 1 unreleased of semaphore 0"


def test_a_correct_program_holds_in_every_order() -> None:
    @do
    def visit(sem, inside):
        yield AcquireSemaphore(sem)
        inside.append(1)
        assert len(inside) == 1
        yield Yield()
        inside.pop()
        yield ReleaseSemaphore(sem)

    @do
    def main():
        sem = yield CreateSemaphore(1)
        inside = []
        tasks = [(yield Spawn(visit(sem, inside))), (yield Spawn(visit(sem, inside)))]
        yield Gather(*tasks)

    exploration = explore(main(), schedules=100_000, search="exhaustive", preemptions=2)
    exploration.assert_holds()
    assert exploration.is_complete
    assert exploration.schedules > 10


def test_a_seed_gives_the_same_order_each_time() -> None:
    @do
    def child(order, name):
        for _ in range(5):
            order.append(name)
            yield Yield()

    @do
    def main():
        order = []
        tasks = []
        for name in "abc":
            tasks.append((yield Spawn(child(order, name))))
        yield Gather(*tasks)
        return "".join(order)

    orders = {seed: outcome_of(main(), seed=seed) for seed in range(10)}
    assert len({outcome.value for outcome in orders.values()}) > 1
    for seed, outcome in orders.items():
        assert run(main(), seed=seed) == outcome.value
        assert run(main(), replay=outcome.trace) == outcome.value


def test_an_interrupt_ends_the_exploration() -> None:
    runs = []

    @do
    def main():
        runs.append(1)
        yield Yield()
        if len(runs) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(main(), schedules=100)
    assert len(runs) == 3


def test_wait_returns_the_value_in_every_order() -> None:
    @do
    def child():
        yield Yield()
        return "value"

    @do
    def main():
        task = yield Spawn(child())
        assert (yield Wait(task)) == "value"

    explore(main(), schedules=100).assert_holds()


@pytest.mark.parametrize(
    "schedules, error",
    [(0, ValueError), (-1, ValueError), (2**64, ValueError), ("3", TypeError), (True, TypeError)],
)
def test_an_invalid_number_of_schedules_is_refused(schedules, error) -> None:
    with pytest.raises(error, match=r"schedules must be (an int of )?(at least|from) 1"):
        explore(bank(), schedules)


def test_the_text_of_an_exploration_says_what_was_found() -> None:
    @do
    def nothing():
        yield Yield()

    assert str(explore(nothing(), 3)) == "no failure in 3 schedules, and there may be others"
    assert str(explore(nothing(), search="exhaustive")) == "no failure in 1 schedule, and there are no others"
    exploration = explore(bank(), 1000)
    said = str(exploration).splitlines()
    fails = f"schedule {exploration.schedules} of the program fails: SchedulerDeadlockError: "
    assert said[0] == fails + "deadlock: 2 tasks wait in a circle"
    assert said[-1] == f"replay it with run(program, replay={exploration.failure.trace!r})"
