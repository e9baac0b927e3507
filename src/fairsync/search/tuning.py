"""Tuning of approximate indexes: how much to read for a given recall, measured against exact search."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.inverted_lists import InvertedLists
from fairsync.search.quantization import QuantizedItems

Floats = npt.NDArray[np.float32]

# The values of k at which an index is tuned. It is used up to the last; one of them decides between orders of lists.
DEPTHS = (5, 10, 20, 50, 100, 200, 400, 800)
_DECIDES = DEPTHS.index(50)
# Shares of the loss that the recall permits: to lists that are not read, and to codes that mislead (which costs less to
# avoid). The rest is a reserve for prices, and for requests that are harder than the sample.
_LISTS_SHARE, _CODES_SHARE = 0.4, 0.15
_EAGERNESS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
# Estimates of lists are first examined in bundles, by their maximum.
_BUNDLE = 8
_MOST_FETCHED = 4 * DEPTHS[-1]
_REQUESTS, _ITEMS_EACH = 512, 4
_LEAST_TAIL = 1e-6


@dataclass(frozen=True)
class Tuning:
    """The rule that chooses which inverted lists to read: those estimated to be nearly as good as the best.

    The best score in a list is estimated by its centre's score minus the price, plus ``eagerness`` times its reach. The
    mark is the estimate of the (k/2)-th best list (an earlier one if there are few lists), and lists are read down to
    ``slack`` below it. The rule is relative and so suits any prices: if subsidies lift a few lists far above the rest,
    only those are read.

    Attributes
    ----------
    eagerness : float
        The weight of a list's reach beyond its centre.
    slacks : tuple of float
        The slack for each of ``DEPTHS``, in units of the spread of items along the request's vector.
    floor_slacks : tuple of float
        The same below a score that k items reach, where one is known.
    fetches : tuple of int
        The number of candidates to settle for each of ``DEPTHS``.
    tail : float
        How fast items get more as scores fall: there are e times as many above a score that is lower by this much.
    """

    eagerness: float
    slacks: tuple[float, ...]
    floor_slacks: tuple[float, ...]
    fetches: tuple[int, ...]
    tail: float = 1.0

    def choose(
        self,
        lists: InvertedLists,
        vectors: Floats,
        scores: Floats,
        k: int,
        floor: Floats | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Return which lists to read, (n, L), given the scores of their centres minus prices, -inf where masked.

        If a score that k items reach is known, it is the ``floor``, (n, 1): lists further below it than
        ``floor_slacks`` are not read.
        """
        along, estimate = lists.along(vectors)
        estimate *= np.float32(self.eagerness)
        estimate += scores
        at = _depth(k)
        lowest = _mark(estimate, DEPTHS[at]) - np.float32(self.slacks[at]) * along
        if floor is not None:
            lowest = np.maximum(lowest, floor - np.float32(self.floor_slacks[at]) * along)
        # The estimate of a masked list is -inf, and if most are masked the mark may be -inf too.
        chosen: npt.NDArray[np.bool_] = estimate >= np.maximum(lowest, np.finfo(np.float32).min)
        return chosen

    def fetch(self, k: int) -> int:
        """Return the number of candidates to settle for k items.

        Examples
        --------
        >>> Tuning(1.0, (0.5,) * 8, (0.5,) * 8, tuple(range(100, 900, 100))).fetch(30)
        400
        """
        return self.fetches[_depth(k)]


def _depth(k: int) -> int:
    return next(i for i, depth in enumerate(DEPTHS) if k <= depth)


