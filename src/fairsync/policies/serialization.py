"""Serialization of policy states: a state as bytes, to be saved across a restart.

A state is made of numbers, strings, None, arrays, tuples and the classes that its policy lists in ``state_classes``
(dataclasses and named tuples). Only those classes are ever constructed from bytes, and only from such values: write
access to a ledger is no way to execute code.
"""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.policies.base import Policy

_FORMAT = 1


def dump_state(policy: Policy, state: Any) -> bytes:
    """Return the state of a policy as bytes.

    Examples
    --------
    >>> from fairsync.policies import FairSync, Terms
    >>> policy = FairSync()
    >>> state = policy.start(Terms(np.array([5, 0]), np.array([2, 2]), k=2, horizon=10, batch_size=1))
    >>> load_state(policy, dump_state(policy, state)).prices
    array([0., 0.])
    """
    return dump_value(state, _state_classes(policy))


def load_state(policy: Policy, data: bytes) -> Any:
    """Return the state of a policy from the bytes of `dump_state`."""
    return load_value(data, _state_classes(policy))


def dump_value(value: Any, classes: Iterable[type]) -> bytes:
    """Return a value as bytes. It is made of numbers, strings, None, arrays, tuples and objects of these classes."""
    arrays: list[np.ndarray[Any, Any]] = []
    shape = json.dumps({"format": _FORMAT, "state": _take_apart(value, _by_name(classes), arrays)})
    buffer = io.BytesIO()
    named = {f"a{number}": array for number, array in enumerate(arrays)}
    np.savez(buffer, shape=np.frombuffer(shape.encode(), dtype=np.uint8), **named)  # type: ignore[arg-type]
    return buffer.getvalue()


def load_value(data: bytes, classes: Iterable[type]) -> Any:
    """Return a value from the bytes of `dump_value`. Only objects of these classes are constructed."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            document = json.loads(archive["shape"].tobytes())
            if document["format"] != _FORMAT:
                raise InvalidInputError(f"the policy's state is of format {document['format']}, not {_FORMAT}.")
            return _put_together(document["state"], _by_name(classes), archive)
    except InvalidInputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"the policy's state cannot be read: {error}") from error


def _state_classes(policy: Policy) -> Iterable[type]:
    classes: Iterable[type] = getattr(policy, "state_classes", ())
    return classes


def _by_name(classes: Iterable[type]) -> dict[str, type]:
    return {cls.__name__: cls for cls in classes}


def _take_apart(value: Any, classes: Mapping[str, type], arrays: list[np.ndarray[Any, Any]]) -> Any:
    kind = type(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if kind is tuple:
        return {"tuple": [_take_apart(part, classes, arrays) for part in value]}
    if classes.get(kind.__name__) is kind:
        names = [part.name for part in fields(kind)] if is_dataclass(kind) else kind._fields
        parts = {name: _take_apart(getattr(value, name), classes, arrays) for name in names}
        return {"class": kind.__name__, "fields": parts}
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidInputError(
        f"the policy's state holds a {kind.__name__}, which cannot be saved: a state is made of numbers, arrays, tuples"
        " and the dataclasses or named tuples that the policy lists in its attribute state_classes."
    )


def _put_together(value: Any, classes: Mapping[str, type], archive: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return archive[f"a{value['array']}"]
    if "tuple" in value:
        return tuple(_put_together(part, classes, archive) for part in value["tuple"])
    if value["class"] not in classes:
        raise InvalidInputError(
            f"the saved state holds a {value['class']}, which is not in the policy's state_classes."
        )
    parts = {name: _put_together(part, classes, archive) for name, part in value["fields"].items()}
    return classes[value["class"]](**parts)
