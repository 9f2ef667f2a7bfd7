"""A test that hangs ends the run, and the run names the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE
from time_limit import is_alive

# The second test can't be interrupted, and lets no other thread run: it waits in C, with the interpreter lock. It has
# started a child, and a daemon whose parent has ended.
PLANTED = """
import ctypes, subprocess, sys, pytest

def test_quick():
    pass

@pytest.mark.parametrize("way", ["with the lock"])
def test_hanging(way):
    child = subprocess.Popen(["sleep", "1000"])
    with open("child", "w") as file:
        file.write(str(child.pid))
    subprocess.run(["setsid", "sh", "-c", "sleep 1000 & echo $! > daemon"], check=True)
    ctypes.PyDLL(None).sleep(1000)
"""


def test_hanging_test_is_named_and_killed_with_all_it_started(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)
    run = [sys.executable, "-m", "pytest", "-q", "-p", "time_limit", "-p", "no:cacheprovider", "test_planted.py"]
    env = {**os.environ, "SEMAFOR_TEST_LIMIT_SECONDS": "3", "PYTHONPATH": str(Path(__file__).parent)}
    ended = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert ended.returncode not in (0, 1), ended
    assert "HUNG: test_planted.py::test_hanging[with the lock] has not ended within 3 seconds" in ended.stderr
    assert "in test_hanging" in ended.stderr, "the output must say where the test hangs"
    for started in ("child", "daemon"):
        assert not is_alive(int((tmp_path / started).read_text())), started


def test_run_within_the_limit_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text("def test_quick():\n    pass\n")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "time_limit", "-p", "no:cacheprovider", "test_planted.py"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    ended = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, ""), ended


IGNORE = "signal.signal(signal.{}, signal.SIG_IGN)"
BLOCK = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{}])"


@pytest.mark.parametrize(
    "inherited", [IGNORE.format(name) for name in ("SIGINT", "SIGHUP", "SIGPIPE")] + [BLOCK.format("SIGINT")]
)
def test_signal_tests_pass_with_inherited_signal_settings(inherited: str) -> None:
    """Background jobs of a script ignore SIGINT, and `nohup` ignores SIGHUP: tests started that way must pass."""
    tests = Path(__file__).parent
    chosen = [
        "test_effects_outside.py::test_an_interrupt_while_the_run_waits",
        "test_exit.py::test_ctrl_c_reaches_a_thread_that_waits",
    ]
    text = (
        f"import os, signal, sys; {inherited}; "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    run = [sys.executable, "-c", text, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    env = {**os.environ, "SEMAFOR_TEST_LIMIT_SECONDS": str(PATIENCE)}
    ended = subprocess.run(run, cwd=tests, env=env, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
