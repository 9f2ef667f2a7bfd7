"""Awaits calls to the Rust engine: see `Call` in `_native.pyi`."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from ._native import Call

T = TypeVar("T")

# How many seconds a cancelled task waits for the home to confirm that it left the line or released its slot. Without a
# reply in time, that happens later, in the background.
CANCEL_TIMEOUT = 10.0


async def await_call(call: Call[T]) -> T:
    """Awaits the call and returns its result.

    If the task is cancelled meanwhile, it has left the line or released its slot when `CancelledError` is raised.
    """
    loop = asyncio.get_running_loop()
    waiting = _waiting(loop) if call.surely_ends else set()
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
                deadline = loop.time() + CANCEL_TIMEOUT
            call.cancel()
        except BaseException:
            # The coroutine is being closed: it must not await anything.
            call.abandon()
            raise
        finally:
            waiting.discard(woken)
            if timer is not None:
                timer.cancel()
    if cancelled is not None:
        call.abandon()
        raise cancelled
    return call.result()


def _waiting(loop: asyncio.AbstractEventLoop) -> set[asyncio.Future[Any]]:
    """Returns the futures that tasks of the loop await.

    The engine has only weak references to them. This set, an attribute of the loop, keeps them alive, as the loop does
    for tasks in `asyncio.sleep`.
    """
    attributes = getattr(loop, "__dict__", None)
    return set() if attributes is None else attributes.setdefault("_semafor_waiting", set())


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
