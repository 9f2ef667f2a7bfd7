"""One suite of promises for every home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import RedisServer
from semafor import MemorySemaphore, RedisSemaphore, Semaphore

New = Callable[..., Semaphore]


@pytest.fixture(params=["memory", "redis"])
def new(request: pytest.FixtureRequest, name: str) -> New:
    """Opens the test's semaphore at home."""
    if request.param == "memory":
        return lambda **given: MemorySemaphore(**{"name": name, "value": 1, **given})
    redis: RedisServer = request.getfixturevalue("redis")

    def new(**given: Any) -> Semaphore:
        return RedisSemaphore(**{"name": name, "value": 1, "config": redis.config(), **given})

    return new
