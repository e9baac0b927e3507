"""Read vectors from files of numpy, parquet and torch."""

from __future__ import annotations

import importlib.util
import pickle
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.data.files import check_is_file
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

SUFFIXES = (".npy", ".npz", ".parquet", ".pt", ".pth")
"""File types that :func:`read_vectors` reads."""

IDS = ("id", "ids", "item", "item_id", "product_id", "asin", "user", "user_id", "customer_id", "household_id")
"""Recognised names of an id column. If a table has several, the first one is used."""

_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    pickle.UnpicklingError,
    RuntimeError,
    pl.exceptions.PolarsError,
)


def read_vectors(path: str | PathLike[str]) -> NDArray[np.floating[Any]]:
    """Read the vectors of items or users, ready for a catalog or a retriever.

    No code in a file is executed: numpy files are read without pickle, and torch files with ``weights_only``.

    Parameters
    ----------
    path
        ``.npy``: one array. ``.npz``: an array named ``vectors``, or a single array (beside ``ids``). ``.parquet``: a
        column of lists, or one column of numbers for each dimension (beside a column of ids, see :data:`IDS`).
        ``.pt``: a tensor, or a dict with a single matrix, such as the state of an embedding; needs torch.

    Returns
    -------
    numpy.ndarray
        (n, d), or (n, interests, d) for users with several vectors. Floats keep their type, integers become float32.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.parquet"
    >>> pl.DataFrame({"item": ["tea", "jam"], "vector": [[0.5, 1.0], [2.0, 0.0]]}).write_parquet(path)
    >>> read_vectors(path).tolist(), read_ids(path)
    ([[0.5, 1.0], [2.0, 0.0]], ['tea', 'jam'])
    """
    path = Path(path)
    kind = _kind(path)
    try:
        if kind == ".parquet":
            array = _from_table(pl.read_parquet(path), path)
        elif kind in (".pt", ".pth"):
            array = _from_torch(path)
        else:
            array = _pick(_numpy_arrays(path), path)
    except InvalidInputError:
        raise
    except _DAMAGE as error:
        raise InvalidInputError(f"{path} cannot be read ({_first_line(error)}): write it again.") from error
    return _checked(array, path)


def read_ids(path: str | PathLike[str]) -> list[str] | list[int] | None:
    """Return the ids of the vectors in a file, in order, or None if it has none.

    They are a column of a parquet file, or the array ``ids`` of an ``.npz`` file.
    """
    path = Path(path)
    kind = _kind(path)
    try:
        if kind == ".npz":
            arrays = _numpy_arrays(path)
            given = arrays["ids"].tolist() if "ids" in arrays else None
        elif kind == ".parquet":
            name = id_column(pl.read_parquet_schema(path))
            given = pl.read_parquet(path, columns=[name])[name].to_list() if name else None
        else:
            given = None
    except _DAMAGE as error:
        raise InvalidInputError(f"{path} cannot be read ({_first_line(error)}): write it again.") from error
    if given is not None:
        check_distinct(given, path)
    return given


def id_column(columns: Any) -> str | None:
    """Return the name of the id column, or None."""
    return next((name for name in IDS if name in columns), None)


def check_distinct(ids: list[Any], path: Path) -> None:
    """Refuse ids that are repeated, or are neither text nor integers."""
    first: dict[Any, int] = {}
    for row, name in enumerate(ids):
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise InvalidInputError(f"{path}: the id in row {row} is {name!r}; ids must be text or whole numbers.")
        if name in first:
            raise InvalidInputError(f"{path}: the id {name!r} is in rows {first[name]} and {row}: drop one of them.")
        first[name] = row


def _kind(path: Path) -> str:
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{path}: vectors are read from {', '.join(SUFFIXES)}: save them as one of these.")
    check_is_file(path)
    return path.suffix.lower()


