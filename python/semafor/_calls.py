"""How a call of the engine is awaited: see `Call` in `_native.pyi`."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from ._native import Call

T = TypeVar("T")

# How long a cancelled task waits for Redis to hear of it. What is not given back by then is given back later.
LONGEST_LEAVE = 10.0


async def settle(call: Call[T]) -> T:
    """The answer. Whoever is cancelled meanwhile has given everything back when the exception comes out of here."""
    loop = asyncio.get_running_loop()
    waiting = _waiting(loop) if call.is_sure else set()
    cancelled: asyncio.CancelledError | None = None
    deadline = 0.0
    while True:
        woken = loop.create_future()
        if call.poll(loop, woken):
            break
        timer = None
        if cancelled is not None:
            if loop.time() >= deadline:
                call.abandon()
                break
            timer = loop.call_at(deadline, _wake, woken)
        waiting.add(woken)
        try:
            await woken
        except asyncio.CancelledError as error:
            if cancelled is None:
                cancelled = error
                deadline = loop.time() + LONGEST_LEAVE
            call.leave()
        except BaseException:
            # The coroutine is closed, and may not wait any more.
            call.abandon()
            raise
        finally:
            waiting.discard(woken)
            if timer is not None:
                timer.cancel()
    if cancelled is not None:
        call.abandon()
        raise cancelled
    return call.answer()


def _waiting(loop: asyncio.AbstractEventLoop) -> set[asyncio.Future[Any]]:
    """What tasks of the loop wait for. The engine keeps none of them alive; so the loop does, as it keeps those who sleep."""
    kept = getattr(loop, "__dict__", None)
    return set() if kept is None else kept.setdefault("_semafor_waiting", set())


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
