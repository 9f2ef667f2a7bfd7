"""Errors of an effect are raised where it is yielded, and can be caught there."""

from __future__ import annotations

import math

import pytest
from semafor.effects import (
    AcquireSemaphore,
    Cancel,
    CompletePromise,
    CreateExternalPromise,
    CreatePromise,
    CreateSemaphore,
    Delay,
    FailPromise,
    Gather,
    Race,
    ReleaseSemaphore,
    Shield,
    Spawn,
    TryAcquire,
    Wait,
    WithHandler,
    WithSemaphore,
    do,
    explore,
    run,
)


@do
def nothing():
    yield Delay(0)


WRONG_TYPES = [
    lambda sem: AcquireSemaphore(3),
    lambda sem: AcquireSemaphore(sem, weight=1.5),
    lambda sem: AcquireSemaphore(sem, weight=True),
    lambda sem: AcquireSemaphore(sem, timeout="soon"),
    lambda sem: ReleaseSemaphore(None),
    lambda sem: TryAcquire("sem"),
    lambda sem: WithSemaphore(sem, 3),
    lambda sem: WithSemaphore(3, nothing()),
    lambda sem: CreateSemaphore(1, name=3),
    lambda sem: Spawn(nothing),
    lambda sem: Spawn(nothing(), priority="high"),
    lambda sem: Spawn(nothing(), name=3),
    lambda sem: Wait(sem),
    lambda sem: Wait(nothing()),
    lambda sem: Gather(3),
    lambda sem: Race(Wait(3)),
    lambda sem: Cancel(sem),
    lambda sem: CompletePromise(sem, 1),
    lambda sem: FailPromise(sem, KeyError()),
    lambda sem: Delay("1"),
    lambda sem: Delay(None),
    lambda sem: Shield(3),
    lambda sem: WithHandler(3, print, nothing()),
    lambda sem: WithHandler(int, print, 3),
    lambda sem: 3,
    lambda sem: None,
    lambda sem: nothing,
    lambda sem: AcquireSemaphore,
]


@pytest.mark.parametrize("wrong", WRONG_TYPES)
def test_wrong_types_raise_type_error(wrong) -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        effect = wrong(sem)
        with pytest.raises(TypeError) as caught:
            yield effect
        # The semaphore is unchanged.
        yield AcquireSemaphore(sem)
        yield ReleaseSemaphore(sem)
        return str(caught.value)

    assert run(main())


WRONG_VALUES = [
    lambda sem: AcquireSemaphore(sem, weight=0),
    lambda sem: AcquireSemaphore(sem, weight=-1),
    lambda sem: AcquireSemaphore(sem, weight=2),
    lambda sem: AcquireSemaphore(sem, weight=2**40),
    lambda sem: CreateSemaphore(2**32),
    lambda sem: CreateSemaphore(2**100),
    lambda sem: Spawn(nothing(), priority=7),
    lambda sem: Delay(-1),
    lambda sem: Delay(math.nan),
    lambda sem: Delay(math.inf),
    lambda sem: Race(),
]


@pytest.mark.parametrize("wrong", WRONG_VALUES)
def test_wrong_values_raise_value_error(wrong) -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        effect = wrong(sem)
        with pytest.raises(ValueError):
            yield effect
        yield AcquireSemaphore(sem)
        yield ReleaseSemaphore(sem)
        return "continues"

    assert run(main()) == "continues"


@pytest.mark.parametrize("seconds", [-1, math.nan])
def test_a_wrong_timeout_is_an_error_even_if_the_semaphore_is_free(seconds) -> None:
    @do
    def main():
        sem = yield CreateSemaphore(1)
        with pytest.raises(ValueError, match="seconds"):
            yield AcquireSemaphore(sem, timeout=seconds)

    run(main())


def test_effects_cannot_complete_an_external_promise() -> None:
    @do
    def main():
        promise = yield CreateExternalPromise()
        for effect in (CompletePromise(promise, 1), FailPromise(promise, KeyError())):
            with pytest.raises(RuntimeError, match="external"):
                yield effect

    run(main())


def test_a_promise_can_only_fail_with_an_exception() -> None:
    @do
    def main():
        promise = yield CreatePromise()
        with pytest.raises(TypeError, match="exception"):
            yield FailPromise(promise, "no")
        external = yield CreateExternalPromise()
        with pytest.raises(TypeError, match="exception"):
            external.fail(3)

    run(main())


def test_the_error_is_raised_in_the_program_that_yielded() -> None:
    @do
    def inner():
        with pytest.raises(ValueError):
            yield CreateSemaphore(0)
        yield CreateSemaphore(-1)

    @do
    def outer():
        with pytest.raises(ValueError, match="permits"):
            yield inner()
        return "caught outside"

    assert run(outer()) == "caught outside"


def test_the_traceback_shows_the_program() -> None:
    @do
    def inner():
        yield CreateSemaphore(0)

    @do
    def outer():
        yield inner()

    with pytest.raises(ValueError) as caught:
        run(outer())
    names = [entry.name for entry in caught.traceback]
    assert names[-2:] == ["outer", "inner"]


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="virtual, real"):
        run(nothing(), clock="unknown")
    with pytest.raises(ValueError, match="holders, global, off"):
        run(nothing(), deadlocks="some")
    with pytest.raises(ValueError, match="not a trace"):
        run(nothing(), replay="nonsense")
    with pytest.raises(ValueError, match="pass only one of them"):
        run(nothing(), replay="1:", seed=3)
    with pytest.raises(ValueError, match="exhaustive"):
        explore(nothing(), search="unknown")
    with pytest.raises(TypeError, match="can be run once"):
        explore((lambda: (yield Delay(0)))())
