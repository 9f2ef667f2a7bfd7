"""Hooks for the exit of the interpreter and for forks."""

from __future__ import annotations

import atexit
import os
import sys

from . import _native


def register_hooks() -> None:
    atexit.register(_native.at_exit)
    os.register_at_fork(before=_before_fork, after_in_child=_native.after_fork)


_is_hooked_into_multiprocessing = False


def _before_fork() -> None:
    """Registers the exit hook with multiprocessing, too: its children do not run atexit functions."""
    global _is_hooked_into_multiprocessing
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_hooked_into_multiprocessing:
        _is_hooked_into_multiprocessing = True
        util.register_after_fork(_native, lambda _: util.Finalize(None, _native.at_exit, exitpriority=100))
