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


def plain_value(value: Any) -> Any:
    """Return a value of numpy as a plain one, for encoders. Raises TypeError for others.

    Examples
    --------
    >>> plain_value(np.float32(0.1)), plain_value(np.array(["a", "b"])), plain_value(np.True_)
    (0.1, ['a', 'b'], True)
    """
    if isinstance(value, np.floating):
        return float(str(value))  # float32 0.1 is a tenth, too
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind != "f" else [plain_value(one) for one in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


encode_json = msgspec.json.Encoder(enc_hook=plain_value).encode
"""Encodes a struct, or a list of them; numpy scalars and arrays as plain numbers and lists."""
encode_msgpack = msgspec.msgpack.Encoder(enc_hook=plain_value).encode
"""The same in MessagePack."""
