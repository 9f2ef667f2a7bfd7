"""Heartbeats need neither the event loop nor the interpreter lock."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable

import pytest
from conftest import RedisServer
from semafor import RedisSemaphore

HEARTBEAT = 1


@pytest.mark.parametrize(
    "block",
    [time.sleep, ctypes.PyDLL(None).sleep],
    ids=["the event loop", "the interpreter"],
)
def test_blocked_holder_keeps_its_slot(redis: RedisServer, name: str, block: Callable[[int], object]) -> None:
    async def program() -> None:
        sem = RedisSemaphore(name=name, value=1, config=redis.config(), heartbeat_max_interval=HEARTBEAT)
        async with sem.cm() as result:
            block(3 * HEARTBEAT + 1)
            assert not result.lost.is_set()
            assert [holder.acquisition_id for holder in await sem.holders()] == [result.acquisition_id]
            assert not result.lost.is_set()

    asyncio.run(program())
