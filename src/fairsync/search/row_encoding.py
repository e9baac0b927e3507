"""How items are stored in an engine: the vector of an item, and for Milvus its key, a hash of the id and the vector."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import Column
from fairsync.errors import InvalidInputError
from fairsync.search.one_hot import widen
from fairsync.search.rounding import Float32Items

_Rows = npt.NDArray[np.int64]

_KEY_BYTES = 8
_BLOCK = 1 << 14
# Items within a factor of 2**32 share an exponent, so that a new item rarely needs another one. Up to 2**48 no
# precision is lost by it (see `rounding`).
_EXPONENT_STEP, _EXPONENT_REACH = 64, 48


@dataclass(frozen=True)
class RowEncoding:
    """The encoding of an item as a row: its float32 vector divided by ``2**exponent``; if wide, one-hot columns follow.

    Examples
    --------
    >>> catalog = Catalog(np.array([[3.0], [2.0]]), ["b", "a"], ids=["x", "y"])
    >>> encoding = RowEncoding.of(Float32Items.of(catalog.embeddings), wide=True)
    >>> encoding.vectors(catalog, np.arange(2)).tolist()
    [[3.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """

    exponent: int
    wide: bool

    @classmethod
    def of(cls, items: Float32Items, wide: bool) -> "RowEncoding":
        """Return the encoding for these items."""
        return cls(_EXPONENT_STEP * round(_size(items) / _EXPONENT_STEP), wide)

    def fits(self, items: Float32Items) -> bool:
        """Return whether these items lose no precision in this encoding."""
        return abs(_size(items) - self.exponent) <= _EXPONENT_REACH

    def width(self, catalog: Catalog) -> int:
        """Return the number of columns of a row."""
        return catalog.dim + catalog.n_groups * self.wide

    def scale(self, items: Float32Items) -> Float32Items:
        """Return the scale of the rows without their values, which is all that a search needs."""
        norm = float(np.ldexp(items.largest_norm, items.exponent - self.exponent))
        return replace(items, values=items.values[:0], exponent=self.exponent, largest_norm=norm)

    def vectors(self, catalog: Catalog, rows: _Rows) -> npt.NDArray[np.float32]:
        """Return the vectors of the items in these rows, as the engine holds them."""
        plain = self._plain(catalog, rows)
        return widen(plain, catalog.group_of[rows], catalog.n_groups) if self.wide else plain

    def keys(self, catalog: Catalog, rows: _Rows, stored: Mapping[str, Column] | None = None) -> _Rows:
        """Return the keys of the items in these rows: a hash of the id and of everything that Milvus holds of the item.

        Parameters
        ----------
        catalog, rows
            The items.
        stored
            The attributes that Milvus holds. By default it holds none.

        Examples
        --------
        >>> first, second = (Catalog(np.eye(2), ["a", label]) for label in "bc")
        >>> encoding = RowEncoding(exponent=0, wide=False)
        >>> bool((encoding.keys(first, np.arange(2)) == encoding.keys(second, np.arange(2))).all())
        True
        """
        made, attributes = bytearray(), sorted(stored or {})
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            vectors = self._plain(catalog, some).astype("<f4", copy=False)
            codes = catalog.group_of[some].tolist() if self.wide else [""] * len(some)
            names = catalog.ids_of(some).tolist()
            words = [""] * len(some)
            if stored:
                columns = [stored[attribute].take(some).values() for attribute in attributes]
                words = [f"{attributes} {values}" for values in zip(*columns, strict=True)]
            for name, code, word, vector in zip(names, codes, words, vectors, strict=True):
                digest = hashlib.blake2b(vector.tobytes(), digest_size=_KEY_BYTES)
                digest.update(f"{self.exponent} {code} {name}{word}".encode())
                made += digest.digest()
        return np.frombuffer(bytes(made), dtype="<i8").astype(np.int64)

    def _plain(self, catalog: Catalog, rows: _Rows) -> npt.NDArray[np.float32]:
        embeddings = catalog.embeddings[rows]
        if self.exponent == 0:
            return embeddings.astype(np.float32, copy=False)
        return np.ldexp(embeddings.astype(np.float64), -self.exponent).astype(np.float32)


class RowKeys:
    """The keys of a catalog's items, in row order, with a lookup from keys to rows.

    Examples
    --------
    >>> rows = RowKeys(np.array([70, -3, 5]))
    >>> rows.find(np.array([5, 6, 70])).tolist()
    [2, -1, 0]
    """

    def __init__(self, keys: _Rows) -> None:
        self.keys = keys
        self._order = np.argsort(keys)
        self._sorted = keys[self._order]
        if (self._sorted[1:] == self._sorted[:-1]).any():
            raise InvalidInputError("two items have the same 64-bit key by chance: give one of them another id.")

    def find(self, keys: _Rows) -> _Rows:
        """Return the row of each key, -1 for a key that is not in this catalog."""
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._order[places], -1)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the keys, 16 hexadecimal digits; the order of the rows does not matter."""
        return hashlib.blake2b(self._sorted.astype("<i8", copy=False).tobytes(), digest_size=_KEY_BYTES).hexdigest()


def _size(items: Float32Items) -> int:
    """Return the power of two above the longest item."""
    return int(np.frexp(items.largest_norm)[1]) + items.exponent
