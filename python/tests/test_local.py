"""The local home: its agent, the command that shares it, and processes that end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Agent, waiting
from semafor import LocalSemaphore

HOLDS = """
import asyncio, os, sys
from semafor import LocalSemaphore
sem = LocalSemaphore(name=sys.argv[2], value=1, directory=sys.argv[1])
asyncio.run(sem.acquire())
"""


def test_command_shares_the_slots(agent: Agent, name: str) -> None:
    sem = LocalSemaphore(name=name, value=1, directory=agent.directory)

    async def program() -> None:
        held = await sem.acquire()
        seen = agent.ask("inspect", name)
        assert held.acquisition_id in seen and str(os.getpid()) in seen
        command = Path(sys.executable).with_name("semafor")
        run = [command, "run", "--url", f"local:{agent.directory}", "--name", name, "--", "echo", "its turn"]
        other = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
        await waiting(sem, 1)
        await sem.release(held.acquisition_id)
        assert other.communicate(timeout=PATIENCE) == ("its turn\n", None)

    asyncio.run(program())


def test_killed_process_releases_its_slot(agent: Agent, script: Any, name: str) -> None:
    program = script(HOLDS + "print('held')\nsys.stdin.readline()", str(agent.directory), name)
    program.expect_line("held")
    program.process.kill()
    asyncio.run(LocalSemaphore(name=name, value=1, directory=agent.directory).acquire())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_does_not_keep_the_slot_of_its_parent(agent: Agent, script: Any, name: str) -> None:
    fork = """
if os.fork() == 0:
    print(os.getpid())
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""
    program = script(HOLDS + fork, str(agent.directory), name)
    child = int(program.process.stdout.readline())
    program.process.kill()
    asyncio.run(LocalSemaphore(name=name, value=1, directory=agent.directory).acquire())
    os.kill(child, signal.SIGKILL)


def test_slot_is_lost_when_the_agent_stops(run: Any, tmp_path: Path) -> None:
    async def program() -> None:
        sem = LocalSemaphore(name="dies", value=1, directory=tmp_path)
        held = await sem.acquire()
        Agent(tmp_path).ask("agent", "stop", "--force")
        assert await held.lost.wait()
        await sem.release(held.acquisition_id)
        # The next acquire starts a new agent.
        async with sem.cm():
            assert len(await sem.holders()) == 1
        Agent(tmp_path).ask("agent", "stop", "--force")

    run(program())


def test_directory_open_to_other_users_is_refused(run: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(PermissionError, match="chmod 700"):
        run(LocalSemaphore(name="open", value=1, directory=tmp_path).acquire())


def test_missing_parent_of_the_directory_names_the_argument(run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="choose one with the argument `directory`") as raised:
        run(LocalSemaphore(name="missing", value=1, directory=tmp_path / "missing" / "folder").acquire())
    assert "--url" not in str(raised.value)


def test_queries_start_no_agent(run: Any, tmp_path: Path) -> None:
    async def program() -> None:
        sem = LocalSemaphore(name="unknown", value=1, directory=tmp_path)
        assert await sem.holders() == []
        assert await LocalSemaphore.get_acquired_stats(directory=tmp_path) == {}
        assert list(tmp_path.iterdir()) == []

    run(program())


def test_agents_do_not_share_slots(run: Any, agent: Agent, tmp_path: Path, name: str) -> None:
    """Two agents may issue the same id."""

    async def program() -> None:
        here = LocalSemaphore(name=name, value=1, directory=agent.directory)
        there = LocalSemaphore(name=name, value=1, directory=tmp_path)
        one, other = await here.acquire(), await there.acquire()
        await here.release(other.acquisition_id)
        assert len(await there.holders()) == 1
        await here.release(one.acquisition_id)
        assert (len(await here.holders()), len(await there.holders())) == (0, 1)
        await there.release(other.acquisition_id)
        assert await there.holders() == []
        Agent(tmp_path).ask("agent", "stop")

    run(program())
