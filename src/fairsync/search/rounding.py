"""Float32 scores and how far they can be from the float64 scores that decide.

Everything is measured in a unit, a power of two, in which no score is beyond ±1: then nothing overflows, and
scaling is free of rounding. Let u = 2^-24, R = |user| · max |item| in that unit, "true" the float64 score of
`scoring`.

*Scores.* Rounding user and item to float32 changes each product by at most 2u, and summing d products in any
order, with or without FMA, changes the sum by at most (d-1)u, all relative to Σ|products| ≤ R
(Cauchy-Schwarz); adding the bonus rounds once more. The float64 score itself is d·2^-53 off. Together below
(d+8)u·R to first order, and ``error`` takes twice that for the higher orders. What underflows is below 2^-126
per term, times at most 2^60, the largest factor we let in: (d+8)·2^-60 covers it.

*Prices.* A bonus is minus the price, counted from `scoring.reference_price` (a constant for all items changes
no order). Beyond ±4 it is cut off: the k-th best score is then within ±1, so a group below -3 is out and a
group above 3 is in, and the exact value does not matter. An extreme price therefore costs no other group any
precision. Inside, the subtraction and the float64 score are off by at most 2^-50 of the reference and of the price,
which is within 4 of it (``wobble``). The bonus is rounded *up* by that and by at least 6u, more than its own rounding
and its share in the sum can take away: so

    true ≤ float32 + error    and    true ≥ float32 - error - slack,

except where a bonus is cut off, and there being in or out is clear.

Hence, if k distinct items have float32 scores ≥ s, no item with a float32 score below s - slack - 2·error is
among the best k.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairsync.catalog import check_values
from fairsync.catalog.price_sources import source_of
from fairsync.search.price_range import price_range

_U = 2.0**-24
_CUT_OFF = 4.0
_BLOCK_VALUES = 1 << 18
# Prices of many groups are converted in blocks that stay in cache.
_BLOCK_PRICES = 1 << 15

# A few values tell different prices apart; there can be as many prices as items.
_STEP = 1 << 12

# The bonuses of recent prices: many requests come between two price changes, and most share a unit. Prices are compared
# by value, because a caller may overwrite an array that it has given. The tuple is replaced as a whole, so that
# searches that run at the same time never see half of a change.
_recent: tuple[tuple[npt.NDArray[np.float64], tuple[float, int], npt.NDArray[np.float32]], ...] = ()
_MOST_RECENT, _MOST_PRICES = 16, 1 << 22


@dataclass(frozen=True)
class Float32Items:
    """The embeddings as float32, divided by ``2**exponent``: in place if possible, else a copy."""

    values: npt.NDArray[np.float32]
    exponent: int
    largest_norm: float

    @classmethod
    def of(cls, embeddings: npt.NDArray[np.floating]) -> "Float32Items":
        """Prepare the embeddings of a catalog.

        Examples
        --------
        >>> import numpy as np
        >>> Float32Items.of(np.array([[3e200, 4e200]])).largest_norm <= 2
        True
        """
        step = max(1, _BLOCK_VALUES // embeddings.shape[1])
        blocks = [slice(start, start + step) for start in range(0, len(embeddings), step)]
        largest = float(np.max([np.abs(embeddings[block]).max() for block in blocks]))
        if not np.isfinite(largest):  # in a file that was opened, not read: this is the first look at its values
            check_values(embeddings)
        exponent = int(np.frexp(largest)[1])
        if embeddings.dtype == np.float32 and abs(exponent) < 50:
            values = np.asarray(embeddings, dtype=np.float32)
            exponent = 0
        else:
            values = np.empty(embeddings.shape, dtype=np.float32)
            for block in blocks:
                values[block] = np.ldexp(embeddings[block].astype(np.float64), -exponent)
        squares = (np.square(values[block].astype(np.float64)).sum(axis=1).max() for block in blocks)
        # A hair more, so that rounding here and in the copy cannot make the bound too small.
        return cls(values, exponent, float(np.sqrt(max(squares))) * (1 + 1e-6) + 2.0**-100)


@dataclass(frozen=True)
class Float32Queries:
    """Users and prices in the unit of a search, ready for float32 scoring.

    Attributes
    ----------
    columns : numpy.ndarray
        (d, interests * n), the first interest of every user, then the second, and so on.
    bonus : numpy.ndarray or None
        (G,) what to add to the score of an item of each group; -inf where masked.
    margin : numpy.ndarray
        (n,) how far below the k-th best float32 score an item can be and still belong to the best k. Without prices,
        twice the difference that a float32 score can have to the true one.
    exponent : int
        The unit: a score in it, times ``2**exponent``, is a relevance.
    """

    columns: npt.NDArray[np.float32]
    bonus: npt.NDArray[np.floating] | None
    margin: npt.NDArray[np.float64]
    exponent: int

    @classmethod
    def of(
        cls,
        items: Float32Items,
        users: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        reference: float,
    ) -> "Float32Queries":
        """Prepare nonzero users, (n, interests, d), and their prices, to be counted from the reference price.

        Examples
        --------
        >>> import numpy as np
        >>> items = Float32Items.of(np.eye(2, dtype=np.float32))
        >>> Float32Queries.of(items, np.ones((1, 1, 2)), None, 0.0).margin < 1e-5
        array([ True])
        """
        queries, bonus = cls.without_bonus(items, users, prices, reference)
        return queries if bonus is None else replace(queries, bonus=bonus.all())

    @classmethod
    def without_bonus(
        cls,
        items: Float32Items,
        users: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        reference: float,
    ) -> "tuple[Float32Queries, GroupBonus | None]":
        """Do what `of` does, but leave it to the caller for which groups bonuses are computed.

        Examples
        --------
        >>> import numpy as np
        >>> items = Float32Items.of(np.eye(2, dtype=np.float32))
        >>> queries, bonus = Float32Queries.without_bonus(items, np.ones((1, 1, 2)), np.array([0.0, -0.5]), 0.0)
        >>> queries.bonus is None, bonus.take(np.array([1])) * 2.0**queries.exponent > 0.5
        (True, array([ True]))
        """
        n, interests, d = users.shape
        length = _lengths(users) * (1 + 1e-6)
        unit = int(np.frexp(length.max() * items.largest_norm)[1])
        # Steps of 16: users of different length then mostly share a unit, and with it the bonuses of all items.
        unit = -(-unit // 4) * 4
        # Far below any real price a finer unit gains nothing, and prices could overflow in it.
        unit = max(unit, -200 - items.exponent)
        columns = np.ldexp(users, -unit).astype(np.float32).transpose(2, 1, 0).reshape(d, interests * n)
        error = 2 * (d + 8) * _U * np.ldexp(length, -unit) * items.largest_norm + (d + 8) * 2.0**-60
        bonus = None if prices is None else GroupBonus.of(prices, reference, unit + items.exponent)
        margin = 2 * error if bonus is None else bonus.slack + 2 * error
        return cls(np.ascontiguousarray(columns), None, margin, unit + items.exponent), bonus


def prepare_query(
    items: Float32Items, user: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None, reference: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None, float]:
    """Return columns, bonus and margin of one nonzero user, (interests, d): `Float32Queries` with fewer calls of numpy.

    Examples
    --------
    >>> import numpy as np
    >>> items = Float32Items.of(np.eye(2, dtype=np.float32))
    >>> prepare_query(items, np.ones((1, 2)), None, 0.0)[2] < 1e-5
    True
    """
    d, flat, peak = user.shape[1], user.ravel(), 1.0
    # The sum over all interests is no smaller than that of the longest one.
    with np.errstate(over="ignore"):
        squares = float(flat.dot(flat))
    if not 1e-200 < squares < 1e200:  # dividing first keeps the squares of tiny and of huge users in range
        peak = max(float(user.max()), -float(user.min()))
        flat = flat / peak
        squares = float(flat.dot(flat))
    length = peak * math.sqrt(squares) * (1 + 1e-6)
    unit = math.frexp(length * items.largest_norm)[1]
    unit = max(-(-unit // 4) * 4, -200 - items.exponent)
    columns = np.ldexp(user, -unit).astype(np.float32).T
    error = 2 * (d + 8) * _U * math.ldexp(length, -unit) * items.largest_norm + (d + 8) * 2.0**-60
    if prices is None:
        return columns, None, 2 * error
    bonus = GroupBonus.of(prices, reference, unit + items.exponent)
    return columns, bonus.all(), bonus.slack + 2 * error


def any_reference_serves(
    items: Float32Items, users: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.bool_]:
    """Return (n,) whether prices may be counted from any of them, for each nonzero user.

    The reference price depends on what is eligible. If no two prices differ by more than R, the bound on a relevance,
    the price of any group serves in its place: counted from it, the k-th best score is within ±2 instead of ±1, and a
    bonus is cut off only beyond ±4.

    Examples
    --------
    >>> import numpy as np
    >>> items = Float32Items.of(np.array([[0.0, 2.0], [1.0, 0.0]], dtype=np.float32))
    >>> any_reference_serves(items, np.array([[[3.0, 4.0]], [[0.3, 0.4]]]), np.array([4.0, -4.0, np.inf]))
    array([ True, False])
    """
    low, high = (0.0, 0.0) if prices is None else price_range(prices)
    if prices is not None and high == np.inf:
        high = prices.max(where=prices < np.inf, initial=-np.inf)
    # A vector is at least as long as its largest component, which as a rule is enough to know.
    shortest = users.max(axis=(1, 2)).min(initial=math.inf)
    if high - low <= np.ldexp(shortest * items.largest_norm, items.exponent):
        return np.ones(len(users), dtype=bool)
    serves: npt.NDArray[np.bool_] = high - low <= np.ldexp(_lengths(users) * items.largest_norm, items.exponent)
    return serves


def same_values(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> bool:
    """Return whether two arrays of prices hold the same values, mostly without a look at all of them.

    Examples
    --------
    >>> import numpy as np
    >>> same_values(np.array([0.5, -0.5]), np.array([0.5, -0.5])), same_values(np.zeros(2), np.ones(2))
    (True, False)
    """
    return one is other or (np.array_equal(one[::_STEP], other[::_STEP]) and np.array_equal(one, other))


def _lengths(users: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the length of the longest interest of each nonzero user."""
    peak = np.abs(users).max(axis=(1, 2))
    # Dividing first keeps the squares of tiny and of huge users in range.
    lengths: npt.NDArray[np.float64] = peak * np.sqrt(np.square(users / peak[:, None, None]).sum(axis=2).max(axis=1))
    return lengths


