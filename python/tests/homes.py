"""A fixture that runs a test on every home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Agent, RedisServer
from semafor import LocalSemaphore, MemorySemaphore, RedisSemaphore, Semaphore

New = Callable[..., Semaphore]


@pytest.fixture(params=["memory", "local", "redis"])
def new(request: pytest.FixtureRequest, name: str) -> New:
    """Returns a function that opens the semaphore of the test."""
    if request.param == "memory":
        return lambda **given: MemorySemaphore(**{"name": name, "value": 1, **given})
    if request.param == "local":
        agent: Agent = request.getfixturevalue("agent")
        return lambda **given: LocalSemaphore(**{"name": name, "value": 1, "directory": agent.directory, **given})
    redis: RedisServer = request.getfixturevalue("redis")
    return lambda **given: RedisSemaphore(**{"name": name, "value": 1, "config": redis.config(), **given})


def stats_arguments(sem: Semaphore) -> dict[str, Any]:
    """The arguments of `get_acquired_stats` that say where the semaphore is."""
    if isinstance(sem, LocalSemaphore):
        return {"directory": sem.directory}
    return {"config": sem.config} if isinstance(sem, RedisSemaphore) else {}
