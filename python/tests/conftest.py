"""Fixtures and helpers: event loops, names, a Redis server, an agent, scripts, and the other library."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from semafor import RedisConfig, _native
from time_limit import pytest_configure, pytest_runtest_protocol, pytest_unconfigure  # noqa: F401 (hooks)

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

# How long to wait for something that must happen, in seconds. Large, because no test measures time with it.
PATIENCE = 30.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Runs a coroutine in an event loop of its own."""
    new_loop = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(program: Coroutine[Any, Any, T]) -> T:
        loop = new_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(program, PATIENCE))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return request.node.nodeid


async def until(condition: Callable[[], object]) -> None:
    """Polls until the condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        await asyncio.sleep(0.001)


async def waiting(sem: Any, count: int) -> None:
    """Waits until there are so many waiters."""
    deadline = time.monotonic() + PATIENCE
    while len(await sem.waiters()) != count:
        assert time.monotonic() < deadline, f"{len(await sem.waiters())} waiters, not {count}"
        await asyncio.sleep(0.001)


class RedisServer:
    """A Redis server for tests, on a free port of the loopback interface."""

    # The fixture below stops these at the end of each test.
    started: list[RedisServer] = []

    def __init__(self, folder: Path, port: int | None = None):
        program = shutil.which("redis-server")
        assert program, "redis-server is missing: apt-get install redis-server"
        is_up = False
        while not is_up:
            self.port = free_port() if port is None else port
            settings = {"bind": "127.0.0.1", "port": self.port, "dir": folder, "save": "", "appendonly": "no"}
            words = [str(word) for key, value in settings.items() for word in (f"--{key}", value)]
            self.process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
            is_up = self._wait_until_up()
            assert is_up or port is None, f"redis-server exited: is port {port} in use?"
        self.started.append(self)

    def _wait_until_up(self) -> bool:
        """Returns False if the server exited, because another process took the port first."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            try:
                if f"process_id:{self.process.pid}" in self.reply("INFO", "server"):
                    return True
            except OSError:
                pass
            assert time.monotonic() < deadline, "redis-server does not reply"
            time.sleep(0.01)
        return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def config(self, **changes: Any) -> RedisConfig:
        return RedisConfig(url=self.url, **changes)

    def ask(self, *words: str) -> str:
        """Sends a command and returns the first line of the reply."""
        return self.reply(*words).splitlines()[0]

    def reply(self, *words: str) -> str:
        command = "".join([f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)])
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            connection.sendall(f"{command}QUIT\r\n".encode())
            return connection.makefile().read()

    def holders(self, name: str) -> int:
        return int(self.ask("ZCARD", f"adv-sem:semaphore_main:{name}").lstrip(":"))

    def waiters(self, name: str) -> int:
        return int(self.ask("ZCARD", f"adv-sem:semaphore_waiting:{name}").lstrip(":"))

    def scripts(self) -> int:
        """The number of scripts that the server has run."""
        return sum(calls for calls, _ in self.script_stats())

    def script_time(self) -> int:
        """The time that the server has spent in scripts, in microseconds."""
        return sum(usec for _, usec in self.script_stats())

    def script_stats(self) -> list[tuple[int, int]]:
        lines = [line for line in self.reply("INFO", "commandstats").splitlines() if line.startswith("cmdstat_eval")]
        fields = [dict(field.split("=") for field in line.split(":")[1].split(",")) for line in lines]
        return [(int(field["calls"]), int(field["usec"])) for field in fields]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(autouse=True)
def stop_servers_of_the_test() -> Iterator[None]:
    """Stops them even if the test fails."""
    yield
    while RedisServer.started:
        RedisServer.started.pop().stop()


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    RedisServer.started.remove(server)
    yield server
    server.stop()


class Agent:
    """The agent of a directory. The first test that needs the agent starts it."""

    def __init__(self, directory: Path):
        self.directory = directory

    def ask(self, *words: str) -> str:
        command = Path(sys.executable).with_name("semafor")
        asked = [command, *words, "--url", f"local:{self.directory}"]
        return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("agent"))
    yield agent
    # Releases all slots: a slot that is still held would start another agent.
    _native.at_exit()
    agent.ask("agent", "stop", "--force")


@pytest.fixture(scope="session")
def other_python() -> str:
    """A Python that has `asyncio-advanced-semaphores`, which needs a newer Python than this package."""
    python = os.environ.get("SEMAFOR_WIRE_PYTHON")
    assert python, "SEMAFOR_WIRE_PYTHON is not set: `cargo xtask test python` sets it"
    return python


class Script:
    """A Python program in a process of its own. It prints lines, and continues when it reads one."""

    def __init__(self, python: str, text: str, *args: str):
        self.process = subprocess.Popen(
            [python, "-u", "-c", text, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def expect_line(self, expected: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == expected

    def resume(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait_for_exit(self) -> int:
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    started: list[Script] = []

    def start(text: str, *args: str, python: str = sys.executable) -> Script:
        started.append(Script(python, text, *args))
        return started[-1]

    yield start
    for script in started:
        script.process.kill()
        script.process.communicate()
