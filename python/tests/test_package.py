"""What the package itself says and has."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
import semafor


def says(text: str) -> str:
    return subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout.strip()


def test_its_version_is_that_of_what_is_installed() -> None:
    assert semafor.__version__ == semafor.VERSION == metadata.version("semafor")


def test_its_modules_are_there_when_they_are_asked_for() -> None:
    assert says("import semafor; print(semafor.effects.run, semafor.purge.Purger)").endswith("<class 'semafor.purge.Purger'>")
    assert says("import semafor, sys; print('semafor.effects' in sys.modules, 'semafor.purge' in sys.modules)") == "False False"
    with pytest.raises(AttributeError, match="module 'semafor' has no attribute 'nothing'"):
        semafor.nothing  # type: ignore[attr-defined]
