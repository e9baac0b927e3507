"""Readers of the file formats of a catalog: our own folder format, and single files (id, attributes, embedding)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairsync.atomic_write import check_path
from fairsync.catalog import Catalog, check_names
from fairsync.catalog.attributes import LabelColumn
from fairsync.catalog.catalog import GROUP, no_group
from fairsync.catalog.series import column_of, columns_of
from fairsync.catalog.table_files import EMBEDDING, ID, SUFFIXES, scan_table
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column

FILES = {"catalog.json", "embeddings.npy", "items.parquet"}
"""The files in the folder of a catalog."""

VERSION = 1
"""The version of the folder format. A folder with another version is refused."""

PREFIX = "attribute "
"""What the columns of attributes begin with in ``items.parquet``."""

_DAMAGE = (OSError, ValueError, EOFError, KeyError, TypeError, pl.exceptions.PolarsError)


class Reader(Protocol):
    """Reads a catalog from disk. Files that cannot be read raise `InvalidInputError`."""

    path: Path
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    saved: tuple[str, tuple[int, ...]] | None
    """The saved fingerprint (``names`` and ``blocks``), if there is one."""
    written_at: float
    """When it was written, in seconds since 1970."""
    changes: int | None
    """Number of the latest change of a service's items that is in it, if it was saved."""

    def names(self) -> Catalog:
        """Return a catalog with the ids, groups and attributes. Its embeddings are placeholders."""
        ...

    def embeddings(self) -> NDArray[np.floating[Any]]:
        """Return all embeddings, memory-mapped where the format allows it."""
        ...

    def block(self, at: slice) -> NDArray[np.floating[Any]]:
        """Read some rows into memory."""
        ...


def make_reader(path: str | os.PathLike[str]) -> Reader:
    """Return the reader for this path. Only sizes and types are read at this point."""
    path = check_path(path).resolve()
    if not path.exists():
        raise InvalidInputError(
            f"{path} does not exist: check the path; on a cluster, every node must be able to read it."
        )
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(
            f"{path} is no catalog: give a folder that save_catalog wrote, or a file that ends in"
            f" {', '.join(SUFFIXES)}."
        )
    try:
        return FolderReader(path) if path.is_dir() else TableReader(path)
    except InvalidInputError:
        raise
    except _DAMAGE as error:
        raise _damaged(path, error) from error


