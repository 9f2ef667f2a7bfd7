"""What can go wrong that Python has no name for."""

from __future__ import annotations

import asyncio
import sys

if sys.version_info >= (3, 11):
    AcquireTimeoutError = TimeoutError
else:

    class AcquireTimeoutError(TimeoutError, asyncio.TimeoutError):
        """Up to Python 3.10 there are two of them. Whoever expects one gets it."""


class NotHeldError(Exception):
    """It can't be renewed or released, because it is not held."""
