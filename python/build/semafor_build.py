"""Builds the package with maturin and adds the `semafor` command.

The command is a native program, not a Python script that calls the extension: it starts within a millisecond, and it
forks, which is not safe in an interpreter with threads.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).parents[2]
DATA = ROOT / "python" / "semafor.data"


def build_wheel(directory: str, config: Any = None, metadata: str | None = None) -> str:
    with command_in_data():
        return maturin.build_wheel(directory, config, metadata)


def build_editable(directory: str, config: Any = None, metadata: str | None = None) -> str:
    with command_in_data():
        return maturin.build_editable(directory, config, metadata)


def build_sdist(directory: str, config: Any = None) -> str:
    raise RuntimeError("semafor has no source distribution: run `pip install .` in a clone instead")


def prepare_metadata_for_build_wheel(directory: str, config: Any = None) -> str:
    with empty_data_directory():
        return maturin.prepare_metadata_for_build_wheel(directory, config)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


@contextmanager
def command_in_data() -> Iterator[None]:
    """Puts the command into the directory whose contents maturin installs with the package."""
    with empty_data_directory():
        shutil.copy2(build_command(), DATA / "scripts")
        yield


@contextmanager
def empty_data_directory() -> Iterator[None]:
    (DATA / "scripts").mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        shutil.rmtree(DATA)


def build_command() -> str:
    cargo = ["cargo", "build", "--release", "--package=semafor-cli", "--message-format=json-render-diagnostics"]
    messages = subprocess.run(cargo, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    executables = [json.loads(line).get("executable") for line in messages.splitlines()]
    return next(path for path in executables if path)
