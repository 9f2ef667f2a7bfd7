"""Examples in docstrings and in the README run."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = [
    "semafor",
    "semafor.effects",
    "semafor.memory",
    "semafor.purge",
    "semafor.redis",
    "semafor.semaphore",
    "semafor.stats",
]
PACKAGE = Path(__file__).parents[1] / "README.md"
PROJECT = Path(__file__).parents[2] / "README.md"


def what_examples_say(readme: Path) -> list[str]:
    examples = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    run = [sys.executable, "-c"]
    return [subprocess.run([*run, text], check=True, capture_output=True, text=True).stdout for text in examples]


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_readme_of_the_package() -> None:
    assert what_examples_say(PACKAGE) == ["slot 0\n"]


def test_readme() -> None:
    semaphore, effects = what_examples_say(PROJECT)
    assert semaphore == "slot 0\n"
    assert effects.splitlines()[2:] == ["worker 2 done at 0.1", "worker 3 done at 0.2"]
