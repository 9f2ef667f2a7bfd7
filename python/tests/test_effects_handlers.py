"""Effects of the program's own, and their handlers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from semafor import effects
from semafor.effects import Delay, Now, Spawn, TaskCancelledError, Cancel, Wait, WithHandler, do, run


@dataclass(frozen=True)
class Ask:
    key: str


class AskLoudly(Ask):
    pass


@do
def ask(key):
    return (yield Ask(key))


def answers(**known):
    @do
    def answer(effect):
        if effect.key in known:
            return known[effect.key]
        return (yield effect)

    return answer


def test_a_handler_answers() -> None:
    @do
    def main():
        return (yield WithHandler(Ask, answers(number=21), double()))

    @do
    def double():
        return (yield ask("number")) * 2

    assert run(main()) == 42


def test_an_effect_without_a_handler_is_an_error_at_the_yield() -> None:
    @do
    def main():
        with pytest.raises(TypeError, match="Ask is neither an effect nor a program, and has no handler here"):
            yield Ask("number")
        yield WithHandler(Ask, answers(number=1), ask("number"))
        with pytest.raises(TypeError):
            yield Ask("number")

    run(main())


def test_the_innermost_handler_answers_and_may_ask_the_next() -> None:
    @do
    def main():
        return (yield WithHandler(Ask, answers(x="outer x", y="outer y"), middle()))

    @do
    def middle():
        return (yield WithHandler(Ask, answers(x="inner x"), both()))

    @do
    def both():
        return (yield Ask("x")), (yield Ask("y"))

    assert run(main()) == ("inner x", "outer y")


def test_a_handler_may_be_a_plain_function_and_may_raise() -> None:
    @do
    def main():
        assert (yield WithHandler(Ask, lambda effect: effect.key.upper(), ask("x"))) == "X"

        def refuse(effect):
            raise LookupError(effect.key)

        with pytest.raises(LookupError, match="y"):
            yield WithHandler(Ask, refuse, ask("y"))

    run(main())


def test_a_handler_may_wait() -> None:
    @do
    def slowly(effect):
        yield Delay(2)
        return effect.key, (yield Now())

    assert run(ask_with(slowly)) == ("x", 2)


def ask_with(handler):
    @do
    def main():
        return (yield WithHandler(Ask, handler, ask("x")))

    return main()


def test_handlers_are_found_by_class_and_its_subclasses() -> None:
    @do
    def main():
        return (yield WithHandler(Ask, answers(x="answered"), loud()))

    @do
    def loud():
        return (yield AskLoudly("x"))

    assert run(main()) == "answered"


def test_tasks_inherit_the_handlers_of_their_parent() -> None:
    @do
    def main():
        task = yield WithHandler(Ask, answers(x="inherited"), spawner())
        with pytest.raises(TypeError):
            yield Ask("x")
        return (yield Wait(task))

    @do
    def spawner():
        return (yield Spawn(late()))

    @do
    def late():
        yield Delay(1)
        return (yield Ask("x"))

    assert run(main()) == "inherited"


def test_the_state_of_a_handler_is_shared_by_tasks() -> None:
    state = {"count": 0}

    @dataclass
    class Add:
        amount: int

    def add(effect):
        state["count"] += effect.amount
        return state["count"]

    @do
    def child():
        return (yield Add(1))

    @do
    def family():
        tasks = [(yield Spawn(child())), (yield Spawn(child()))]
        return [(yield Wait(tasks[0])), (yield Wait(tasks[1]))]

    @do
    def main():
        return (yield WithHandler(Add, add, family()))

    assert run(main()) == [1, 2]


def test_cancellation_within_a_handler_reaches_the_program() -> None:
    @do
    def forever(effect):
        yield Delay(3600)

    @do
    def asks():
        try:
            yield Ask("x")
        except TaskCancelledError:
            return "cancelled"

    @do
    def handled():
        return (yield WithHandler(Ask, forever, asks()))

    @do
    def main():
        task = yield Spawn(handled())
        yield Cancel(task)
        return (yield Wait(task))

    assert run(main()) == "cancelled"


def test_handlers_may_be_nested_deep() -> None:
    @do
    def nest(levels):
        if levels:
            return (yield WithHandler(Ask, answers(), nest(levels - 1)))
        return "deep"

    assert run(nest(10_000)) == "deep"


@pytest.mark.parametrize("effect", ["Now", "AcquireSemaphore", "Spawn", "Delay", "Log", "Shield", "WithHandler"])
def test_a_built_in_effect_cannot_be_handled(effect) -> None:
    @do
    def program():
        yield Delay(1)

    @do
    def main():
        with pytest.raises(TypeError, match=f"^{effect} is a built-in effect, which can't be handled"):
            yield WithHandler(getattr(effects, effect), print, program())
        return "caught"

    assert run(main()) == "caught"
