"""How items are stored in an engine: their vectors in float32, in a common unit."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.rounding import Float32Items

_Rows = npt.NDArray[np.int64]

# Items within a factor of 2**32 share an exponent, so that a new item rarely needs another one. Up to 2**48 no
# precision is lost by it (see `rounding`).
_EXPONENT_STEP, _EXPONENT_REACH = 64, 48


@dataclass(frozen=True)
class RowEncoding:
    """The encoding of an item as a row: its float32 vector divided by ``2**exponent``.

    Examples
    --------
    >>> catalog = Catalog(np.array([[3.0], [2.0]]), ["b", "a"], ids=["x", "y"])
    >>> encoding = RowEncoding.of(Float32Items.of(catalog.embeddings))
    >>> encoding.vectors(catalog, np.arange(2)).tolist()
    [[3.0], [2.0]]
    """

    exponent: int

    @classmethod
    def of(cls, items: Float32Items) -> "RowEncoding":
        """Return the encoding for these items."""
        return cls(_EXPONENT_STEP * round(_size(items) / _EXPONENT_STEP))

    def fits(self, items: Float32Items) -> bool:
        """Return whether these items lose no precision in this encoding."""
        return abs(_size(items) - self.exponent) <= _EXPONENT_REACH

    def scale(self, items: Float32Items) -> Float32Items:
        """Return the scale of the rows without their values, which is all that a search needs."""
        norm = float(np.ldexp(items.largest_norm, items.exponent - self.exponent))
        return replace(items, values=items.values[:0], exponent=self.exponent, largest_norm=norm)

    def vectors(self, catalog: Catalog, rows: _Rows) -> npt.NDArray[np.float32]:
        """Return the vectors of the items in these rows, as the engine holds them."""
        embeddings = catalog.embeddings[rows]
        if self.exponent == 0:
            return embeddings.astype(np.float32, copy=False)
        return np.ldexp(embeddings.astype(np.float64), -self.exponent).astype(np.float32)


def _size(items: Float32Items) -> int:
    """Return the power of two above the longest item."""
    return int(np.frexp(items.largest_norm)[1]) + items.exponent
