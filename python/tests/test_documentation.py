"""The examples in docstrings and READMEs run, and every argument is documented."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Agent, RedisServer
from semafor import AcquisitionResult, LocalSemaphore, Lost, MemorySemaphore, RedisConfig, RedisSemaphore, Semaphore
from semafor.purge import Purger

MODULES = [
    "semafor",
    "semafor.effects",
    "semafor.local",
    "semafor.memory",
    "semafor.purge",
    "semafor.redis",
    "semafor.semaphore",
    "semafor.stats",
]
PACKAGE = Path(__file__).parents[1] / "README.md"
PROJECT = Path(__file__).parents[2] / "README.md"


def outputs_of_examples(readme: Path) -> list[str]:
    examples = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    run = [sys.executable, "-c"]
    return [subprocess.run([*run, text], check=True, capture_output=True, text=True).stdout for text in examples]


@pytest.fixture
def homes(redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sets the addresses of Redis and of the agent for the examples."""
    monkeypatch.setenv("REDIS_URL", redis.url)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield
    if (tmp_path / "semafor").exists():
        Agent(tmp_path / "semafor").ask("agent", "stop", "--force")


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str, homes: None) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("kind", [LocalSemaphore, MemorySemaphore, Purger, RedisConfig, RedisSemaphore])
def test_every_argument_is_explained(kind: Any) -> None:
    documentation = inspect.getdoc(kind) or ""
    explained = re.findall(r"`(\w+)`", " ".join(re.findall(r"(?m)^- (.*?): ", documentation)))
    assert set(explained) == set(inspect.signature(kind).parameters)
    assert ">>>" in documentation


@pytest.mark.parametrize("kind", [AcquisitionResult, Lost, Semaphore])
def test_every_name_is_explained(kind: Any) -> None:
    fields = getattr(kind, "__dataclass_fields__", ())
    names = [name for name in vars(kind) if name not in fields and (name == "__aenter__" or not name.startswith("_"))]
    assert [name for name in names if not getattr(kind, name).__doc__] == []


def test_readme_of_the_package() -> None:
    assert outputs_of_examples(PACKAGE) == ["slot 0\n"]


def test_readme(homes: None) -> None:
    memory, redis, threads, effects, exploration = outputs_of_examples(PROJECT)
    assert memory == "slot 0\n"
    assert redis == "slot 0 of 3\n"
    assert threads == "file 0, slot 0\nfile 1, slot 0\nfile 2, slot 0\n"
    assert effects.splitlines()[2:] == ["worker 2 done at 0.1", "worker 3 done at 0.2"]
    assert exploration.startswith("schedule 3 of the program fails: AssertionError: {'money': 1}\nreplay it with run(")
