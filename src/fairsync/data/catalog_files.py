"""Read a catalog and targets from files: vectors of any library, the group of each item, and relevant items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairsync.catalog import Catalog
from fairsync.catalog.files import open_catalog
from fairsync.catalog.series import columns_of, typed
from fairsync.data.files import check_is_file
from fairsync.data.vectors import check_distinct, read_ids, read_vectors
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from os import PathLike

    from polars.datatypes import DataTypeClass


# Recognised column names. If a table has several of them, the first one is used.
_ITEMS = ("item", "item_id", "id", "product_id", "asin")
_GROUPS = ("group", "category", "label", "provider")
_USERS = ("user", "user_id", "request", "id", "customer_id", "household_id")


def read_catalog(items: str | PathLike[str], groups: str | PathLike[str] | None = None) -> Catalog:
    r"""Make a catalog from a file of vectors and a table of groups.

    Parameters
    ----------
    items
        File of vectors; see :func:`fairsync.data.read_vectors`.
    groups
        Parquet or CSV file with the columns ``item`` and ``group``; further columns are attributes. If the vectors have
        ids, rows are matched by id. Otherwise the rows are in the order of the vectors, and ``item`` is optional and
        gives the ids. If None, ``items`` is itself a catalog with all of it; see :func:`fairsync.open_catalog`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "items.npy", np.eye(3, dtype=np.float32))
    >>> _ = (folder / "groups.csv").write_text("item,group,new\ntea,drinks,true\njam,spreads,false\nmilk,drinks,true\n")
    >>> catalog = read_catalog(folder / "items.npy", folder / "groups.csv")
    >>> catalog.labels, catalog.ids.tolist(), catalog.select({"new": True}).rows.tolist()
    (['drinks', 'spreads'], ['tea', 'jam', 'milk'], [0, 2])
    """
    items = Path(items)
    if groups is None:
        if items.suffix.lower() in (".npy", ".pt", ".pth") and items.exists():
            raise InvalidInputError(f"{items} holds vectors only: give a table with the group of each item (--groups).")
        return open_catalog(items)
    groups = Path(groups)
    vectors = read_vectors(items)
    if vectors.ndim != 2:
        raise InvalidInputError(f"{items} has shape {vectors.shape}: an item has one vector, so they are (n, d).")
    ids, table = read_ids(items), _read_table(groups)
    group = _column(table, _GROUPS, groups)
    labels = table[group]
    _check_words(labels.dtype, labels.name, groups)
    lacking = labels.is_null() | (labels.cast(pl.String) == "")
    if lacking.any():
        row = lacking.arg_max()
        raise InvalidInputError(f"{groups}: the item in row {row} has no group: give every item its label.")
    named = next((name for name in _ITEMS if name in table.columns), None)
    names = table[named].to_list() if named else None
    if names is not None:
        check_distinct(names, groups)
    if ids is None and len(table) != len(vectors):
        raise InvalidInputError(
            f"{groups} has {len(table)} rows and {items} {len(vectors)} vectors: give each item its group, in the"
            " same order, or put ids into both files."
        )
    if ids is not None:
        if names is None:
            raise InvalidInputError(f"{items} has ids and {groups} has none: add a column 'item' with the same ids.")
        row_of = {str(name): row for row, name in enumerate(names)}
        lost = [name for name in ids if str(name) not in row_of]
        if lost:
            raise InvalidInputError(
                f"{groups} has no group for {len(lost)} of the {len(ids)} items, such as {lost[0]!r}: add them."
            )
        table = table[[row_of[str(name)] for name in ids]]
        names = ids
    further = table.drop(group, *([named] if named else []))
    if groups.suffix.lower() != ".parquet":
        further = further.with_columns(typed(one) for one in further)
    return Catalog(vectors, {group: table[group].to_list(), **columns_of(further, groups)}, names)


def read_targets(path: str | PathLike[str], users: str | PathLike[str]) -> list[list[Any]]:
    """Read the relevant items of each request: one list of item ids for each row of the file of users.

    Parameters
    ----------
    path
        Parquet or CSV file with a row for each target and the columns ``user`` (the id in the file of users, or the row
        number if it has no ids) and ``item``. Or a parquet file whose ``item`` is a list or an array; then ``user`` is
        optional if the rows are in the order of the users. Requests without targets do not count for accuracy.
    users
        File with the vectors of the requests.
    """
    path, users = Path(path), Path(users)
    ids = read_ids(users)
    rows = {str(name): row for row, name in enumerate(ids or range(len(read_vectors(users))))}
    table = _read_table(path)
    item = _column(table, _ITEMS, path)
    if isinstance(table.schema[item], pl.Array):
        table = table.with_columns(pl.col(item).arr.to_list())
    kind = table.schema[item]
    _check_words(kind.inner if isinstance(kind, pl.List) else kind, item, path)
    if isinstance(kind, pl.List):
        if not any(name in table.columns for name in _USERS if name != item):
            if len(table) != len(rows):
                raise InvalidInputError(
                    f"{path} has {len(table)} rows and {users} {len(rows)} requests: give one list for each, or a"
                    " column 'user'."
                )
            return [[what for what in one or [] if what is not None] for one in table[item].to_list()]
        table = table.explode(item)
    user = _column(table.drop(item), _USERS, path)
    targets: list[list[Any]] = [[] for _ in rows]
    for number, (who, what) in enumerate(table.select(user, item).iter_rows()):
        if str(who) not in rows:
            what_it_is = "an id" if ids else f"a row from 0 to {len(rows) - 1}"
            raise InvalidInputError(
                f"{path}: row {number} names the user {who!r}, which is not {what_it_is} of {users}."
            )
        if what is not None:
            targets[rows[str(who)]].append(what)
    return targets


def _read_table(path: Path) -> pl.DataFrame:
    check_is_file(path)
    try:
        return pl.read_parquet(path) if path.suffix.lower() == ".parquet" else pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        why = str(error).strip().split("\n")[0][:120]
        raise InvalidInputError(f"{path} cannot be read as parquet or CSV ({why}): write it again.") from error


def _column(table: pl.DataFrame, names: tuple[str, ...], path: Path) -> str:
    found = next((name for name in names if name in table.columns), None)
    if found is None:
        raise InvalidInputError(
            f"{path} has no column {names[0]!r}, only {', '.join(table.columns)}: rename the one that is meant."
        )
    return found


def _check_words(kind: pl.DataType | DataTypeClass, name: str, path: Path) -> None:
    """Refuse a column whose type can be neither an id nor a label."""
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise InvalidInputError(f"{path}: the column {name!r} holds {kind}: give text or whole numbers.")
