"""Checks of arguments. An error names the argument, the values it accepts and the value it got."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Collection
from typing import Any

# Raises TypeError or ValueError if the value is not valid for the field.
Check = Callable[[str, Any], None]


def text(*, or_none: bool = False, may_be_empty: bool = False, is_secret: bool = False) -> Check:
    wanted = ("a str" if may_be_empty else "a non-empty str") + (", or None" if or_none else "")

    def check(field: str, given: Any) -> None:
        if isinstance(given, str):
            if not given and not may_be_empty:
                raise ValueError(f"{field} must be {wanted}, got ''")
        elif given is not None or not or_none:
            raise TypeError(f"{field} must be {wanted}, got {type(given).__name__ if is_secret else repr(given)}")

    return check


def whole(least: int, *, below: int = 2**32, or_none: bool = False) -> Check:
    wanted = f"an int of at least {least}" + (", or None" if or_none else "")

    def check(field: str, given: Any) -> None:
        if type(given) is int and least <= given < below:
            return
        if given is None and or_none:
            return
        if isinstance(given, bool) or not hasattr(type(given), "__index__"):
            raise TypeError(f"{field} must be {wanted}, got {given!r}")
        number = operator.index(given)
        if number < least:
            raise ValueError(f"{field} must be at least {least}, got {number}")
        if number >= below:
            raise ValueError(f"{field} must be from {least} to {below - 1}, got {number}")

    return check


def seconds(*, may_be_zero: bool = False, may_be_infinite: bool = False, or_none: bool = False) -> Check:
    """`may_be_infinite`: for fields where infinity means "no limit"."""
    wanted = "a number of seconds " + ("of at least 0" if may_be_zero else "greater than 0")
    wanted += "" if may_be_infinite else " and less than infinity"
    wanted += ", or None" if or_none else ""

    def check(field: str, given: Any) -> None:
        if (type(given) is int or type(given) is float) and 0 < given < 2**64:
            return
        if given is None and or_none:
            return
        # str and timedelta have neither method.
        is_number = hasattr(type(given), "__float__") or hasattr(type(given), "__index__")
        if not is_number or isinstance(given, bool):
            raise TypeError(f"{field} must be {wanted}, got {given!r}")
        try:
            number = float(given)
        except OverflowError:
            number = math.nan
        is_long_enough = number > 0 or (number == 0 and may_be_zero)
        if not is_long_enough or (number == math.inf and not may_be_infinite):
            raise ValueError(f"{field} must be {wanted}, got {given!r}")

    return check


def flag(field: str, given: Any) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"{field} must be True or False, got {given!r}")


def path(*, or_none: bool = False) -> Check:
    wanted = "a path, as a str or an os.PathLike" + (", or None" if or_none else "")

    def check(field: str, given: Any) -> None:
        if given is None and or_none:
            return
        if not is_path(given):
            raise TypeError(f"{field} must be {wanted}, got {given!r}")
        if not os.fspath(given):
            raise ValueError(f"{field} must be {wanted}, and not empty, got {given!r}")

    return check


def patterns(field: str, given: Any) -> None:
    """One pattern or a collection of patterns."""
    if isinstance(given, str):
        return
    # A second purge would find an iterator empty.
    if not isinstance(given, Collection) or not all(map(is_path, given)):
        raise TypeError(f"{field} must be a pattern, or a list of patterns, each of them a str, got {given!r}")


def is_path(given: Any) -> bool:
    return isinstance(given, str) or (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str))


def function(field: str, given: Any) -> None:
    if given is not None and not callable(given):
        raise TypeError(f"{field} must be a callable, or None, got {given!r}")


def instance(kind: type[Any], *, or_none: bool = False) -> Check:
    """The error shows only the type of the value: the value itself may contain a password."""
    wanted = f"a {kind.__name__}" + (", or None" if or_none else "")

    def check(field: str, given: Any) -> None:
        if not isinstance(given, kind) and (given is not None or not or_none):
            raise TypeError(f"{field} must be {wanted}, got {type(given).__name__}")

    return check


def names(given: Any) -> list[str] | None:
    """Returns the `names` argument of the statistics as a list."""
    if given is None:
        return None
    is_several = not isinstance(given, (str, bytes)) and hasattr(given, "__iter__")
    several = list(given) if is_several else []
    if not is_several or not all(isinstance(name, str) for name in several):
        raise TypeError(f"names must be a list of names, or None, got {given!r}")
    return several


def acquisition_id(given: Any, *, or_none: bool = False) -> None:
    if isinstance(given, str) or (given is None and or_none):
        return
    if hasattr(given, "acquisition_id"):
        raise TypeError(f"acquisition_id must be a str: pass the result's acquisition_id, not {given!r}")
    raise TypeError(f"acquisition_id must be a str{', or None' if or_none else ''}, got {given!r}")


limit = whole(0, below=2**63)
