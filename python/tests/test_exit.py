"""An exiting interpreter neither hangs nor leaves a slot held."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from conftest import Agent, RedisServer, until
from semafor import LocalSemaphore, RedisSemaphore, Semaphore

BEGIN = """
import asyncio, os, sys, threading
from semafor import LocalSemaphore, MemorySemaphore, RedisConfig, RedisSemaphore

place, name, home = sys.argv[1:]
if home == "memory":
    sem = MemorySemaphore(name=name, value=2)
elif home == "local":
    sem = LocalSemaphore(name=name, value=2, directory=place)
else:
    sem = RedisSemaphore(name=name, value=2, config=RedisConfig(url=place))

async def one_waiter():
    while len(await sem.waiters()) != 1:
        await asyncio.sleep(0.001)
"""

# Each program holds two slots and has one waiter.
ENDINGS = {
    "in the middle of an acquire": """
async def main():
    await sem.acquire()
    async with sem.cm():
        line = asyncio.create_task(sem.acquire())
        await one_waiter()
        print("ready")
        sys.stdin.readline()
        sys.exit(7)
asyncio.run(main())
""",
    "while a daemon thread waits": """
async def main():
    await sem.acquire()
    async with sem.cm():
        line = asyncio.create_task(sem.acquire())
        await one_waiter()
        ready.set()
        await line
ready = threading.Event()
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
ready.wait()
print("ready")
sys.stdin.readline()
sys.exit(7)
""",
    "while a daemon thread waits without a loop": """
asyncio.run(sem.acquire())
guard = sem.sync()
guard.__enter__()
threading.Thread(target=lambda: sem.sync().__enter__(), daemon=True).start()
asyncio.run(one_waiter())
print("ready")
sys.stdin.readline()
sys.exit(7)
""",
    "with an exception": """
async def main():
    await sem.acquire()
    await sem.acquire()
    line = asyncio.create_task(sem.acquire())
    await one_waiter()
    print("ready")
    sys.stdin.readline()
    raise SystemExit(7)
asyncio.run(main())
""",
    "with a loop that is not closed": """
async def main():
    await sem.acquire()
    manager = sem.cm()
    await manager.__aenter__()
    everything.append((manager, asyncio.get_running_loop().create_task(sem.acquire())))
    await one_waiter()
everything = []
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print("ready")
sys.stdin.readline()
sys.exit(7)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_does_not_hang(script: Any, name: str, ending: str) -> None:
    program = script(BEGIN + ENDINGS[ending], "here", name, "memory")
    program.expect_line("ready")
    program.resume()
    assert program.wait_for_exit() == 7


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_releases_slots_of_the_local_home(agent: Agent, script: Any, name: str, ending: str) -> None:
    program = script(BEGIN + ENDINGS[ending], str(agent.directory), name, "local")
    program.expect_line("ready")
    sem = LocalSemaphore(name=name, value=2, directory=agent.directory)
    assert held_and_waiting(sem) == (2, 1)
    program.resume()
    assert program.wait_for_exit() == 7
    assert held_and_waiting(sem) == (0, 0)


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_releases_slots_on_redis(redis: RedisServer, script: Any, name: str, ending: str) -> None:
    program = script(BEGIN + ENDINGS[ending], redis.url, name, "redis")
    program.expect_line("ready")
    sem = RedisSemaphore(name=name, value=2, config=redis.config())
    assert held_and_waiting(sem) == (2, 1)
    program.resume()
    assert program.wait_for_exit() == 7
    assert held_and_waiting(sem) == (0, 0)


# Holds two slots and has thousands of waiters when the interpreter exits.
THOUSANDS = """
async def main():
    await sem.acquire()
    await sem.acquire()
    loop = asyncio.get_running_loop()
    everything.extend(loop.create_task(sem.acquire()) for _ in range(int(sys.argv[4])))
    while len(await sem.waiters()) != len(everything):
        await asyncio.sleep(0.01)
everything = []
"""
ENDINGS_WITH_THOUSANDS = {
    "with a loop that is not closed": THOUSANDS
    + """
asyncio.new_event_loop().run_until_complete(main())
print("ready")
sys.stdin.readline()
""",
    "with a loop that is closed": THOUSANDS
    + """
async def then_exit():
    await main()
    print("ready")
    sys.stdin.readline()
asyncio.run(then_exit())
""",
}


@pytest.mark.parametrize("ending", ENDINGS_WITH_THOUSANDS)
def test_exit_with_thousands_of_waiters_leaves_none_in_line(
    redis: RedisServer, script: Any, name: str, ending: str
) -> None:
    waiters = os.environ.get("SEMAFOR_WAITERS", "2000")
    begin = BEGIN.replace("place, name, home = sys.argv[1:]", "place, name, home = sys.argv[1:4]")
    program = script(begin + ENDINGS_WITH_THOUSANDS[ending], redis.url, name, "redis", waiters)
    program.expect_line("ready")
    assert (redis.holders(name), redis.waiters(name)) == (2, int(waiters))
    before = redis.scripts()
    program.resume()
    assert program.wait_for_exit() == 0
    assert (redis.holders(name), redis.waiters(name)) == (0, 0)
    calls = redis.scripts() - before
    assert calls < int(waiters) / 4, f"{calls} calls for {waiters} waiters: they must leave in batches"


def held_and_waiting(sem: Semaphore) -> tuple[int, int]:
    async def count() -> tuple[int, int]:
        return len(await sem.holders()), len(await sem.waiters())

    return asyncio.run(count())


def test_exit_without_a_server_does_not_hang(tmp_path: Any, script: Any, name: str) -> None:
    server = RedisServer(tmp_path)
    program = script(BEGIN + ENDINGS["while a daemon thread waits"], server.url, name, "redis")
    program.expect_line("ready")
    server.stop()
    program.resume()
    assert program.wait_for_exit() == 7


def test_acquire_in_an_exit_hook_does_not_crash(redis: RedisServer, script: Any, name: str) -> None:
    text = "import atexit\n" + "atexit.register(lambda: print(asyncio.run(late())))\n"
    late = """
async def late():
    async with sem.cm():
        return "late"
"""
    program = script(text + BEGIN + late, redis.url, name, "memory")
    program.expect_line("late")
    assert program.wait_for_exit() == 0


def test_ctrl_c_reaches_a_thread_that_waits(redis: RedisServer, script: Any, name: str) -> None:
    import signal

    text = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
with sem.sync(weight=2):
    print("ready")
    try:
        sem.sync().__enter__()
    except KeyboardInterrupt:
        print("interrupted")
"""
    program = script(BEGIN + text, redis.url, name, "redis")
    program.expect_line("ready")
    asyncio.run(until(lambda: redis.waiters(name) == 1))
    program.process.send_signal(signal.SIGINT)
    program.expect_line("interrupted")
    assert program.wait_for_exit() == 0
    assert (redis.holders(name), redis.waiters(name)) == (0, 0)
