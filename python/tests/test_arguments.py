"""A wrong argument is refused at once. The error names the field, the values it accepts and the value it got."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from homes import New, new  # noqa: F401
from semafor import AcquisitionResult, LocalSemaphore, MemorySemaphore, RedisConfig, RedisSemaphore
from semafor.purge import Purger


class Index:
    """Like an integer of numpy."""

    def __init__(self, number: int):
        self.number = number

    def __index__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"Index({self.number})"


REQUIRED: dict[Any, dict[str, Any]] = {
    MemorySemaphore: {"name": "a", "value": 1},
    LocalSemaphore: {"name": "a", "value": 1},
    RedisSemaphore: {"name": "a", "value": 1},
    RedisConfig: {},
    Purger: {"root_path": "/data"},
}

ABOVE_ZERO = "a number of seconds greater than 0"
FROM_ZERO = "a number of seconds of at least 0"

# The class, the field, the wrong value, and the message.
WRONG_TYPE: list[tuple[Any, str, Any, str]] = [
    (MemorySemaphore, "name", None, "a non-empty str, got None"),
    (MemorySemaphore, "name", b"a", "a non-empty str, got b'a'"),
    (MemorySemaphore, "value", True, "an int of at least 1, got True"),
    (MemorySemaphore, "value", 2.0, "an int of at least 1, got 2.0"),
    (MemorySemaphore, "value", "2", "an int of at least 1, got '2'"),
    (MemorySemaphore, "value", None, "an int of at least 1, got None"),
    (MemorySemaphore, "value", int, "an int of at least 1, got <class 'int'>"),
    (MemorySemaphore, "ttl", "30", f"{ABOVE_ZERO}, or None, got '30'"),
    (MemorySemaphore, "ttl", float, f"{ABOVE_ZERO}, or None, got <class 'float'>"),
    (MemorySemaphore, "ttl", True, f"{ABOVE_ZERO}, or None, got True"),
    (MemorySemaphore, "ttl", timedelta(seconds=30), f"{ABOVE_ZERO}, or None, got datetime.timedelta(seconds=30)"),
    (MemorySemaphore, "max_acquire_time", "5", f"{FROM_ZERO}, or None, got '5'"),
    (MemorySemaphore, "label", 5, "a str, or None, got 5"),
    (MemorySemaphore, "cancel_task_after_ttl", 1, "True or False, got 1"),
    (LocalSemaphore, "directory", b"/tmp", "a path, as a str or an os.PathLike, or None, got b'/tmp'"),
    (RedisSemaphore, "config", "redis://:password@localhost", "a RedisConfig, got str"),
    (RedisSemaphore, "config", None, "a RedisConfig, got NoneType"),
    (RedisSemaphore, "heartbeat_max_interval", None, f"{ABOVE_ZERO}, got None"),
    (RedisSemaphore, "ping_interval", "1", f"{ABOVE_ZERO} and less than infinity, or None, got '1'"),
    (RedisSemaphore, "poll_delay", "1", f"{FROM_ZERO}, got '1'"),
    (RedisConfig, "url", b"redis://:password@localhost", "a non-empty str, got bytes"),
    (RedisConfig, "namespace", None, "a non-empty str, got None"),
    (RedisConfig, "max_connections", "300", "an int of at least 1, got '300'"),
    (RedisConfig, "socket_connect_timeout", None, f"{ABOVE_ZERO} and less than infinity, got None"),
    (RedisConfig, "retry_multiplier", "2", f"{FROM_ZERO} and less than infinity, got '2'"),
    (Purger, "root_path", None, "a path, as a str or an os.PathLike, got None"),
    (Purger, "root_path", 5, "a path, as a str or an os.PathLike, got 5"),
    (Purger, "max_concurrency_scanning", "4", "an int of at least 1, or None, got '4'"),
    (Purger, "dry_run", "no", "True or False, got 'no'"),
    (Purger, "max_age", timedelta(days=1), f"{FROM_ZERO} and less than infinity, or None, got datetime"),
    (Purger, "min_age", None, f"{FROM_ZERO} and less than infinity, got None"),
    (Purger, "exclude", [5], "a pattern, or a list of patterns, each of them a str, got [5]"),
    (Purger, "exclude", None, "a pattern, or a list of patterns, each of them a str, got None"),
    (Purger, "exclude", (name for name in ["a"]), "a pattern, or a list of patterns, each of them a str, got <gen"),
    (Purger, "remove_root", None, "True or False, got None"),
    (Purger, "rate", 0.5, "an int of at least 0, got 0.5"),
    (Purger, "force", "yes", "True or False, got 'yes'"),
    (Purger, "on_progress", "print", "a callable, or None, got 'print'"),
]

WRONG_VALUE: list[tuple[Any, str, Any, str]] = [
    (MemorySemaphore, "name", "", "a non-empty str, got ''"),
    (MemorySemaphore, "value", 0, "at least 1, got 0"),
    (MemorySemaphore, "value", Index(-1), "at least 1, got -1"),
    (MemorySemaphore, "value", 2**32, "from 1 to 4294967295, got 4294967296"),
    (MemorySemaphore, "ttl", 0, f"{ABOVE_ZERO}, or None, got 0"),
    (MemorySemaphore, "ttl", -1.5, f"{ABOVE_ZERO}, or None, got -1.5"),
    (MemorySemaphore, "ttl", math.nan, f"{ABOVE_ZERO}, or None, got nan"),
    (MemorySemaphore, "ttl", -math.inf, f"{ABOVE_ZERO}, or None, got -inf"),
    (MemorySemaphore, "ttl", 10**400, f"{ABOVE_ZERO}, or None, got 1000"),
    (MemorySemaphore, "max_acquire_time", -1, f"{FROM_ZERO}, or None, got -1"),
    (LocalSemaphore, "directory", "", "a path, as a str or an os.PathLike, or None, and not empty, got ''"),
    (RedisSemaphore, "ttl", -1, f"{ABOVE_ZERO}, or None, got -1"),
    (RedisSemaphore, "heartbeat_max_interval", 0, f"{ABOVE_ZERO}, got 0"),
    (RedisSemaphore, "use_polling_after_delay", -1, f"{FROM_ZERO}, got -1"),
    (RedisConfig, "url", "", "a non-empty str, got ''"),
    (RedisConfig, "max_connections", 10, "greater than 10, got 10"),
    (RedisConfig, "socket_timeout", 0, f"{ABOVE_ZERO} and less than infinity, got 0"),
    (RedisConfig, "socket_timeout", math.inf, f"{ABOVE_ZERO} and less than infinity, got inf"),
    (RedisConfig, "number_of_attempts", 0, "at least 1, got 0"),
    (RedisConfig, "retry_min_delay", -1, f"{FROM_ZERO} and less than infinity, got -1"),
    (RedisConfig, "retry_max_delay", math.nan, f"{FROM_ZERO} and less than infinity, got nan"),
    (Purger, "root_path", "", "a path, as a str or an os.PathLike, and not empty, got ''"),
    (Purger, "max_concurrency_deletion", 0, "at least 1, got 0"),
    (Purger, "memory_limit_mb", -1, "at least 0, got -1"),
    (Purger, "max_empty_dirs_to_delete", -1, "at least 0, got -1"),
    (Purger, "max_age", -1, f"{FROM_ZERO} and less than infinity, or None, got -1"),
    (Purger, "progress_interval", -1, f"{FROM_ZERO} and less than infinity, got -1"),
]

WRONG = [*((TypeError, *each) for each in WRONG_TYPE), *((ValueError, *each) for each in WRONG_VALUE)]

RIGHT: list[tuple[Any, str, Any]] = [
    (MemorySemaphore, "value", Index(3)),
    (MemorySemaphore, "value", 2**32 - 1),
    (MemorySemaphore, "ttl", math.inf),
    (MemorySemaphore, "ttl", 1e300),
    (MemorySemaphore, "ttl", Decimal("0.5")),
    (MemorySemaphore, "max_acquire_time", 0),
    (MemorySemaphore, "max_acquire_time", math.inf),
    (MemorySemaphore, "max_acquire_time", Index(5)),
    (MemorySemaphore, "label", ""),
    (LocalSemaphore, "directory", Path("/tmp")),
    (RedisSemaphore, "heartbeat_max_interval", math.inf),
    (RedisSemaphore, "ping_interval", 0.5),
    (RedisConfig, "socket_timeout", 0.5),
    (RedisConfig, "retry_multiplier", 0),
    (Purger, "root_path", Path("/data")),
    (Purger, "max_age", 0),
    (Purger, "exclude", {".snapshot", "kept"}),
    (Purger, "exclude", [Path(".snapshot")]),
]


@pytest.mark.parametrize("error, kind, field, given, message", WRONG)
def test_wrong_argument_is_refused_at_construction(
    error: type[Exception], kind: Any, field: str, given: Any, message: str
) -> None:
    with pytest.raises(error, match=re.escape(f"{field} must be {message}")) as raised:
        kind(**{**REQUIRED[kind], field: given})
    assert "password" not in str(raised.value)


@pytest.mark.parametrize("error, kind, field, given, message", [each for each in WRONG if each[1] is not RedisConfig])
def test_wrong_value_is_refused_at_assignment(
    error: type[Exception], kind: Any, field: str, given: Any, message: str
) -> None:
    made = kind(**REQUIRED[kind])
    before = getattr(made, field)
    with pytest.raises(error, match=re.escape(f"{field} must be {message}")):
        setattr(made, field, given)
    assert getattr(made, field) == before


@pytest.mark.parametrize("kind, field, given", RIGHT)
def test_valid_argument_is_kept_unchanged(kind: Any, field: str, given: Any) -> None:
    assert getattr(kind(**{**REQUIRED[kind], field: given}), field) is given


@pytest.mark.parametrize("kind", REQUIRED)
def test_every_field_is_checked(kind: Any) -> None:
    assert {field for field in kind.__dataclass_fields__ if not field.startswith("_")} == set(kind._allowed)


def test_engine_accepts_every_accepted_kind_of_number(run: Any, name: str) -> None:
    async def program() -> None:
        sem = MemorySemaphore(name=name, value=Index(2), ttl=1e300, max_acquire_time=math.inf)  # type: ignore[arg-type]
        sem.ttl = Decimal("1000.5")  # type: ignore[assignment]
        await sem.acquire(weight=Index(2))  # type: ignore[arg-type]
        [holder] = await sem.holders()
        assert holder.weight == 2 and holder.expires_in is not None and 500 < holder.expires_in <= 1000.5
        await sem.release()

    run(program())


def test_wrong_weight_or_value_is_refused(run: Any, new: New) -> None:
    async def program() -> None:
        sem: Any = new(value=2)
        types, values = ["1", True, 1.5], [0, 2**32]
        for weight, error in [*((each, TypeError) for each in types), *((each, ValueError) for each in values)]:
            message = "weight must be (an int of )?(at least|from) 1"
            with pytest.raises(error, match=message):
                await sem.acquire(weight=weight)
            with pytest.raises(error, match=message):
                await sem.cm(weight=weight).__aenter__()
            with pytest.raises(error, match=message):
                await asyncio.to_thread(sem.sync(weight=weight).__enter__)
            with pytest.raises(error, match=message.replace("weight", "value")):
                await sem.resize(weight)
        assert await sem.holders() == []

    run(program())


def test_wrong_acquisition_id_is_refused(run: Any, new: New) -> None:
    async def program() -> None:
        sem: Any = new()
        held = await sem.acquire()
        with pytest.raises(TypeError, match="pass the result's acquisition_id, not AcquisitionResult"):
            await sem.release(held)
        with pytest.raises(TypeError, match="pass the result's acquisition_id"):
            await sem.renew(AcquisitionResult("a", 1), 5)
        with pytest.raises(TypeError, match="pass the result's acquisition_id"):
            await sem.evict(held)
        with pytest.raises(TypeError, match="acquisition_id must be a str, or None, got 5"):
            await sem.release(5)
        with pytest.raises(TypeError, match="ttl must be a number of seconds greater than 0, or None, got '5'"):
            await sem.renew(held.acquisition_id, "5")
        await sem.release("")
        await sem.release("unknown")
        assert len(await sem.holders()) == 1
        await sem.release(held.acquisition_id)

    run(program())


@pytest.mark.parametrize("kind", [MemorySemaphore, LocalSemaphore, RedisSemaphore])
def test_wrong_statistics_query_is_refused(run: Any, kind: Any) -> None:
    for query, message in [
        ({"names": "w"}, "names must be a list of names, or None, got 'w'"),
        ({"names": [1]}, "names must be a list of names, or None, got [1]"),
        ({"names": 5}, "names must be a list of names, or None, got 5"),
        ({"limit": "1"}, "limit must be an int of at least 0, got '1'"),
    ]:
        with pytest.raises(TypeError, match=re.escape(message)):
            run(kind.get_acquired_stats(**query))
    with pytest.raises(ValueError, match="limit must be at least 0, got -1"):
        run(kind.get_acquired_stats(limit=-1))


def test_wrong_home_of_a_statistics_query_is_refused(run: Any) -> None:
    with pytest.raises(TypeError, match="config must be a RedisConfig, or None, got str"):
        run(RedisSemaphore.get_acquired_stats(config="redis://localhost"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="directory must be a path"):
        run(LocalSemaphore.get_acquired_stats(directory=""))


def test_names_can_be_any_iterable(run: Any, name: str) -> None:
    async def program() -> None:
        async with MemorySemaphore(name=name, value=1).cm():
            assert list(await MemorySemaphore.get_acquired_stats(names=(each for each in [name]))) == [name]  # type: ignore[arg-type]

    run(program())


@pytest.mark.parametrize(
    "url, shown",
    [
        ("redis://host:6379/2", "redis://host:6379/2"),
        ("redis://:secret@host", "redis://***@host"),
        ("rediss://user:secret@host/1?ca=/ca.pem", "rediss://***@host/1?***"),
        ("redis://user:sec%3Fret@host", "redis://***@host"),
        ("redis+sentinel://:secret@a,b/mymaster", "redis+sentinel://***@a,b/mymaster"),
        ("unix:///run/redis.sock?pass=secret", "unix:///run/redis.sock?***"),
        ("unix:///run/redis.sock?pass=se@secret", "unix://***"),
    ],
)
def test_repr_and_errors_do_not_show_the_password(run: Any, url: str, shown: str) -> None:
    config = RedisConfig(url=url)
    sem: Any = RedisSemaphore(name="a", value=1, config=config)
    assert f"url={shown!r}" in repr(config) and repr(config) in repr(sem)
    with pytest.raises(TypeError, match="acquisition_id must be a str") as raised:
        run(sem.release(sem))
    for text in (repr(config), repr(sem), str(raised.value)):
        assert "secret" not in text and "sec%" not in text
    for same in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert same == config and hash(same) == hash(config) and same.url == url
    assert config != RedisConfig(url="redis://***@host")


@pytest.mark.parametrize("url", ["http://:secret@x", "localhost:6379", ":secret@host", "redis://:se?cret@host", "redis://"])
def test_invalid_url_is_refused_at_construction(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as raised:
        RedisConfig(url=url)
    assert "secret" not in str(raised.value) and "cret@" not in str(raised.value)


def test_namespace_of_a_cluster_is_checked_at_construction() -> None:
    with pytest.raises(ValueError, match="namespace .* needs a tag in braces"):
        RedisConfig(url="redis+cluster://a:7000")