def _numpy_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name."""
    with path.open("rb") as file:  # opened here, so that it is closed even if it is damaged
        read = np.load(file, allow_pickle=False)
        return {"vectors": read} if isinstance(read, np.ndarray) else dict(read)


def _from_torch(path: Path) -> NDArray[Any]:
    if importlib.util.find_spec("torch") is None:
        raise InvalidInputError(
            f"{path} is read by torch: pip install 'fairsync[models]', or save it with numpy.save as .npy."
        )
    import torch

    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types of errors for damaged files
        raise InvalidInputError(f"{path} cannot be read by torch: save the tensor itself, torch.save(...).") from error
    if isinstance(read, torch.Tensor):
        read = {"vectors": read}
    if not isinstance(read, dict):
        raise InvalidInputError(
            f"{path} holds a {type(read).__name__}: save the tensor itself, torch.save(tensor, ...)."
        )
    picked = _pick({name: one.detach() for name, one in read.items() if isinstance(one, torch.Tensor)}, path)
    try:
        # numpy has no bfloat16.
        return np.asarray((picked.float() if picked.dtype is torch.bfloat16 else picked).numpy())
    except (TypeError, RuntimeError) as error:  # sparse, quantised, on no device, ...
        raise InvalidInputError(
            f"{path} holds a tensor that numpy cannot hold ({_first_line(error)}): save a plain one,"
            " tensor.to_dense().float()."
        ) from error


def _pick(arrays: dict[str, Any], path: Path) -> Any:
    """Return the array or tensor named "vectors", or the only matrix."""
    if "vectors" in arrays:
        return arrays["vectors"]
    matrices = [name for name, array in arrays.items() if array.ndim in (2, 3)]
    if len(matrices) != 1:
        names = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items()) or "nothing"
        raise InvalidInputError(f"{path} holds {names}: call the array that is meant 'vectors'.")
    return arrays[matrices[0]]


def _from_table(table: pl.DataFrame, path: Path) -> NDArray[Any]:
    """Return the column of lists, or else the columns of numbers as a matrix."""
    ids = id_column(table.columns)
    rest = table.drop(ids) if ids else table
    nested = [name for name, kind in rest.schema.items() if isinstance(kind, pl.List | pl.Array)]
    if len(nested) > 1:
        raise InvalidInputError(f"{path} has {len(nested)} columns of lists ({', '.join(nested)}): keep the one meant.")
    unknown = [name for name, kind in rest.schema.items() if (nested and name not in nested) or kind.is_integer()]
    if unknown and (nested or len(unknown) < rest.width):  # an unrecognised id column would be read as a dimension
        raise InvalidInputError(
            f"{path}: is the column {unknown[0]!r} one of ids? Call it {IDS[0]!r}; else leave it out, or give floats."
        )
    if nested:
        return _from_lists(rest[nested[0]], path)
    others = [name for name, kind in rest.schema.items() if not kind.is_numeric()]
    if others or not rest.width:
        raise InvalidInputError(
            f"{path}: {f'the column {others[0]!r} holds no numbers' if others else 'there is no column of numbers'};"
            f" keep the vectors, and one column of ids, called {IDS[0]!r}."
        )
    return rest.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _from_lists(column: pl.Series, path: Path) -> NDArray[Any]:
    """Return lists (of lists) of equal length as one array."""
    shape = [len(column)]
    while isinstance(column.dtype, pl.List | pl.Array):
        if isinstance(column.dtype, pl.Array):
            column = column.arr.to_list()
        lengths = column.list.len().fill_null(0).to_numpy()
        unlike = np.flatnonzero(lengths != lengths[:1])
        if len(unlike) or not lengths.any():
            row = int(unlike[0]) * shape[0] // len(column) if len(unlike) else 0
            raise InvalidInputError(f"{path}: the vector in row {row} differs in length from the first, or is empty.")
        shape.append(int(lengths[0]))
        column = column.explode()
    if not column.dtype.is_numeric():
        raise InvalidInputError(f"{path}: the lists hold {column.dtype}, not numbers.")
    kept = column if column.dtype == pl.Float32 else column.cast(pl.Float64)
    return kept.fill_null(np.nan).to_numpy().reshape(shape)


def _checked(array: NDArray[Any], path: Path) -> NDArray[np.floating[Any]]:
    if array.ndim not in (2, 3):
        raise InvalidInputError(f"{path} has shape {array.shape}: vectors are (n, d), or (n, interests, d).")
    if array.size == 0:
        raise InvalidInputError(f"{path} is empty (shape {array.shape}): give at least one vector.")
    if array.dtype.kind in "iu":
        array = array.astype(np.float32)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InvalidInputError(f"{path} holds {array.dtype}: convert it to float32.")
    bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    if len(bad):
        more = f" (and in {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise InvalidInputError(f"{path} has a NaN or an infinite value in row {bad[0]}{more}: remove or repair it.")
    return np.ascontiguousarray(array)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:120] or type(error).__name__
