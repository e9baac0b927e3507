"""What Milvus holds of an item, and under which key: a key says all of it, so it never stands for anything else."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.one_hot_fetch import widen
from fairsync.search.rounding import Float32Items

_Rows = npt.NDArray[np.int64]

_KEY_BYTES = 8
_BLOCK = 1 << 14
# Items share an exponent with others within a factor of 2**32, so that a new item hardly ever needs another one; up to
# 2**48 nothing is lost by it (see `rounding`).
_EXPONENT_STEP, _EXPONENT_REACH = 64, 48


@dataclass(frozen=True)
class RowEncoding:
    """How an item becomes a row: a float32 vector divided by ``2**exponent`` and, if wide, a column for its group.

    Examples
    --------
    >>> catalog = Catalog(np.array([[3.0], [2.0]]), ["b", "a"], ids=["x", "y"])
    >>> form = RowEncoding.of(Float32Items.of(catalog.embeddings), wide=True)
    >>> form.vectors(catalog, np.arange(2)).tolist()
    [[3.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """

    exponent: int
    wide: bool

    @classmethod
    def of(cls, items: Float32Items, wide: bool) -> "RowEncoding":
        """Return the form that suits these items."""
        return cls(_EXPONENT_STEP * round(_size(items) / _EXPONENT_STEP), wide)

    def fits(self, items: Float32Items) -> bool:
        """Return whether these items lose nothing in this form."""
        return abs(_size(items) - self.exponent) <= _EXPONENT_REACH

    def width(self, catalog: Catalog) -> int:
        """Return how many columns a row needs."""
        return catalog.dim + catalog.n_groups * self.wide

    def scale(self, items: Float32Items) -> Float32Items:
        """Return the scale of the rows, which is all that a search needs to know of them."""
        norm = float(np.ldexp(items.largest_norm, items.exponent - self.exponent))
        return replace(items, values=items.values[:0], exponent=self.exponent, largest_norm=norm)

    def vectors(self, catalog: Catalog, rows: _Rows) -> npt.NDArray[np.float32]:
        """Return what Milvus holds of the items in these rows."""
        plain = self._plain(catalog, rows)
        return widen(plain, catalog.group_of[rows], catalog.n_groups) if self.wide else plain

    def keys(self, catalog: Catalog, rows: _Rows) -> _Rows:
        """Return the keys of the items in these rows: a hash of the id and of all that Milvus holds of the item.

        Examples
        --------
        >>> first, second = (Catalog(np.eye(2), ["a", label]) for label in "bc")
        >>> form = RowEncoding(exponent=0, wide=False)
        >>> bool((form.keys(first, np.arange(2)) == form.keys(second, np.arange(2))).all())
        True
        """
        made = bytearray()
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            vectors = self._plain(catalog, some).astype("<f4", copy=False)
            codes = catalog.group_of[some].tolist() if self.wide else [""] * len(some)
            for name, code, vector in zip(catalog.ids_of(some).tolist(), codes, vectors, strict=True):
                digest = hashlib.blake2b(vector.tobytes(), digest_size=_KEY_BYTES)
                digest.update(f"{self.exponent} {code} {name}".encode())
                made += digest.digest()
        return np.frombuffer(bytes(made), dtype="<i8").astype(np.int64)

    def _plain(self, catalog: Catalog, rows: _Rows) -> npt.NDArray[np.float32]:
        embeddings = catalog.embeddings[rows]
        if self.exponent == 0:
            return embeddings.astype(np.float32, copy=False)
        return np.ldexp(embeddings.astype(np.float64), -self.exponent).astype(np.float32)


class RowKeys:
    """The keys of a catalog's items, in row order, and the way back.

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
        """Return the row of each key, -1 where it is none of this catalog's."""
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._order[places], -1)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that stand for these keys, in any order."""
        return hashlib.blake2b(self._sorted.astype("<i8", copy=False).tobytes(), digest_size=_KEY_BYTES).hexdigest()


def _size(items: Float32Items) -> int:
    """Return the power of two above the longest item."""
    return int(np.frexp(items.largest_norm)[1]) + items.exponent
