"""Examples in docstrings and in the README run."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["semafor", "semafor.effects", "semafor.memory", "semafor.purge", "semafor.redis", "semafor.semaphore", "semafor.stats"]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_readme() -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    said = subprocess.run([sys.executable, "-c", example], check=True, capture_output=True, text=True).stdout
    assert said == "slot 0\n"


def test_readme_of_effects() -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.with_name("README-effects.md").read_text(), re.DOTALL)
    said = subprocess.run([sys.executable, "-c", example], check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[2:] == ["worker 2 done at 0.1", "worker 3 done at 0.2"]
