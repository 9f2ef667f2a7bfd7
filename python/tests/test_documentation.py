"""Examples in docstrings, in the README files and in the book run and print what is shown."""

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
ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "python/README.md", *sorted((ROOT / "docs/src").rglob("*.md"))]


def examples(document: Path) -> Iterator[tuple[int, str, str | None]]:
    """The line, the code and the output of each Python block; no output if no `text` block follows."""
    text = document.read_text()
    for found in re.finditer(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```\n)?", text, re.DOTALL | re.MULTILINE):
        yield text[: found.start()].count("\n") + 1, found[1], found[2]


def is_shown_as(printed: str, shown: str) -> bool:
    """`…` stands for anything, and durations may differ."""
    duration = re.compile(r"\b\d+(\.\d+)?(ns|µs|ms|s)\b")
    parts = [re.escape(part) for part in duration.sub("0s", shown.strip()).split("…")]
    return re.fullmatch(".*".join(parts), duration.sub("0s", printed.strip()), re.DOTALL) is not None


@pytest.fixture
def homes(redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where examples look for a Redis, and for an agent."""
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


EXAMPLES = [(path.relative_to(ROOT), *example) for path in DOCUMENTS for example in examples(path)]


@pytest.mark.parametrize("path, line, code, shown", EXAMPLES, ids=[f"{path}:{line}" for path, line, _, _ in EXAMPLES])
def test_examples_print_what_the_documents_show(
    path: Path, line: int, code: str, shown: str | None, homes: None, tmp_path: Path
) -> None:
    (tmp_path / "example.py").write_text(code)
    ran = subprocess.run([sys.executable, "example.py"], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert is_shown_as(ran.stdout, shown or ""), ran.stdout


def test_an_output_is_compared() -> None:
    assert is_shown_as("slot 0 after 1.5ms\n", "slot 0 after 2ms\n")
    assert is_shown_as("a\nb\nc\n", "a\n…\nc\n")
    assert not is_shown_as("slot 1\n", "slot 0\n")
    assert not is_shown_as("", "slot 0\n")
    assert not is_shown_as("a\nb\n", "a\n")


def test_the_documents_have_examples() -> None:
    assert {str(path) for path, *_ in EXAMPLES} >= {"README.md", "python/README.md", "docs/src/python.md"}
