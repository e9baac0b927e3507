"""Inner products of items and user vectors in float32, computed on the calling thread."""

from typing import Any

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float32]

# OpenBLAS runs products of up to 2^18 multiplications on the calling thread (one vector: fewer than 9,216).
# Products are computed in panels of that size, because giving each block to BLAS threads and waiting for the
# slowest is many times slower as soon as anything else runs on a core; our own threads join once per search.
_PANEL_PRODUCTS, _PANEL_PRODUCTS_OF_ONE = 1 << 18, 9_215
# With more than caches hold, and vectors as long as this, how items are read decides. Panels of numpy are as fast as
# faiss on some machines and take 1.3 times as long on others; faiss chooses its instructions by the machine.
_LEAST_STREAMED, _LEAST_STREAMED_DIM = 1 << 24, 64


def panel_of(dim: int, width: int) -> int:
    """Return the number of items that are multiplied by ``width`` vectors at once.

    Examples
    --------
    >>> panel_of(64, 16), panel_of(64, 1), panel_of(100_000, 512)
    (256, 143, 1)
    """
    return max(1, (_PANEL_PRODUCTS if width > 1 else _PANEL_PRODUCTS_OF_ONE) // (width * dim))


def is_streamed(items: _Floats, width: int) -> bool:
    """Return whether one vector is multiplied by more items than caches hold.

    Examples
    --------
    >>> is_streamed(np.empty((1 << 17, 64), dtype=np.float32), 1), is_streamed(np.empty((100, 64), dtype=np.float32), 1)
    (True, False)
    """
    return width == 1 and items.nbytes >= _LEAST_STREAMED and items.shape[1] >= _LEAST_STREAMED_DIM


def multiply(items: _Floats, columns: _Floats, scores: _Floats, *, streamed: bool = False, panel: int = 0) -> None:
    """Write the inner products of items and vectors to ``scores``.

    Parameters
    ----------
    items
        (n, d) C-contiguous.
    columns
        (d, width) one vector a column.
    scores
        (n, width) receives the products; C-contiguous.
    streamed
        Whether the items are part of some that `is_streamed`.
    panel
        The number of items that are multiplied at once. Defaults to `panel_of`.

    Examples
    --------
    >>> scores = np.empty((2, 1), dtype=np.float32)
    >>> multiply(np.eye(2, dtype=np.float32), np.array([[3.0], [4.0]], dtype=np.float32), scores)
    >>> scores.ravel().tolist()
    [3.0, 4.0]
    """
    (n, dim), width = items.shape, columns.shape[1]
    if streamed:
        import faiss  # here, because it takes long to import

        vector = np.ascontiguousarray(columns[:, 0])
        product: Any = faiss.fvec_inner_products_ny  # type: ignore[attr-defined]
        product(*(faiss.swig_ptr(one) for one in (scores, vector, items)), dim, n)
        return
    panel = panel or panel_of(dim, width)
    whole = n // panel * panel
    # All values are finite, but BLAS may compute with what an earlier product left in its buffers, and discard it.
    with np.errstate(invalid="ignore"):
        if whole:
            np.matmul(items[:whole].reshape(-1, panel, dim), columns, out=scores[:whole].reshape(-1, panel, width))
        if whole < n:
            np.matmul(items[whole:], columns, out=scores[whole:])
