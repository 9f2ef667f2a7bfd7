"""Ends a run whose test hangs, and names the test.

A process of its own looks at the clock, so that no lock of the interpreter that hangs can keep it from that. It is told
when a test begins and ends. A run that takes too long is sent SIGABRT, on which pytest prints where all threads are.
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

# How long a test may take, its fixtures included. `cargo xtask test` knows the variable, too. Beyond a century, `select`
# refuses it.
SECONDS = min(float(os.environ.get("SEMAFOR_TEST_LIMIT_SECONDS", "600")), 100 * 365 * 86400.0)
# How long an interpreter may take to say where it hangs.
ABORT_TIMEOUT = 10.0

# In the environment of everything that the tests start, so that it can be found although its parent has ended.
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
    """The test that runs from now on; nothing for none."""
    stdin = item.config.stash[WATCHER].stdin
    assert stdin is not None
    stdin.write(f"{name}\n".encode())
    stdin.flush()


def watch(pytest_id: int, seconds: float) -> None:
    """Returns when the run has ended, by itself or by us."""
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
    """All that it has started, and those have, but us. Where the system does not tell, none."""
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        if parent(pid) == of and pid != os.getpid():
            yield pid
            yield from descendants(pid)


def marked() -> Iterator[int]:
    """All that have our mark, but us: also those whose parent has ended."""
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
    """From its state on. The name before it may have anything in it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    # Ctrl-C is for the tests: this ends with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(int(sys.argv[1]), float(sys.argv[2]))
