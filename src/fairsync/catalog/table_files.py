"""A catalog in a single file: a table of ids, attributes and embeddings, as parquet, CSV or numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.atomic_write import atomic_file
from fairsync.catalog.catalog import GROUP
from fairsync.catalog.names import are_words
from fairsync.catalog.series import series_of, typed
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.catalog.catalog import Catalog

SUFFIXES = (".parquet", ".csv", ".npz")
"""File types that can hold a catalog."""

ID, EMBEDDING = "id", "embedding"
"""The columns that are no attributes."""

# Other common names of the two columns, which are used if those above are not there.
_IDS = ("ids", "item", "item_id", "product_id", "asin")
_EMBEDDINGS = ("embeddings", "vector", "vectors")


def scan_table(path: Path) -> pl.LazyFrame:
    r"""Return a file as a table with the columns ``id`` and ``embedding``, if it has them under one of their names.

    Parquet is read when columns are asked for. In CSV an embedding is a list of numbers (``"0.5 1.0"``, ``"[0.5,
    1.0]"``), ids and groups are text, and other columns are what all of their text means (``true``, ``7``, ``0.5``,
    ``["a", "b"]``). A numpy file has an array for each column.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "items.csv"
    >>> _ = path.write_text("item,group,new,embedding\n7,a,true,0.5 1\n8,b,false,2 0\n")
    >>> scan_table(path).collect().rows()
    [('7', 'a', True, [0.5, 1.0]), ('8', 'b', False, [2.0, 0.0])]
    """
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _named(pl.scan_parquet(path))
    if kind == ".csv":
        table = _named(pl.read_csv(path, infer_schema=False).lazy()).collect()
        columns = [_numbers(one, path) if one.name == EMBEDDING else _typed(one) for one in table]
        return pl.DataFrame(columns).lazy()
    with path.open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise InvalidInputError(f"{path} holds one array: save several, numpy.savez(path, id=..., embedding=...).")
        named = {name: arrays[name] for name in arrays.files}
    return _named(pl.DataFrame({name: pl.Series(name, array) for name, array in named.items()}).lazy())


def write_table(catalog: Catalog, path: Path) -> None:
    """Write a catalog to a parquet file that `scan_table` reads. Embeddings of float16 become float32."""
    taken = {ID, EMBEDDING} | ({GROUP} if catalog.group_attribute != GROUP else set())
    if clash := sorted(taken & set(catalog.attributes)):
        raise InvalidInputError(f"{path}: the attribute {clash[0]!r} has the name of another column: save to a folder.")
    vectors = catalog.embeddings
    if vectors.dtype == np.float16:
        vectors = vectors.astype(np.float32)
    columns = {name: series_of(column) for name, column in catalog.attributes.items()}
    with atomic_file(path) as part:
        pl.DataFrame({ID: id_series(catalog.ids), **columns, EMBEDDING: pl.Series(vectors)}).write_parquet(part)


def id_series(ids: NDArray[Any]) -> pl.Series:
    """Return item ids as a column."""
    return pl.Series(ids.tolist(), dtype=pl.String) if are_words(ids) else pl.Series(ids)


def _named(table: pl.LazyFrame) -> pl.LazyFrame:
    columns = table.collect_schema().names()
    renamed = {}
    for ours, others in ((ID, _IDS), (EMBEDDING, _EMBEDDINGS)):
        found = next((name for name in others if name in columns), None)
        if ours not in columns and found is not None:
            renamed[found] = ours
    return table.rename(renamed)


def _typed(texts: pl.Series) -> pl.Series:
    return texts if texts.name in (ID, GROUP) else typed(texts)


def _numbers(texts: pl.Series, path: Path) -> pl.Series:
    """Return lists of numbers, written with spaces, commas or semicolons between them, in brackets or not."""
    parts = texts.str.strip_chars("[]() ").str.replace_all(r"[\s,;]+", " ").str.split(" ")
    try:
        return parts.cast(pl.List(pl.Float64))
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(
            f"{path}: an 'embedding' holds something else than numbers: write them all, '0.5 1.0 ...'."
        ) from error
