"""What the package itself says and has."""

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
    assert output_of("import semafor; print(semafor.effects.run, semafor.purge.Purger)").endswith("<class 'semafor.purge.Purger'>")
    assert output_of("import semafor, sys; print('semafor.effects' in sys.modules, 'semafor.purge' in sys.modules)") == "False False"
    with pytest.raises(AttributeError, match="module 'semafor' has no attribute 'nothing'"):
        semafor.nothing  # type: ignore[attr-defined]
