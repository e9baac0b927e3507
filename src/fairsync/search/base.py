"""The interface of every index: find the best k items of each user under prices."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.price_range import price_range

# Finite prices beyond this could overflow next to extreme embeddings. They are not needed, since +inf masks a group.
LARGEST_PRICE = 1e100


@dataclass(frozen=True)
class Hits:
    """The items found for each user, best first.

    Attributes
    ----------
    rows : numpy.ndarray
        (n, k) int64, rows of the catalog by relevance minus price, ties by id;
        -1 where fewer than k items are eligible.
    relevance : numpy.ndarray
        (n, k) float64, without the price; -inf where ``rows`` is -1.
    reached : numpy.ndarray or None
        (G,) int64, the number of items of each group that were searched, if a part of the catalog was out of reach;
        None if all of it was searched.

    Examples
    --------
    >>> Hits.empty(1, 2)
    Hits(rows=array([[-1, -1]]), relevance=array([[-inf, -inf]]))
    """

    rows: npt.NDArray[np.int64]
    relevance: npt.NDArray[np.float64]
    reached: npt.NDArray[np.int64] | None = field(default=None, repr=False)

    @classmethod
    def empty(cls, n: int, k: int) -> "Hits":
        """Return hits that hold nothing yet."""
        return cls(np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf))


class Index(Protocol):
    """A searchable catalog. Any object with these members can be given as ``index=``.

    Two more methods are optional. ``rebuild(catalog)`` returns an index of the same kind and with the same settings
    over another catalog; see `rebuild_index`. ``follow(change)`` returns an index over the catalog after a change, for
    an index that has a better way than the general one; see `fairsync.search.overlay.follow`.

    Attributes
    ----------
    applies_prices : str
        How prices enter the search: ``"bias"``, ``"one-hot"`` or ``"over-fetch"``.
    """

    @property
    def applies_prices(self) -> str:
        """How prices enter the search: ``"bias"``, ``"one-hot"`` or ``"over-fetch"``."""
        ...

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user.

        A fourth parameter, ``eligible``, an `Eligibility` or None, is optional: the items that each user may get. All
        indexes of this package have it. One that has not is asked for more items instead, and those that are not
        eligible are dropped; see `fairsync.search.filtering`.

        Parameters
        ----------
        users
            (n, interests, d) floats, finite.
            The relevance of an item is its best inner product over the interests.
        prices
            (G,) one price per group, +inf to leave a group out; None for no prices. Prices are passed with every call
            and no state is kept between calls, so that calls can run at the same time.
        k
            The number of items to find per user.
        """
        ...


def rebuild_index(index: Index, catalog: Catalog) -> Index:
    """Return an index of the same kind and with the same settings over another catalog.

    Parameters
    ----------
    index
        An index with a method ``rebuild(catalog)``. All indexes of this package have one.
    catalog
        The items to search.

    Examples
    --------
    >>> from fairsync.search import IvfIndex
    >>> before, after = Catalog(np.eye(3), ["a", "b", "b"]), Catalog(np.ones((2, 3)), ["a", "b"])
    >>> index = rebuild_index(IvfIndex(before, recall=0.9), after)
    >>> type(index).__name__, index.recall, len(index.catalog)
    ('IvfIndex', 0.9, 2)
    """
    rebuild = getattr(index, "rebuild", None)
    if not callable(rebuild):
        raise InvalidInputError(
            f"a {type(index).__name__} has no method rebuild(catalog), so it cannot be made for another catalog: give"
            " index=, a name or a function of the catalog."
        )
    rebuilt: Index = rebuild(catalog)
    return rebuilt


def check_prices(prices: npt.NDArray[np.float64] | None, n_groups: int) -> npt.NDArray[np.float64] | None:
    """Return the prices as float64, or None if all are zero. Raise for prices without a meaning.

    Examples
    --------
    >>> check_prices(np.array([0.5, np.inf]), 2)
    array([0.5, inf])
    """
    if prices is None:
        return None
    prices = np.asarray(prices, dtype=np.float64)
    if prices.shape != (n_groups,):
        raise InvalidInputError(f"prices must have shape ({n_groups},), one per group, got {prices.shape}.")
    low, high = price_range(prices)
    if not (low >= -LARGEST_PRICE and high <= LARGEST_PRICE):  # there can be many groups: look at each only if need be
        fine = (np.abs(prices) <= LARGEST_PRICE) | (prices == np.inf)
        if fine.all():
            return prices
        group = int(np.flatnonzero(~fine)[0])
        raise InvalidInputError(
            f"the price of group code {group} is {prices[group]}: use +inf to leave a group out,"
            f" and values within ±{LARGEST_PRICE:g} otherwise."
        )
    return prices if low or high else None
