"""The examples of the specification of the Redis semaphore, verbatim except for the import and the address."""

from __future__ import annotations

from typing import Any

from conftest import RedisServer
from semafor import RedisConfig, RedisSemaphore, SemaphoreStats


def test_usage_example(run: Any, redis: RedisServer) -> None:
    async def example() -> None:
        # Configure Redis connection
        config = RedisConfig(
            url=redis.url,
            namespace="my-app"
        )  # fmt: skip

        # Create semaphore
        sem = RedisSemaphore(
            name="my-resource",
            value=5,
            ttl=300,  # 5 minutes max hold time
            max_acquire_time=60,  # 1 minute max wait
            config=config
        )  # fmt: skip

        # Use as context manager (recommended)
        async with sem.cm():
            # Do work with acquired slot
            pass

        # Or manual acquire/release
        result = await sem.acquire()
        try:
            # Do work
            pass
        finally:
            await sem.release(result.acquisition_id)

        assert await sem.holders() == []

    run(example())


def test_get_acquired_stats(run: Any, redis: RedisServer) -> None:
    async def example() -> None:
        sem = RedisSemaphore(name="my-sem", value=10, config=redis.config())
        held = [await sem.acquire() for _ in range(5)]
        stats = await RedisSemaphore.get_acquired_stats(
            names=["my-sem"],  # or None for all
            limit=100,
            config=redis.config(),
        )
        assert stats == {"my-sem": SemaphoreStats(acquired_slots=5, max_slots=10)}
        for each in held:
            await sem.release(each.acquisition_id)

    run(example())


def test_defaults() -> None:
    config = RedisConfig()
    assert (config.namespace, config.url, config.max_connections) == ("adv-sem", "redis://localhost:6379", 300)
    assert (config.socket_timeout, config.socket_connect_timeout, config.number_of_attempts) == (30, 10, 3)
    assert (config.retry_multiplier, config.retry_min_delay, config.retry_max_delay) == (2, 1, 60)
    sem = RedisSemaphore(name="defaults", value=1)
    assert (sem.max_acquire_time, sem.ttl, sem.heartbeat_max_interval, sem.config) == (None, None, 180, config)
    assert RedisSemaphore(name="defaults", value=1, ttl=60).heartbeat_max_interval == 60
