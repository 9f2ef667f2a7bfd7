"""Hooks for the exit of the interpreter and for forks."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from . import _native


def register_hooks() -> None:
    atexit.register(_native.at_exit)
    os.register_at_fork(before=_hook_into_multiprocessing, after_in_child=_native.after_fork)
    _hook_into_multiprocessing()
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        # This is a child of multiprocessing that imports this package while it runs. It is too late for the hook above.
        _release_at_the_end_of_this_child(sys.modules["multiprocessing.util"])


_is_hooked_into_multiprocessing = False


def _hook_into_multiprocessing() -> None:
    """Registers the exit hook for the children of multiprocessing: before Python 3.13 they run no atexit functions.

    Called at the import of this package, because a child of a fork server imports it before it runs; and before each
    fork, because the program may import multiprocessing later.
    """
    global _is_hooked_into_multiprocessing
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_hooked_into_multiprocessing:
        _is_hooked_into_multiprocessing = True
        util.register_after_fork(_native, lambda _: _release_at_the_end_of_this_child(util))


def _release_at_the_end_of_this_child(util: Any) -> None:
    util.Finalize(None, _native.at_exit, exitpriority=100)