@dataclass(frozen=True)
class GroupBonus:
    """The bonus of each group in a unit, rounded up: for all groups, or only for those that are asked for.

    Attributes
    ----------
    prices : numpy.ndarray
        (G,) the price of each group, of an array that stays the same.
    reference, unit : float, int
        The price from which bonuses are counted, and their unit as an exponent.
    raised : float
        The bonus of a group without a price.
    is_cut : bool
        Whether some bonus may be cut off, or some group masked.
    slack : float
        How much too high a bonus can be.
    """

    prices: npt.NDArray[np.float64]
    reference: float
    unit: int
    raised: float
    is_cut: bool
    slack: float

    @classmethod
    def of(cls, prices: npt.NDArray[np.float64], reference: float, unit: int) -> "GroupBonus":
        """Return the bonuses of prices that are counted from the reference.

        Examples
        --------
        >>> import numpy as np
        >>> bonus = GroupBonus.of(np.array([-0.5, 0.25, np.inf]), reference=0.0, unit=0)
        >>> bonus.take(np.array([0, 2])).round(4).tolist(), bonus.all().round(4).tolist()
        ([0.5, -inf], [0.5, -0.25, -inf])
        """
        scale = math.ldexp(1.0, -unit)
        # A price that is not cut off is within 4 of the reference.
        wobble = (2 * abs(reference) * scale + 2 * _CUT_OFF) * 2.0**-50
        low, high = price_range(prices)
        size = max(reference - low, high - reference) * scale + wobble
        within = min(size, _CUT_OFF)
        # The conversion may round down by u times the size: 6u and more are left of the 8.
        raised = reference * scale + wobble + 8 * _U * within
        slack = min(2 * wobble, 2 * _CUT_OFF) + 20 * _U * within
        return cls(prices, reference, unit, raised, size > _CUT_OFF, slack)

    def take(self, groups: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.float32]:
        """Return the bonus of each of some groups."""
        bonus = np.empty(groups.shape, dtype=np.float32)
        self._convert(self.prices.take(groups, mode="clip"), bonus)
        return bonus

    def write(self, start: int, bonus: npt.NDArray[np.float32]) -> None:
        """Write the bonuses of as many groups as there is room for, from ``start`` on."""
        for first in range(0, len(bonus), _BLOCK_PRICES):
            part = bonus[first : first + _BLOCK_PRICES]
            self._convert(self.prices[start + first : start + first + len(part)], part)

    def all(self) -> npt.NDArray[np.float32]:
        """Return the bonus of each group; the same array for recent prices."""
        global _recent
        recent, key = _recent, (self.reference, self.unit)  # read once: another thread may replace it
        for given, known, found in recent:
            if known == key and same_values(given, self.prices):
                return found
        bonus = np.empty(len(self.prices), dtype=np.float32)
        self.write(0, bonus)
        bonus.flags.writeable = False
        room = max(1, min(_MOST_RECENT, _MOST_PRICES // max(1, len(bonus))))
        own = self.prices.copy() if self.prices.flags.writeable else self.prices
        _recent = ((own, key, bonus), *recent[: room - 1])
        return bonus

    def change(self, before: "GroupBonus", enough: float) -> float:
        """Return an upper bound of the largest change of a bonus, in the same unit.

        It is NaN or infinity if other groups are masked, or any are. Beyond ``enough`` it may be any larger number.
        """
        scale, shift = math.ldexp(1.0, -self.unit), abs(self.raised - before.raised)
        sources = source_of(self.prices), source_of(before.prices)
        if sources[0] is not None and sources[1] is not None:
            by_promise = sources[0].change(sources[1])
            if by_promise is not None:
                return shift + scale * by_promise
        largest, change = shift, np.empty(min(_BLOCK_PRICES, len(self.prices)))
        for start in range(0, len(self.prices), _BLOCK_PRICES):
            now, then = (prices[start : start + _BLOCK_PRICES] for prices in (self.prices, before.prices))
            with np.errstate(invalid="ignore"):
                part = np.subtract(now, then, out=change[: len(now)])
            found = shift + scale * float(np.abs(part, out=part).max())
            if not found <= enough:
                return found
            largest = max(largest, found)
        return largest

    def _convert(self, prices: npt.NDArray[np.float64], bonus: npt.NDArray[np.float32]) -> None:
        exact = prices * -math.ldexp(1.0, -self.unit)
        exact += self.raised
        if self.is_cut:
            np.clip(exact, -_CUT_OFF, _CUT_OFF, out=exact)
            exact[prices == np.inf] = -np.inf
        bonus[...] = exact
