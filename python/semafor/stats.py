"""Holders, waiters and statistics."""

from __future__ import annotations

from dataclasses import dataclass

from . import _checks, _native


@dataclass
class SemaphoreStats:
    """The slots held and the slots in total.

    >>> SemaphoreStats(acquired_slots=1, max_slots=4).acquired_percent
    25.0
    """

    acquired_slots: int
    max_slots: int

    @property
    def acquired_percent(self) -> float:
        return 100.0 * self.acquired_slots / self.max_slots


async def acquired(
    names: list[str] | None, limit: int, *, url: str | None = None, program: str | None = None
) -> dict[str, SemaphoreStats]:
    """Returns the result of `get_acquired_stats` for the home at the URL; without a URL, for this process."""
    _checks.limit("limit", limit)
    usage = await _native.stats(url, program, _checks.names(names), limit)
    return {name: SemaphoreStats(held, slots) for name, held, slots in usage}


@dataclass(frozen=True)
class Holder:
    """A holder of a slot.

    - `acquisition_id`: the id for `release`, `renew` and `evict`.
    - `slot_number`, `fencing_token`: None if a client of another library holds the slot.
    - `weight`, `label`: as given by the holder.
    - `command`: if the holder is the command `semafor`: what it runs. Otherwise None.
    - `host`, `pid`: where the holder runs; None in memory.
    - `held_for`: the seconds since the grant; 0 if a client of another library holds the slot.
    - `expires_in`: the seconds until the lease ends; None without a lease.
    """

    acquisition_id: str
    slot_number: int | None
    fencing_token: int | None
    weight: int
    label: str | None
    command: str | None
    host: str | None
    pid: int | None
    held_for: float
    expires_in: float | None


@dataclass(frozen=True)
class Waiter:
    """A waiter for a slot.

    - `ahead`: how many waiters are served before it.
    - `weight`, `label`, `command`, `host`, `pid`: as in `Holder`.
    - `waited_for`: the seconds since it joined the line.
    """

    ahead: int
    weight: int
    label: str | None
    command: str | None
    host: str | None
    pid: int | None
    waited_for: float
