"""Ends a run whose test hangs, and names the test.

A process of its own, the watcher, measures the time, so that an interpreter that hangs can't stop it. The run tells it
when a test begins and ends. It sends SIGABRT to a run that takes too long, and pytest then prints all stacks.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# How long a test may take, with its fixtures. `cargo xtask test` reads the variable, too. `select` refuses more than a
# century.
SECONDS = min(float(os.environ.get("SEMAFOR_TEST_LIMIT_SECONDS", "600")), 100 * 365 * 86400.0)
# How long an interpreter may take to print where it hangs.
ABORT_TIMEOUT = 10.0

# In the environment of all processes that the tests start, to find those whose parent has ended.
MARK = "SEMAFOR_TEST_RUN"

WATCHER = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    # The parent process may have blocked signals. The tests need them.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.environ[MARK] = f"{os.getpid()}-{time.time_ns()}"
    words = [sys.executable, __file__, str(os.getpid()), str(SECONDS)]
    config.stash[WATCHER] = subprocess.Popen(words, stdin=subprocess.PIPE)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[WATCHER].communicate(timeout=ABORT_TIMEOUT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    report_test(item, item.nodeid.replace("\n", " "))
    try:
        return (yield)
    finally:
        report_test(item, "")


def report_test(item: pytest.Item, name: str) -> None:
    """Tells the watcher which test runs now. An empty name: none."""
    stdin = item.config.stash[WATCHER].stdin
    assert stdin is not None
    stdin.write(f"{name}\n".encode())
    stdin.flush()


def watch(pytest_id: int, seconds: float) -> None:
    """Runs in the watcher. Returns when the run has ended, or kills it when a test takes too long."""
    test, buffer = b"", b""
    while True:
        if not select.select([0], [], [], seconds if test else None)[0]:
            break
        more = os.read(0, 65536)
        if not more:
            return
        *lines, buffer = (buffer + more).split(b"\n")
        test = lines[-1] if lines else test
    print(f"\nHUNG: {test.decode()} has not ended within {seconds:g} seconds", file=sys.stderr, flush=True)
    started = list(descendants(pytest_id))
    os.kill(pytest_id, signal.SIGABRT)
    deadline = time.monotonic() + ABORT_TIMEOUT
    while is_alive(pytest_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in [pytest_id, *started, *marked()]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def descendants(of: int) -> Iterator[int]:
    """The children of the process and their children, except the watcher. None on systems without `/proc`."""
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        if parent(pid) == of and pid != os.getpid():
            yield pid
            yield from descendants(pid)


def marked() -> Iterator[int]:
    """All processes with our mark, except the watcher. Includes those whose parent has ended."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = mark in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_marked and int(process.name) != os.getpid():
            yield int(process.name)


def parent(pid: int) -> int | None:
    fields = stat(pid)
    return int(fields[1]) if fields else None


def is_alive(pid: int) -> bool:
    fields = stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def stat(pid: int) -> list[str]:
    """The fields of `stat` from the state on. The name before it may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    # Ctrl-C is meant for the tests. The watcher ends with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(int(sys.argv[1]), float(sys.argv[2]))
