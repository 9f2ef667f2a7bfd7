"""Examples in docstrings and in the README run."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["semafor", "semafor.memory", "semafor.purge", "semafor.redis", "semafor.semaphore", "semafor.stats"]
READMES = sorted(Path(__file__).parents[1].glob("README*.md"))


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_readme(readme: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    said = subprocess.run([sys.executable, "-c", example], check=True, capture_output=True, text=True).stdout
    assert said == "slot 0\n"
