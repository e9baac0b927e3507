"""Validation errors of msgspec as messages for people: the place in front, and the values that are allowed."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from fairsync.text import did_you_mean

# Messages quote at most this many characters of a body.
_LONGEST_REASON = 200
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`\.")


def describe(error: msgspec.ValidationError, kind: Any = None) -> str:
    """Return the message of a validation error.

    Parameters
    ----------
    error
        The error.
    kind
        The struct that was decoded: of a field with few values, the message names them, and for an unknown field a
        close one, or all.

    Examples
    --------
    >>> describe(msgspec.ValidationError("Expected `int`, got `str` - at `$.window.floor`"))
    'window.floor: Expected `int`, got `str`.'
    >>> from fairsync.service.schema import PromiseList
    >>> describe(msgspec.ValidationError("Invalid enum value 'x' - at `$.promises[...].window.every`"), PromiseList)
    "promises[...].window.every: Invalid enum value 'x': use 'hour', 'day', 'week' or 'campaign'."
    >>> describe(msgspec.ValidationError("Object contains unknown field `at_lest` - at `$.promises[...]`"), PromiseList)
    "promises[...]: Object contains unknown field `at_lest`. Did you mean 'at_least'?"
    """
    reason, _, place = str(error).partition(" - at `$")
    reason, place = reason[:_LONGEST_REASON], place.removesuffix("`").removeprefix(".")[:_LONGEST_REASON]
    if reason.startswith("Invalid enum value") and (allowed := choices_at(kind, place)):
        *first, last = map(repr, allowed)
        reason += f": use {', '.join(first)} or {last}" if first else f": use {last}"
    reason += "."
    if (unknown := _UNKNOWN_FIELD.fullmatch(reason)) and (fields := _fields_at(kind, place)):
        reason += " " + did_you_mean(unknown[1], fields, f"There are {', '.join(fields)}.")
    return f"{place}: {reason}" if place else reason


def choices_at(kind: Any, place: str) -> tuple[Any, ...]:
    """Return the values that a place of a struct may have; none if it may have others than a few.

    Examples
    --------
    >>> from fairsync.service.schema import PromiseRecord
    >>> choices_at(PromiseRecord, "window.every"), choices_at(PromiseRecord, "name")
    (('hour', 'day', 'week', 'campaign'), ())
    """
    return tuple(value for one in _kinds_at(kind, place) if get_origin(one) is Literal for value in get_args(one))


def _fields_at(kind: Any, place: str) -> list[str]:
    """Return the names of the fields of the structs at a place of a struct."""
    structs = (one for one in _kinds_at(kind, place) if isinstance(one, type) and issubclass(one, msgspec.Struct))
    return [field.encode_name for one in structs for field in msgspec.structs.fields(one)]


def _kinds_at(kind: Any, place: str) -> list[Any]:
    """Return the types that a value at a place of a struct may have."""
    kinds = _members(kind)
    for step in re.findall(r"\[[^\]]*\]|[^.\[\]]+", place):
        found: list[Any] = []
        for one in kinds:
            if step.startswith("["):
                found += _members(*get_args(one)[-1:]) if get_args(one) else []
            elif isinstance(one, type) and issubclass(one, msgspec.Struct):
                found += [
                    part for field in msgspec.structs.fields(one) if field.name == step for part in _members(field.type)
                ]
        kinds = found
    return kinds


def _members(kind: Any) -> list[Any]:
    """Return the types of a union, without what annotates them."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [part for one in get_args(kind) for part in _members(one)]
    return [kind]
