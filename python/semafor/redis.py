"""Semaphores for many machines, on Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlencode

from . import _checks, _native
from .semaphore import Semaphore
from .stats import SemaphoreStats, acquired


@dataclass(kw_only=True, frozen=True)
class RedisConfig:
    """The address of Redis, timeouts and retries.

    - `url`: `redis://localhost:6379` by default; also `rediss://` (TLS), `unix://`, `redis+cluster://`,
      `redis+sentinel://`. ValueError if the URL is invalid.
    - `namespace`: the prefix of all keys, `adv-sem` by default. On a cluster it needs a `{tag}`.
    - `max_connections`: must be greater than 10, and has no effect; 300 by default. A process needs only one
      connection, however many slots it holds and waits for.
    - `socket_timeout`, `socket_connect_timeout`: how many seconds to wait for a reply, and for a connection; 30 and 10
      by default.
    - `number_of_attempts`: how often to try before ConnectionError is raised; 3 by default. An acquire makes no attempt
      that would come after its `max_acquire_time`, and only one if that is 0.
    - `retry_multiplier`, `retry_min_delay`, `retry_max_delay`: the pauses between attempts, in seconds. The first pause
      is `retry_multiplier`, each next one is twice as long. No pause is shorter than `retry_min_delay` or longer than
      `retry_max_delay`. 2, 1 and 60 by default.

    These arguments replace options of the same name in the URL. A RedisConfig can't be changed, and any number of
    semaphores may share it. Its `repr` hides the user name, the password and the options of the URL.

    >>> RedisConfig(url="redis://cache.example:6379/2", namespace="my-app").namespace
    'my-app'
    """

    namespace: str = "adv-sem"
    url: str = "redis://localhost:6379"
    max_connections: int = 300
    socket_timeout: float = 30
    socket_connect_timeout: float = 10
    number_of_attempts: int = 3
    retry_multiplier: float = 2
    retry_min_delay: float = 1
    retry_max_delay: float = 60

    _allowed: ClassVar[Mapping[str, _checks.Check]] = {
        "namespace": _checks.text(),
        "url": _checks.text(is_secret=True),
        "max_connections": _checks.whole(1),
        "socket_timeout": _checks.seconds(),
        "socket_connect_timeout": _checks.seconds(),
        "number_of_attempts": _checks.whole(1),
        "retry_multiplier": _checks.seconds(may_be_zero=True),
        "retry_min_delay": _checks.seconds(may_be_zero=True),
        "retry_max_delay": _checks.seconds(may_be_zero=True),
    }

    def __post_init__(self) -> None:
        for field, check in self._allowed.items():
            check(field, getattr(self, field))
        if self.max_connections <= 10:
            raise ValueError(f"max_connections must be greater than 10, got {self.max_connections}")
        _native.check_redis_url(self._address())

    def __repr__(self) -> str:
        """Shows the URL without its user name, password and options."""
        shown = {**vars(self), "url": _without_secrets(self.url)}
        return f"{type(self).__name__}({', '.join(f'{field}={value!r}' for field, value in shown.items())})"

    def _address(self) -> str:
        options = {
            "namespace": self.namespace,
            "max_connections": self.max_connections,
            # 30 and 30.0 must give the same URL: configurations with the same URL share a connection.
            "socket_timeout": float(self.socket_timeout),
            "socket_connect_timeout": float(self.socket_connect_timeout),
            "number_of_attempts": self.number_of_attempts,
            # The engine does not accept a pause of 0.
            "retry_multiplier": max(float(self.retry_multiplier), 0.001),
            "retry_min_delay": max(float(self.retry_min_delay), 0.001),
            "retry_max_delay": max(float(self.retry_max_delay), 0.001),
        }
        return f"{self.url}{'&' if '?' in self.url else '?'}{urlencode(options)}"


def _without_secrets(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    address, mark, options = rest.partition("?")
    if not separator or "@" in options:
        # It is not known which part is the password.
        return f"{scheme}{separator}***" if separator else "***"
    user, at, host = address.rpartition("@")
    return scheme + separator + ("***@" if at else "") + host + ("?***" if mark else "")


@dataclass(kw_only=True)
class RedisSemaphore(Semaphore):
    """A semaphore for all processes that use the same Redis, namespace and name.

    A process sends heartbeats for its slots, also while its event loop is blocked. If Redis is unreachable for too
    long, `result.lost` is set before another process can get the slot.

    - `name`: handles with the same name share the slots and the line.
    - `value`: the number of slots. If the name has another number, the first acquire raises ValueError while the name
      has holders or waiters; otherwise it changes the number.
    - `max_acquire_time`: the timeout: how many seconds an acquire waits in line before it raises TimeoutError. 0: no
      wait for a slot; if Redis does not reply, ConnectionError comes after about 2 seconds. None, the default: no
      limit.
    - `ttl`: the lease: how many seconds a slot may be held. After that the slot is lost: `result.lost` is set, and the
      next waiter gets the slot. None, the default: no limit.
    - `label`: a text that `holders()`, `waiters()` and `semafor inspect` show. None by default.
    - `cancel_task_after_ttl`: cancel the task whose slot is lost, for any reason. False by default.
    - `config`: the address of Redis, a RedisConfig; `RedisConfig()` by default.
    - `heartbeat_max_interval`: the number of seconds without a heartbeat after which a slot is lost; 180 by default.
      If `ttl` is shorter, the constructor sets this attribute to `ttl`. A later change of `ttl` does not change it.
    - `ping_interval`, `use_polling_after_delay`, `poll_delay`: checked, but not used. They exist for code that was
      written for `asyncio-advanced-semaphores`.

    Handles with the same name may have different `ttl`, `max_acquire_time` and `label`.

    >>> import asyncio, os
    >>> async def main():
    ...     config = RedisConfig(url=os.environ["REDIS_URL"])
    ...     sem = RedisSemaphore(name="doc-api", value=3, ttl=60, config=config)
    ...     async with sem.cm() as result:  # three at once, on all machines together
    ...         print(result.slot_number, await RedisSemaphore.get_acquired_stats(names=["doc-api"], config=config))
    >>> asyncio.run(main())
    0 {'doc-api': SemaphoreStats(acquired_slots=1, max_slots=3)}
    """

    config: RedisConfig = field(default_factory=RedisConfig)
    heartbeat_max_interval: float = 180
    ping_interval: float | None = None
    use_polling_after_delay: float = 100.0
    poll_delay: float = 1.0

    _allowed = {
        **Semaphore._allowed,
        "config": _checks.instance(RedisConfig),
        "heartbeat_max_interval": _checks.seconds(may_be_infinite=True),
        "ping_interval": _checks.seconds(or_none=True),
        "use_polling_after_delay": _checks.seconds(may_be_zero=True, may_be_infinite=True),
        "poll_delay": _checks.seconds(may_be_zero=True, may_be_infinite=True),
    }

    def __post_init__(self) -> None:
        if self.ping_interval is not None and self.ping_interval >= self.heartbeat_max_interval:
            longest = self.heartbeat_max_interval
            raise ValueError(
                f"ping_interval must be lower than heartbeat_max_interval, {longest}, got {self.ping_interval}"
            )
        if self.ttl is not None and self.ttl < self.heartbeat_max_interval:
            self.heartbeat_max_interval = self.ttl

    def _home(self) -> dict[str, Any]:
        return {"url": self.config._address(), "heartbeat_max_interval": self.heartbeat_max_interval}

    @classmethod
    async def get_acquired_stats(
        cls,
        *,
        names: list[str] | None = None,
        limit: int = 100,
        config: RedisConfig | None = None,
    ) -> dict[str, SemaphoreStats]:
        _checks.instance(RedisConfig, or_none=True)("config", config)
        return await acquired(names, limit, url=(config or RedisConfig())._address())
