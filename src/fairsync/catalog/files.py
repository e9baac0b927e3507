"""Catalogs on disk, shared by many processes: front ends memory-map the embeddings, shards read their own rows."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  # examples use it
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.atomic_write import atomic_folder, check_path
from fairsync.catalog import Catalog
from fairsync.catalog.names import are_words
from fairsync.catalog.readers import FILES, PREFIX, VERSION, make_reader
from fairsync.catalog.series import series_of
from fairsync.catalog.table_files import id_series, write_table
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column
    from fairsync.catalog.groups import Label


Watch: TypeAlias = Callable[[int, int], object]
"""A progress callback: called with the number of items done and the total."""

# Endings of files, in which a catalog cannot be written: a folder of such a name would be mistaken for one.
_NO_FOLDERS = (".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".arrow", ".feather")
# Large enough to read fast, small enough to hold in memory.
BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class Fingerprint:
    """A checksum of a catalog: two catalogs with the same fingerprint have the same content.

    Attributes
    ----------
    names : str
        A hash of the sizes, labels, groups and ids. Other attributes are left out: an index holds none, and they may
        change while shards run.
    blocks : tuple of int
        A checksum of the embeddings of each block of rows, so that a part can be verified without reading the rest.
    """

    names: str
    blocks: tuple[int, ...]

    def __str__(self) -> str:
        return _hash(self.names.encode(), np.array(self.blocks, dtype="<i8").tobytes())

    @classmethod
    def of(cls, catalog: Catalog) -> Fingerprint:
        """Return the fingerprint of a catalog: the saved one if there is one, else computed from all its content.

        Examples
        --------
        >>> same, other = (Fingerprint.of(Catalog(np.eye(2) * scale, ["a", "b"])) for scale in (1, 2))
        >>> str(same), same == other
        ('613f3f5fcd08cf8c', False)
        """
        return catalog.fingerprint if isinstance(catalog, StoredCatalog) else _read(catalog, catalog.embeddings)


class StoredCatalog(Catalog):
    """A catalog that every process can read from the same path. `open_catalog` returns it.

    Attributes
    ----------
    path : pathlib.Path
        The folder or the file.
    fingerprint : Fingerprint
        The fingerprint of its content when it was opened.
    written_at : float
        When the files were written, in seconds since 1970.
    changes : int or None
        Number of the latest change of a service's items that is in it, if `save_catalog` was told.
    """

    path: Path
    fingerprint: Fingerprint
    written_at: float
    changes: int | None

    def under(self, labels: Sequence[Label]) -> Catalog:
        """Return the same items with group codes in the order of these labels; see `Catalog.under`."""
        return self if list(labels) == self.labels else super().under(labels)

    def part(self, rows: NDArray[np.integer]) -> Catalog:
        """Return a catalog of these rows only, which is no longer tied to the path; see `Catalog.part`."""
        part = super().part(rows)
        return Catalog.from_codes(
            part.embeddings, part.group_of, part.labels, part.ids, other_columns(part), part.group_attribute,
            normalized=part.normalized,
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        # The receiving process opens the files itself; embeddings are not sent.
        return _open_same, (self.path, self.fingerprint)


def save_catalog(catalog: Catalog, folder: str | os.PathLike[str], changes: int | None = None) -> None:
    """Write a catalog to a folder: ``embeddings.npy``, ``items.parquet`` (id, group, attributes) and ``catalog.json``.

    Or, if the name ends in ``.parquet``, to a single file with the columns ``id``, attributes and ``embedding``.

    The write is atomic and may replace a catalog: processes that have the old one open keep it.

    Parameters
    ----------
    catalog
        The catalog to write.
    folder
        The folder or the file to write it to. On a cluster, every node must be able to read it.
    changes
        Number of the latest change of a service's items that is in the catalog, for ``fairsync export``.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "items"
    >>> save_catalog(Catalog(np.eye(3, dtype=np.float32), ["toys", "books", "toys"], ids=["c", "a", "b"]), folder)
    >>> open_catalog(folder)
    Catalog(3 items, 2 groups, dim 3, float32)
    """
    target = check_path(folder).resolve()
    if target.suffix.lower() == ".parquet" and not target.is_dir():
        write_table(catalog, target)
        return
    if target.suffix.lower() in _NO_FOLDERS and not target.is_dir():
        raise InvalidInputError(
            f"a catalog is written to a folder or a .parquet file, not to {target.suffix}: name it"
            f" {target.with_suffix('').name} or {target.with_suffix('.parquet').name}, not {target.name}."
        )
    if target.exists() and not (target.is_dir() and {one.name for one in target.iterdir()} <= FILES):
        raise InvalidInputError(f"{target} exists and is not a catalog: choose another folder.")
    fingerprint = Fingerprint.of(catalog)
    words = {
        "version": VERSION,
        "items": len(catalog),
        "dim": catalog.dim,
        "dtype": catalog.embeddings.dtype.name,
        "labels": catalog.labels,
        "group_attribute": catalog.group_attribute,
        "normalized": catalog.normalized,
        "names": fingerprint.names,
        "blocks": fingerprint.blocks,
        **({} if changes is None else {"changes": changes}),
    }
    with atomic_folder(target) as work:
        np.save(work / "embeddings.npy", catalog.embeddings, allow_pickle=False)
        columns = {"id": id_series(catalog.ids), "group": pl.Series(catalog.group_of)}
        columns |= {PREFIX + name: series_of(column) for name, column in other_columns(catalog).items()}
        pl.DataFrame(columns).write_parquet(work / "items.parquet")
        (work / "catalog.json").write_text(json.dumps(words) + "\n", encoding="utf-8")


def open_catalog(path: str | os.PathLike[str]) -> StoredCatalog:
    """Open a catalog on disk.

    Parameters
    ----------
    path
        A folder that `save_catalog` wrote: its embeddings are memory-mapped, and only the pages in use are read. Or a
        ``.parquet``, ``.csv`` or ``.npz`` file with the columns ``id`` and ``embedding`` (lists of equal length): all
        other columns are attributes, and the group is the column ``group`` or, without it, the first with one text or
        whole number per item. It is read into memory completely. Save a file that is too large for that to a folder.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.parquet"
    >>> columns = {"id": ["tea", "jam"], "group": ["a", "b"], "new": [True, False]}
    >>> pl.DataFrame({**columns, "embedding": [[0.5, 1.0], [2.0, 0.0]]}).write_parquet(path)
    >>> catalog = open_catalog(path)
    >>> catalog.ids.tolist(), catalog.select({"new": True}).rows.tolist()
    (['tea', 'jam'], [0])
    """
    reader = make_reader(path)
    embeddings, names = reader.embeddings(), reader.names()
    catalog = StoredCatalog.__new__(StoredCatalog)
    made = Catalog.from_codes(
        embeddings, names.group_of, names.labels, names.ids, other_columns(names), names.group_attribute,
        normalized=names.normalized,
    )  # fmt: skip
    vars(catalog).update(vars(made))
    catalog.path, catalog.written_at, catalog.changes = reader.path, reader.written_at, reader.changes
    saved = reader.saved
    if saved is None:
        catalog.fingerprint = _read(names, embeddings)
    else:
        catalog.fingerprint = Fingerprint(*saved)
        _check_names(names, reader.shape, reader.dtype, catalog.fingerprint, reader.path)
    return catalog


def read_part(
    path: str | os.PathLike[str],
    fingerprint: Fingerprint,
    choose: Callable[[Catalog], NDArray[np.int64]],
    watch: Watch | None = None,
) -> tuple[Catalog, NDArray[np.int64]]:
    """Read some rows of a catalog on disk into memory, block by block, and verify the checksum of each block.

    Parameters
    ----------
    path
        The folder or file, as for `open_catalog`.
    fingerprint
        The expected content. Anything else is refused.
    choose
        A function that returns the wanted rows, in ascending order. It gets a catalog whose ids and groups are real and
        whose embeddings are placeholders.
    watch
        A progress callback: called with the number of rows read and the number wanted.

    Returns
    -------
    Catalog
        The chosen rows, with the group codes of the whole catalog.
    numpy.ndarray
        The chosen rows of the whole catalog.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "items"
    >>> save_catalog(Catalog(np.eye(3), ["toys", "books", "toys"]), folder)
    >>> held = open_catalog(folder).fingerprint
    >>> part, rows = read_part(folder, held, lambda names: np.flatnonzero(names.group_of == 1))
    >>> part.embeddings.tolist(), rows.tolist()
    ([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [0, 2])
    """
    reader = make_reader(path)
    names = reader.names()
    _check_names(names, reader.shape, reader.dtype, fingerprint, reader.path)
    rows = choose(names)
    embeddings = np.empty((len(rows), reader.shape[1]), dtype=reader.dtype)
    for number, at in enumerate(_blocks(reader.shape, reader.dtype)):
        first, end = (int(place) for place in np.searchsorted(rows, (at.start, at.stop)))
        if first == end:
            continue
        block = reader.block(at)
        if _sum(block) != fingerprint.blocks[number]:
            raise InvalidInputError(
                f"{reader.path}: rows {at.start} to {at.stop - 1} are not those that were saved: the file is damaged or"
                " was replaced. Save the catalog again, and restart the shards."
            )
        embeddings[first:end] = block[rows[first:end] - at.start]
        if watch is not None:
            watch(end, len(rows))
    return Catalog.from_codes(embeddings, names.group_of[rows], names.labels, names.ids[rows]), rows


def other_columns(catalog: Catalog) -> dict[str, Column]:
    """Return the attributes of a catalog without the group."""
    return {name: column for name, column in catalog.attributes.items() if name != catalog.group_attribute}


def _open_same(path: Path, fingerprint: Fingerprint) -> StoredCatalog:
    catalog = open_catalog(path)
    if catalog.fingerprint != fingerprint:
        raise InvalidInputError(f"{path} holds another catalog than it did: open it again with open_catalog.")
    return catalog


def _check_names(
    names: Catalog, shape: tuple[int, int], dtype: np.dtype[Any], fingerprint: Fingerprint, path: Path
) -> None:
    if _hash_names(names, shape, dtype) != fingerprint.names:
        raise InvalidInputError(
            f"{path}: ids and groups are not those that were saved: the file is damaged or was replaced."
            " Save the catalog again, and restart the shards."
        )


def _read(names: Catalog, embeddings: NDArray[np.floating[Any]]) -> Fingerprint:
    shape, dtype = embeddings.shape, embeddings.dtype
    return Fingerprint(_hash_names(names, shape, dtype), tuple(_sum(embeddings[at]) for at in _blocks(shape, dtype)))


def _blocks(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[slice]:
    items, dim = shape
    step = max(1, BLOCK_BYTES // (dim * dtype.itemsize))
    return (slice(start, min(start + step, items)) for start in range(0, items, step))


def _sum(block: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(block).view(np.uint8).data)


def _hash_names(names: Catalog, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    sizes = json.dumps([*shape, dtype.name, names.labels])
    ids = names.ids
    words = "\0".join(ids.tolist()).encode() if are_words(ids) else ids.astype("<i8").tobytes()
    return _hash(sizes.encode(), names.group_of.astype("<i4").tobytes(), words)


def _hash(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(hashlib.blake2b(part).digest())
    return digest.hexdigest()