class FolderReader:
    """Reads a folder that `save_catalog` wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lacking = [name for name in sorted(FILES) if not (path / name).is_file()]
        if lacking:
            model = f": it is a model; write its items with 'fairsync export {path} --out items'"
            hint = model if (path / "weights.npz").is_file() else ": write it with save_catalog"
            raise InvalidInputError(f"{path} is no catalog (no {', no '.join(lacking)}){hint}.")
        words = json.loads((path / "catalog.json").read_text(encoding="utf-8"))
        if words["version"] != VERSION:
            raise InvalidInputError(f"{path} has version {words['version']}, this program reads {VERSION}: save again.")
        self.shape, self.dtype = (int(words["items"]), int(words["dim"])), np.dtype(words["dtype"])
        self.labels = list(words["labels"])
        self.group_attribute = str(words.get("group_attribute", "group"))
        self._normalized = bool(words.get("normalized", False))
        self.saved: tuple[str, tuple[int, ...]] | None = (str(words["names"]), tuple(words["blocks"]))
        self.changes = None if words.get("changes") is None else int(words["changes"])
        self.written_at = (path / "catalog.json").stat().st_mtime
        paged = np.load(path / "embeddings.npy", mmap_mode="r", allow_pickle=False)
        if (paged.shape, paged.dtype) != (self.shape, self.dtype) or not paged.flags.c_contiguous:
            raise InvalidInputError(
                f"{path}/embeddings.npy holds {paged.shape} of {paged.dtype} where {self.shape} of {self.dtype} was"
                " saved: save the catalog again."
            )
        self._paged: np.memmap[Any, np.dtype[np.floating[Any]]] = paged

    def names(self) -> Catalog:
        """Return ids and groups, see `Reader`."""
        try:
            items = pl.read_parquet(self.path / "items.parquet")
            codes = items["group"].to_numpy()
            if len(items) != self.shape[0] or codes.min() < 0 or codes.max() >= len(self.labels):
                raise ValueError(f"{len(items)} items")
            ids = check_names(items["id"].to_list(), len(items), "ids", "id")
            check_names(self.labels, None, "groups", "label")
            others = {
                name.removeprefix(PREFIX): column_of(name.removeprefix(PREFIX), items[name])
                for name in items.columns
                if name.startswith(PREFIX)
            }
            return Catalog.from_codes(
                _nothing(len(ids)), codes, self.labels, ids, others, self.group_attribute, normalized=self._normalized
            )
        except _DAMAGE as error:
            raise _damaged(self.path / "items.parquet", error) from error

    def embeddings(self) -> NDArray[np.floating[Any]]:
        """Return the memory-mapped embeddings, see `Reader`."""
        return self._paged

    def block(self, at: slice) -> NDArray[np.floating[Any]]:
        """Return some rows, see `Reader`."""
        # Read, not memory-mapped: a disk error then raises an exception instead of killing the process (SIGBUS).
        try:
            row = self.shape[1] * self.dtype.itemsize
            values = np.fromfile(
                self.path / "embeddings.npy",
                self.dtype,
                count=(at.stop - at.start) * self.shape[1],
                offset=self._paged.offset + at.start * row,
            )
            return values.reshape(-1, self.shape[1])
        except _DAMAGE as error:
            raise _damaged(self.path / "embeddings.npy", error) from error


class TableReader:
    """Reads a single file with the columns id and embedding; all others are attributes.

    The group is the column ``group`` or, if there is none, the first with one text or whole number per item. A column
    that cannot be an attribute, such as dates, is left out with a warning.
    """

    saved: tuple[str, tuple[int, ...]] | None = None
    changes: int | None = None

    def __init__(self, path: Path) -> None:
        self.path, self.written_at = path, path.stat().st_mtime
        self._table = scan_table(path)
        schema = self._table.collect_schema()
        lacking = [name for name in (ID, EMBEDDING) if name not in schema]
        if lacking:
            raise InvalidInputError(
                f"{path} has no column {lacking[0]!r}: a catalog has the columns {ID}, {EMBEDDING} and attributes."
            )
        kind = schema[EMBEDDING]
        inner = kind.inner if isinstance(kind, pl.List | pl.Array) else None
        if inner not in (pl.Float32, pl.Float64):
            raise InvalidInputError(f"{path}: 'embedding' must hold lists of float32 or float64, not {kind}: cast it.")
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if inner == pl.Float32 else np.float64)
        items = int(self._table.select(pl.len()).collect().item())
        if items == 0:
            raise InvalidInputError(f"{path} is empty: a catalog needs at least one item.")
        first = self._table.select(EMBEDDING).slice(0, 1).collect()[EMBEDDING][0]
        self.shape = (items, 0 if first is None else len(first))

    def names(self) -> Catalog:
        """Return ids, groups and attributes, see `Reader`."""
        try:
            items = self._table.select(pl.exclude(EMBEDDING)).collect()
        except _DAMAGE as error:
            raise _damaged(self.path, error) from error
        try:
            ids = check_names(items[ID].to_list(), len(items), "ids", "id")
            columns = columns_of(items.drop(ID), self.path, needed=GROUP)
            group = self._group(items, columns)
            labels = columns.pop(group)
            assert isinstance(labels, LabelColumn)
            return Catalog.from_codes(_nothing(len(ids)), labels.codes, [*labels.labels], ids, columns, group)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.path}: {error}") from error

    def _group(self, items: pl.DataFrame, columns: dict[str, Column]) -> str:
        fit = [name for name, one in columns.items() if isinstance(one, LabelColumn) and one.kind in ("str", "int")]
        if GROUP in columns and GROUP not in fit:
            check_names(items[GROUP].to_list(), len(items), "groups", "label")
        for name in columns if GROUP not in fit else ():
            if name in fit:
                break
            if columns[name].kind in ("str", "int") and not items[name].dtype.is_nested():
                raise InvalidInputError(no_group(name, int(items[name].is_null().arg_max() or 0)))
        if not fit:
            raise InvalidInputError(
                f"there is no column {GROUP!r}, and no other with one text or whole number per item: add one."
            )
        return GROUP if GROUP in fit else fit[0]

    def embeddings(self) -> NDArray[np.floating[Any]]:
        """Return all embeddings, see `Reader`."""
        whole = self.block(slice(0, self.shape[0]))
        try:
            return Catalog(whole, np.zeros(len(whole), dtype=np.int64)).embeddings
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.path}: {error}") from error

    def block(self, at: slice) -> NDArray[np.floating[Any]]:
        """Return some rows, see `Reader`."""
        try:
            column = self._table.select(EMBEDDING).slice(at.start, at.stop - at.start).collect()[EMBEDDING]
        except _DAMAGE as error:
            raise _damaged(self.path, error) from error
        lists = column.arr.to_list() if isinstance(column.dtype, pl.Array) else column
        unlike = np.flatnonzero(lists.list.len().fill_null(0).to_numpy() != self.shape[1])
        if len(unlike) or self.shape[1] == 0:
            row = at.start + (int(unlike[0]) if len(unlike) else 0)
            raise InvalidInputError(f"{self.path}: the embedding in row {row} is empty or unlike the first in length.")
        values = lists.explode().fill_null(np.nan).to_numpy()
        return values.reshape(-1, self.shape[1]).astype(self.dtype, copy=False)


def _nothing(items: int) -> NDArray[np.float16]:
    return np.zeros((items, 1), dtype=np.float16)


def _damaged(path: Path, error: Exception) -> InvalidInputError:
    said = (str(error).strip() or type(error).__name__).split("\n")[0][:120]
    return InvalidInputError(f"{path} cannot be read ({said}): it is damaged or incomplete. Write it again.")
