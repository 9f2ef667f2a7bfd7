"""The version and the modules of the package."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
import semafor


def output_of(text: str) -> str:
    return subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout.strip()


def test_version_is_the_installed_version() -> None:
    assert semafor.__version__ == semafor.VERSION == metadata.version("semafor")


def test_effects_and_purge_are_imported_on_first_use() -> None:
    used = output_of("import semafor; print(semafor.effects.run, semafor.purge.Purger)")
    assert used.endswith("<class 'semafor.purge.Purger'>")
    modules = "'semafor.effects' in sys.modules, 'semafor.purge' in sys.modules"
    assert output_of(f"import semafor, sys; print({modules})") == "False False"
    with pytest.raises(AttributeError, match="module 'semafor' has no attribute 'nothing'"):
        semafor.nothing  # type: ignore[attr-defined]
