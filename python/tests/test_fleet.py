"""This package, the Python library asyncio-advanced-semaphores and the command `semafor` share a name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, RedisServer

SLOTS, ROUNDS = 2, 15

# Appends a character to a shared file when it enters a block, and another one before it exits.
MEMBER = """
import asyncio, os, sys
if sys.argv[1] == "ours":
    from semafor import RedisConfig, RedisSemaphore
else:
    import logging
    from asyncio_advanced_semaphores import RedisConfig, RedisSemaphore
    logging.disable()

url, name, log, slots, rounds = sys.argv[2:]

async def main():
    sem = RedisSemaphore(name=name, value=int(slots), config=RedisConfig(url=url), heartbeat_max_interval=30)
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    async def work():
        for _ in range(int(rounds)):
            async with sem.cm():
                os.write(file, b"+")
                await asyncio.sleep(0)
                os.write(file, b"-")
    await asyncio.gather(work(), work())

asyncio.run(main())
"""


def command() -> str:
    """The command that was installed with this package."""
    return str(Path(sysconfig.get_path("scripts")) / "semafor")


@pytest.mark.other_library
def test_mixed_fleet_never_exceeds_the_slots(
    redis: RedisServer, other_python: str, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    given = [redis.url, name, str(log), str(SLOTS), str(ROUNDS)]
    members = [subprocess.Popen([sys.executable, "-c", MEMBER, "ours", *given]) for _ in range(2)]
    members += [subprocess.Popen([other_python, "-c", MEMBER, "theirs", *given]) for _ in range(2)]
    step = f"printf + >> '{log}'; printf - >> '{log}'"
    run = [command(), "run", "--url", redis.url, "--slots", str(SLOTS), "--name", name, "--", "sh", "-c", step]
    try:
        for _ in range(ROUNDS):
            subprocess.run(run, check=True, timeout=PATIENCE)
        assert [member.wait(4 * PATIENCE) for member in members] == [0] * 4
    finally:
        for member in members:
            member.kill()
            member.wait()
    inside, most = 0, 0
    for step in log.read_text():
        inside += 1 if step == "+" else -1
        most = max(most, inside)
    assert (inside, len(log.read_text())) == (0, 2 * (4 * 2 * ROUNDS + ROUNDS))
    assert most <= SLOTS
    assert (redis.holders(name), redis.waiters(name)) == (0, 0)


def test_command_shows_holders_of_the_package(redis: RedisServer, script: Any, name: str) -> None:
    holder = script(
        """
import asyncio, sys
from semafor import RedisConfig, RedisSemaphore
sem = RedisSemaphore(name=sys.argv[2], value=1, label="from python", config=RedisConfig(url=sys.argv[1]))
asyncio.run(sem.acquire())
print("held")
sys.stdin.readline()
""",
        redis.url,
        name,
    )
    holder.expect_line("held")
    inspect = [command(), "inspect", "--url", redis.url, name]
    seen = subprocess.run(inspect, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    assert "from python" in seen
    holder.resume()
    assert holder.wait_for_exit() == 0


def test_command_is_a_native_program() -> None:
    assert Path(command()).read_bytes()[:4] == b"\x7fELF"
    version = subprocess.run([command(), "--version"], check=True, capture_output=True, text=True).stdout
    assert version.startswith("semafor ")
    assert shutil.which("semafor", path=str(Path(command()).parent))
