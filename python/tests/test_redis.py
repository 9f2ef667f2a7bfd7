"""The Redis home: an unreachable server, heartbeats, namespaces and several processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import RedisServer, free_port
from semafor import AcquisitionResult, MemorySemaphore, RedisConfig, RedisSemaphore, Semaphore


def test_unreachable_server_raises_connection_error(run: Any) -> None:
    async def program() -> None:
        config = RedisConfig(url="redis://127.0.0.1:1", number_of_attempts=1, socket_connect_timeout=1)
        sem = RedisSemaphore(name="nowhere", value=1, config=config)
        with pytest.raises(ConnectionError, match="127.0.0.1:1"):
            await sem.acquire()
        with pytest.raises(ConnectionError):
            await sem.locked()

    run(program())


def test_acquire_retries_until_the_server_is_up(run: Any, tmp_path: Any) -> None:
    async def program() -> None:
        port = free_port()
        url = f"redis://127.0.0.1:{port}"
        quick = RedisConfig(url=url, number_of_attempts=1000, retry_min_delay=0.001, retry_max_delay=0.01)
        acquire = asyncio.create_task(RedisSemaphore(name="early", value=1, config=quick).acquire())
        once = RedisSemaphore(name="early", value=1, config=RedisConfig(url=url, number_of_attempts=1))
        with pytest.raises(ConnectionError):
            await once.acquire()
        server = RedisServer(tmp_path, port)
        assert (await acquire).slot_number == 0
        server.stop()

    run(program())


def test_lease_that_expires_before_the_reply_is_an_error(run: Any, redis: RedisServer, name: str) -> None:
    async def program() -> None:
        sem = RedisSemaphore(name=name, value=1, config=redis.config(), ttl=0.001)
        with pytest.raises(RuntimeError, match="its time to live ran out"):
            await sem.acquire()

    run(program())


def test_invalid_url_is_refused_without_showing_secrets() -> None:
    with pytest.raises(ValueError, match="is not the URL of a Redis") as error:
        RedisConfig(url="http://localhost:secret@x")
    assert "secret" not in str(error.value)


def test_invalid_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="max_connections must be greater than 10"):
        RedisConfig(max_connections=10)
    with pytest.raises(ValueError, match="ping_interval must be lower"):
        RedisSemaphore(name="a", value=1, ping_interval=200)
    with pytest.raises(AttributeError):
        RedisConfig().namespace = "frozen"  # type: ignore[misc]
    assert hash(RedisConfig()) == hash(RedisConfig())


def test_slot_is_lost_when_the_server_dies(run: Any, tmp_path: Any) -> None:
    async def program() -> None:
        server = RedisServer(tmp_path)
        sem = RedisSemaphore(name="dies", value=1, config=server.config(), heartbeat_max_interval=2)
        held = await sem.acquire()
        server.stop()
        assert await held.lost.wait()

    run(program())


def enter(run: Any, way: str, sem: Semaphore, body: Callable[[], None]) -> None:
    async def block() -> None:
        async with sem if way == "async with sem" else sem.cm():
            body()

    if way != "sync":
        return run(block())
    with sem.sync():
        body()


WAYS = ["async with sem", "cm", "sync"]


@pytest.mark.parametrize("way", WAYS)
def test_failed_release_does_not_replace_the_exception_of_the_block(run: Any, tmp_path: Path, way: str) -> None:
    server = RedisServer(tmp_path)
    config = server.config(number_of_attempts=1, socket_connect_timeout=1)

    def body() -> None:
        server.stop()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        enter(run, way, RedisSemaphore(name="dies", value=1, config=config), body)


class Unreachable:
    """A home that grants slots, but can't be reached for a release."""

    def acquire_now(self, weight: int, by_id: bool) -> AcquisitionResult:
        return AcquisitionResult("made up", 0)

    def release_result(self, result: AcquisitionResult) -> Unreachable:
        return self

    def wait(self, interruptible: bool) -> None:
        raise ConnectionError("gone")

    def __await__(self) -> Iterator[None]:
        yield
        raise ConnectionError("gone")


@pytest.mark.parametrize("way", WAYS)
def test_failed_release_is_raised_after_a_block_without_exception(run: Any, way: str) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    sem: Any = MemorySemaphore(name="unreachable", value=1)
    sem._opened = Unreachable()
    with pytest.raises(ConnectionError, match="gone"):
        enter(run, way, sem, lambda: None)
    with pytest.raises(ZeroDivisionError):
        enter(run, way, sem, fails)


def test_namespaces_do_not_share_slots(run: Any, redis: RedisServer, name: str) -> None:
    async def program() -> None:
        one = RedisSemaphore(name=name, value=1, config=redis.config(namespace="one"))
        two = RedisSemaphore(name=name, value=1, config=redis.config(namespace="two & more"))
        async with one.cm(), two.cm():
            assert await one.locked() and await two.locked()

    with pytest.raises(ValueError, match="white space"):
        run(program())

    async def apart() -> None:
        one = RedisSemaphore(name=name, value=1, config=redis.config(namespace="one"))
        two = RedisSemaphore(name=name, value=1, config=redis.config(namespace="two&more"))
        async with one.cm(), two.cm():
            assert await one.locked() and await two.locked()

    run(apart())


def test_handoff_between_processes(redis: RedisServer, script: Any, name: str) -> None:
    text = """
import asyncio, sys
from semafor import RedisConfig, RedisSemaphore
async def main():
    sem = RedisSemaphore(name=sys.argv[2], value=1, config=RedisConfig(url=sys.argv[1]))
    async with sem.cm():
        print("held")
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""
    first, second = script(text, redis.url, name), None
    first.expect_line("held")
    second = script(text, redis.url, name)
    asyncio.run(one_waiter(redis, name))
    first.resume()
    second.expect_line("held")
    second.resume()
    assert (first.wait_for_exit(), second.wait_for_exit()) == (0, 0)


def test_killed_process_loses_its_slot(redis: RedisServer, script: Any, name: str) -> None:
    text = """
import asyncio, sys
from semafor import RedisConfig, RedisSemaphore
sem = RedisSemaphore(name=sys.argv[2], value=1, config=RedisConfig(url=sys.argv[1]), heartbeat_max_interval=2)
asyncio.run(sem.acquire())
print("held")
sys.stdin.readline()
"""
    program = script(text, redis.url, name)
    program.expect_line("held")
    program.process.kill()

    async def next_in_line() -> None:
        await RedisSemaphore(name=name, value=1, config=redis.config()).acquire()

    asyncio.run(next_in_line())


async def one_waiter(redis: RedisServer, name: str) -> None:
    while redis.waiters(name) != 1:
        await asyncio.sleep(0.001)