def _mark(estimate: Floats, k: int) -> Floats:
    wanted = max(1, min(k // 2, estimate.shape[1] // 32))
    bundles = estimate.shape[1] // _BUNDLE
    if bundles >= 4 * wanted:
        # The best are in as many bundles of lists as they are themselves, those with the best maxima.
        whole = bundles * _BUNDLE
        table = estimate[:, :whole].reshape(len(estimate), _BUNDLE, bundles)
        best = np.argpartition(table.max(axis=1), bundles - wanted, axis=1)[:, bundles - wanted :]
        some = np.take_along_axis(table, best[:, None], axis=2).reshape(len(estimate), -1)
        estimate = np.hstack([some, estimate[:, whole:]])
    place = estimate.shape[1] - wanted
    return np.partition(estimate, place, axis=1)[:, place, None]


def tune_probing(
    lists: InvertedLists,
    codes: QuantizedItems,
    vectors: Floats,
    truth: npt.NDArray[np.int64],
    best: npt.NDArray[np.floating],
    recall: float,
) -> Tuning:
    """Return the rule of `IvfIndex` that reads least and finds this share of the truth.

    Parameters
    ----------
    lists, codes
        The inverted lists and the quantized items in them.
    vectors
        (interests * n, d) the first interest of every request, then the second, and so on.
    truth
        (n, depth) the best items of each request without prices, best first.
    best
        (n, depth) their scores in the unit of the vectors.
    recall
        The share of the truth to find.
    """
    n, share = len(truth), 1 - _LISTS_SHARE * (1 - recall)
    # Items in no list are found in any case. They do not count, since prices may leave few of them among the best.
    listed = lists.list_of[truth] >= 0
    scores = vectors @ lists.centres.T
    along, reach = lists.along(vectors)
    held_by = np.tile(lists.list_of[truth], (len(vectors) // n, 1))
    found = None
    for eagerness in _EAGERNESS:
        estimate = scores + np.float32(eagerness) * reach
        # How far below the mark the list of each wanted item is; any of the interests may read it.
        wanted = np.take_along_axis(estimate, held_by, axis=1)
        below = [((_mark(estimate, k) - wanted) / along).reshape(-1, *truth.shape).min(axis=0)[:, :k] for k in DEPTHS]
        slacks = tuple(_upper(gap[listed[:, : gap.shape[1]]], share) for gap in below)
        trial = Tuning(eagerness, slacks, slacks, (0,) * len(DEPTHS))
        items_read = int((trial.choose(lists, vectors, scores, DEPTHS[_DECIDES]) @ lists.sizes).sum())
        if found is None or items_read < found[0]:
            found = items_read, trial, [gap <= slack for gap, slack in zip(below, slacks, strict=True)], wanted
    assert found is not None
    _, trial, is_read, wanted = found
    depths = [min(k, truth.shape[1]) for k in DEPTHS]
    last = [np.tile(best[:, k - 1, None], (len(vectors) // n, 1)) for k in depths]
    under = [
        ((s - wanted) / along).reshape(-1, *truth.shape).min(axis=0)[:, :k] for s, k in zip(last, depths, strict=True)
    ]
    floor_slacks = tuple(_upper(gap[listed[:, : gap.shape[1]]], share) for gap in under)
    # One search serves all depths: the more lists are read, the further down an item is found.
    chosen = np.any([trial.choose(lists, vectors, scores, k) for k in DEPTHS], axis=0)
    rows, _, _ = codes.search(vectors, chosen, scores, _MOST_FETCHED)
    place = np.min([_places(part, truth) for part in rows.reshape(-1, n, rows.shape[1])], axis=0)
    codes_share = 1 - _CODES_SHARE * (1 - recall)
    fetches = [
        max(k, int(_upper(place[:, :k][read & listed[:, :k]], codes_share)) + 1)
        for k, read in zip(DEPTHS, is_read, strict=True)
    ]
    return replace(trial, floor_slacks=floor_slacks, fetches=tuple(fetches), tail=_tail(best))


def _upper(values: npt.NDArray[np.floating | np.integer], share: float) -> float:
    """Return the value that this share of them does not exceed; 0 if there are none."""
    return float(np.quantile(values, share, method="higher")) if len(values) else 0.0


def _tail(best: npt.NDArray[np.floating]) -> float:
    """Return the tail of `Tuning`, the median over requests, given the best scores of each in descending order."""
    last = best.shape[1]
    first = max(1, last // 16)
    drop = float(np.median(best[:, first - 1] - best[:, last - 1]))
    return max(drop / math.log(last / first), _LEAST_TAIL) if last > first else _LEAST_TAIL


def tune_breadth(
    search: Callable[[int], npt.NDArray[np.int64]], truth: npt.NDArray[np.int64], recall: float, most: int
) -> int:
    """Return the breadth with which `HnswIndex` finds this share of the truth; it is doubled until it does.

    Parameters
    ----------
    search
        Returns the (n, k) rows found with a given breadth.
    truth
        (n, k) the best items of each request without prices.
    recall
        The share of the truth to find.
    most
        The breadth at which to stop.
    """
    breadth = int(truth.shape[1])
    while breadth < most:
        hits = [len(np.intersect1d(found, wanted)) for found, wanted in zip(search(breadth), truth, strict=True)]
        if np.mean(hits) >= recall * truth.shape[1]:
            break
        breadth *= 2
    return breadth


def _places(rows: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of each wanted item in its row; the width of the row if it is not there."""
    places = np.empty_like(wanted)
    for i, (row, items) in enumerate(zip(rows, wanted, strict=True)):
        order = np.argsort(row, kind="stable")
        at = np.minimum(np.searchsorted(row, items, sorter=order), len(row) - 1)
        places[i] = np.where(row[order[at]] == items, order[at], len(row))
    return places


def synthetic_requests(catalog: Catalog, seed: int = 0, signed: bool = False) -> npt.NDArray[np.float64]:
    """Return vectors to tune on if no requests are known: means of a few items, like the vector of a short history.

    Parameters
    ----------
    catalog
        The items.
    seed
        The seed of the random numbers.
    signed
        Whether items count with random signs. Means of items lie near the mean of all items, where it is easy to tell
        lists apart; vectors with signs point anywhere that items do, and take more reading for the same recall.

    Examples
    --------
    >>> synthetic_requests(Catalog(np.eye(3), ["a", "b", "b"])).shape
    (512, 3)
    """
    rng = np.random.default_rng(seed)
    items = catalog.embeddings[rng.integers(len(catalog), size=(_REQUESTS, _ITEMS_EACH))].astype(np.float64)
    if signed:
        items *= rng.choice([-1.0, 1.0], size=(_REQUESTS, _ITEMS_EACH, 1))
    means: npt.NDArray[np.float64] = items.mean(axis=1)
    empty = ~means.any(axis=1)
    means[empty] = rng.standard_normal((int(empty.sum()), catalog.dim))
    return means
