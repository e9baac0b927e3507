"""Quantized items in inverted lists, scored by faiss: a few bits per dimension are enough to nominate candidates."""

from importlib import import_module

import numpy as np
import numpy.typing as npt

from fairsync.errors import InvalidInputError
from fairsync.search.inverted_lists import InvertedLists

Floats = npt.NDArray[np.float32]

STORAGES = ("2-bit", "4-bit", "8-bit", "16-bit")
# Codes are trained on the longest items: these score best, and codes trained on all items are worst on them. (On
# generated embeddings, codes trained this way lose a tenth as many of the best 50.)
_LONGEST_SHARE, _FEWEST, _MOST = 0.05, 1 << 12, 1 << 15
_BLOCK = 1 << 15


class QuantizedItems:
    """The residuals of items from the centres of their lists, quantized to a few bits per dimension.

    A score is the score of the centre, which the caller gives for each list, prices included, plus that of the
    residual. So prices cost nothing, and nothing stored depends on them.

    Items are rotated randomly first: then all dimensions matter alike, as quantization assumes, which halves its error
    on embeddings whose first dimensions dominate.

    Parameters
    ----------
    items, lists
        The items, and the list of each.
    storage
        Bits per dimension: ``"2-bit"``, ``"4-bit"``, ``"8-bit"`` or ``"16-bit"``.
    seed
        The seed of the random rotation.

    Examples
    --------
    >>> items = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    >>> lists = InvertedLists.of(items, np.zeros(300, dtype=int))
    >>> scores = items[:1] @ lists.centres.T
    >>> codes = QuantizedItems(items, lists, "8-bit")
    >>> rows, _, _ = codes.search(items[:1], scores > -np.inf, scores, fetch=1)
    >>> rows.item() == (items @ items[0]).argmax().item()
    True
    """

    def __init__(self, items: Floats, lists: InvertedLists, storage: str = "4-bit", seed: int = 0) -> None:
        if storage not in STORAGES:
            raise InvalidInputError(f"there is no storage {storage!r}: choose one of {', '.join(STORAGES)}.")
        # Imported here, because it takes long; and as Any, because its stubs leave out most of what is used.
        faiss = import_module("faiss")
        n, dim = items.shape
        rng = np.random.default_rng(seed)
        # An even number of dimensions, because a 2-bit code encodes pairs of dimensions.
        self._rotation = np.zeros((dim, dim + dim % 2), dtype=np.float32)
        self._rotation[:, :dim] = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        wide = dim + dim % 2
        centres = lists.centres @ self._rotation
        # faiss keeps no reference to the quantizer, so this object does.
        self._centres = faiss.IndexFlatIP(wide)
        self._centres.add(centres)
        count, metric = len(centres), faiss.METRIC_INNER_PRODUCT
        listed = np.flatnonzero(lists.list_of >= 0)
        some = _longest(items, listed)
        sample = items[some] @ self._rotation
        if storage in ("2-bit", "4-bit"):
            index = faiss.IndexIVFPQ(self._centres, wide, count, wide // 2 if storage == "2-bit" else wide, 4, metric)
            index.by_residual = True
            index.pq.cp.min_points_per_centroid = 1  # a few items are no error: their codes are exact
            index.pq.train(sample - centres[lists.list_of[some]])
        else:
            kind = faiss.ScalarQuantizer.QT_8bit if storage == "8-bit" else faiss.ScalarQuantizer.QT_fp16
            index = faiss.IndexIVFScalarQuantizer(self._centres, wide, count, kind, metric, True)
            at = lists.list_of[some].astype(np.int64)
            index.train_encoder(len(some), faiss.swig_ptr(sample), faiss.swig_ptr(at))
        index.is_trained = True
        self._row_bits = n.bit_length()
        for start in range(0, len(listed), _BLOCK):
            rows = listed[start : start + _BLOCK]
            turned = items[rows] @ self._rotation
            at = lists.list_of[rows].astype(np.int64)
            # The name holds the group beside the row: a lookup for each item found would be a random memory access.
            names = rows | lists.groups[rows].astype(np.int64) << self._row_bits
            index.add_core(len(turned), faiss.swig_ptr(turned), faiss.swig_ptr(names), faiss.swig_ptr(at))
        # The same codes in a layout that is read 32 items at a time (SIMD).
        self._index = faiss.IndexIVFPQFastScan(index) if storage in ("2-bit", "4-bit") else index

    def search(
        self, vectors: Floats, chosen: npt.NDArray[np.bool_], scores: Floats, fetch: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
        """Return (n, fetch) items of highest score in the chosen lists, -1 if there are fewer, their groups and scores.

        Parameters
        ----------
        vectors
            (n, d) float32, the user vectors.
        chosen
            (n, L) whether to read each list for each vector.
        scores
            (n, L) the part of the score that all items of a list share: the centre's score minus the price.
        fetch
            The number of items to return for each vector.
        """
        faiss = import_module("faiss")
        turned = vectors @ self._rotation
        n, counts = len(chosen), np.count_nonzero(chosen, axis=1)
        most = max(1, int(counts.max(initial=0)))
        # `flatnonzero` is many times faster than `nonzero` of a table.
        at, filled = np.flatnonzero(chosen), np.arange(most) < counts[:, None]
        probed, given = np.full((n, most), -1, dtype=np.int64), np.zeros((n, most), dtype=np.float32)
        probed[filled], given[filled] = at % chosen.shape[1], scores.ravel()[at]
        found, names = np.empty((n, fetch), dtype=np.float32), np.empty((n, fetch), dtype=np.int64)
        # Parameters are passed with the call: `nprobe` of the index is shared by calls that run at the same time.
        self._index.search_preassigned_c(
            n, faiss.swig_ptr(turned), fetch, faiss.swig_ptr(probed), faiss.swig_ptr(given),
            faiss.swig_ptr(found), faiss.swig_ptr(names), False, faiss.SearchParametersIVF(nprobe=most),
        )  # fmt: skip
        return np.where(names < 0, -1, names & ((1 << self._row_bits) - 1)), names >> self._row_bits, found


def _longest(items: Floats, listed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows of the longest listed items, enough to train codes on."""
    n = len(listed)
    count = min(n, max(_FEWEST, min(_MOST, int(_LONGEST_SHARE * n))))
    lengths = np.einsum("ij,ij->i", items, items)[listed]
    if count < n:
        return listed[np.sort(np.argpartition(lengths, n - count)[n - count :])]
    # faiss refuses to train 16 values on fewer items: with fewer, items are repeated in the sample.
    return listed[np.arange(max(n, 16)) % n]
