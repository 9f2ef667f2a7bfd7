"""Behaviour of the memory home only."""

from __future__ import annotations

from typing import Any

import pytest
from semafor import MemorySemaphore


def test_handle_with_the_old_number_of_slots_is_refused(run: Any, name: str) -> None:
    async def program() -> None:
        def new(value: int) -> MemorySemaphore:
            return MemorySemaphore(name=name, value=value)

        old = new(2)
        async with old.cm():
            pass
        async with new(3).cm():
            with pytest.raises(ValueError, match="in use with 3 slots, not 2"):
                await old.acquire()
        # The name has no holder now, so it takes the old number of slots again.
        async with old.cm(), old.cm():
            assert await old.locked()

    run(program())
