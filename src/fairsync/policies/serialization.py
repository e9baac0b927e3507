"""What a policy has learnt, as bytes: to be kept across a restart, or sent to another machine."""

import io
import json
import zipfile
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.policies.base import Sample
from fairsync.policies.fairsync import FairSyncState
from fairsync.policies.guaranteed import GuaranteedState
from fairsync.policies.subsidy_solver import Solution

# Only these are ever made from bytes, and only of numbers: whoever can write a ledger cannot run code by it.
_CLASSES = {made.__name__: made for made in (FairSyncState, GuaranteedState, Sample, Solution)}
_FORMAT = 1


def dump_state(state: Any) -> bytes:
    """Return the state of a policy as bytes.

    Examples
    --------
    >>> state = FairSyncState(np.ones(2), np.zeros(2), np.zeros(2), 7)
    >>> load_state(dump_state(state)).prices
    array([1., 1.])
    """
    arrays: list[np.ndarray[Any, Any]] = []
    shape = json.dumps({"format": _FORMAT, "state": _take_apart(state, arrays)})
    buffer = io.BytesIO()
    named = {f"a{number}": array for number, array in enumerate(arrays)}
    np.savez(buffer, shape=np.frombuffer(shape.encode(), dtype=np.uint8), **named)  # type: ignore[arg-type]
    return buffer.getvalue()


def load_state(data: bytes) -> Any:
    """Return the state that was made into these bytes."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            document = json.loads(archive["shape"].tobytes())
            if document["format"] != _FORMAT:
                raise InvalidInputError(f"the policy's state is of format {document['format']}, not {_FORMAT}.")
            return _put_together(document["state"], archive)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"the policy's state cannot be read: {error}") from error


def _take_apart(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return {"tuple": [_take_apart(part, arrays) for part in value]}
    if is_dataclass(value) and type(value).__name__ in _CLASSES:
        parts = {part.name: _take_apart(getattr(value, part.name), arrays) for part in fields(value)}
        return {"class": type(value).__name__, "fields": parts}
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidInputError(f"a {type(value).__name__} cannot be kept: a policy's state is made of numbers and arrays.")


def _put_together(value: Any, archive: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return archive[f"a{value['array']}"]
    if "tuple" in value:
        return tuple(_put_together(part, archive) for part in value["tuple"])
    return _CLASSES[value["class"]](
        **{name: _put_together(part, archive) for name, part in value["fields"].items()},
    )
