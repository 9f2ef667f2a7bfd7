"""A program that uses every public name of asyncio-advanced-semaphores prints the same with this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, RedisServer

PROGRAM = Path(__file__).parent / "every_public_name.py"


def output_of(python: str, library: str, redis: RedisServer) -> list[str]:
    program = [python, str(PROGRAM), library, redis.url, f"same-{library}"]
    return subprocess.run(program, check=True, capture_output=True, text=True, timeout=2 * PATIENCE).stdout.splitlines()


@pytest.mark.other_library
def test_every_public_name(redis: RedisServer, other_python: str) -> None:
    ours = output_of(sys.executable, "semafor", redis)
    theirs = output_of(other_python, "asyncio_advanced_semaphores", redis)
    assert ours == theirs
    assert len(ours) > 30
