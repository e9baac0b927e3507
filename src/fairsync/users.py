"""Requests as vectors: what may be given for ``users``."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.errors import InvalidInputError


def check_users(users: npt.ArrayLike, dim: int) -> npt.NDArray[np.floating[Any]]:
    """Return users as (n, interests, d) floats, or say what is wrong with them.

    Examples
    --------
    >>> check_users(np.ones((5, 8), dtype=np.float32), dim=8).shape
    (5, 1, 8)
    >>> check_users(np.ones((5, 4, 8)), dim=8).shape
    (5, 4, 8)
    """
    array = np.asarray(users)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InvalidInputError(f"users must be floats (float16, float32 or float64), got dtype {array.dtype}.")
    if array.ndim == 1:
        raise InvalidInputError(f"users must be (n, d) or (n, interests, d), got one vector of {len(array)}; use users[None, :].")
    if array.ndim not in (2, 3):
        raise InvalidInputError(f"users must be (n, d) or (n, interests, d), got shape {array.shape}.")
    if array.shape[-1] != dim:
        raise InvalidInputError(f"users have {array.shape[-1]} dimensions, the catalog's embeddings {dim}: they must agree.")
    if array.ndim == 2:
        array = array[:, None, :]
    if array.shape[1] == 0:
        raise InvalidInputError("users have no interest vectors: each request needs at least one.")
    bad = np.flatnonzero(~np.isfinite(array).all(axis=(1, 2)))
    if len(bad):
        raise InvalidInputError(f"the vector of request {bad[0]} has a NaN or infinite value ({len(bad)} such requests).")
    return array
