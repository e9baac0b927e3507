"""The base of all structs, and the types that they share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

JSON, MSGPACK = "application/json", "application/msgpack"

Label = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)] | Annotated[str, Meta(min_length=1, max_length=500)]
"""The label of a group or the id of an item: an integer or a string, as in the catalog; "7" is not 7."""
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f-\x9f]+(?![\s\S])"
"""The pattern of new ids and labels: as `fairsync.catalog.names` has it. "$" would allow a line end."""
NewLabel = (
    Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)]
    | Annotated[str, Meta(min_length=1, max_length=500, pattern=NO_CONTROL_CHARACTERS)]
)
"""A label or an id that may be new to the catalog. Others are compared with those that there are."""
Moment = Annotated[datetime, Meta(tz=True)]
"""A datetime with its offset from UTC."""
RequestId = Annotated[str, Meta(min_length=1, max_length=200)]


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all structs: immutable, without unknown fields."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # such as a float64 out of a computation
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


encode_json = msgspec.json.Encoder(enc_hook=_plain).encode
"""Encodes a struct, or a list of them; numpy scalars as plain numbers."""
