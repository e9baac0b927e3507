"""The guard for floors of groups that do not overlap: the certificate is what the floors miss."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_slots import SlotForecast
from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.guard.asked import AskedSlots, exceeds_declared
from fairsync.policies.base import Counts, Floats, Terms
from fairsync.promises.floors import can_be_met
from fairsync.search.base import Hits
from fairsync.search.eligibility import Eligibility

Rows: TypeAlias = npt.NDArray[np.int64]
SearchOne: TypeAlias = Callable[[int, Floats, int], Hits]
"""(position of the request, prices, k) -> hits of that one request."""


def due_exposures(missing: Counts, left: int, terms: Terms, own: Counts | None = None) -> Counts:
    """Return the missing exposures that the requests left can deliver: all of them, unless an outage came too late.

    Of the first of these requests, ``own`` is what it can show of each group, if that is not what any request can.
    """
    possible = left * terms.capacities if own is None else (left - 1) * terms.capacities + own
    return np.minimum(missing, possible)


def keep_floors(
    search: SearchOne,
    catalog: Catalog,
    terms: Terms,
    prices: Floats,
    hits: Hits,
    missing: Counts,
    left: int,
    k: int,
    eligible: Eligibility | None = None,
    forecast: SlotForecast | None = None,
    replaced: dict[int, tuple[Rows, Floats]] | None = None,
    fixed: npt.NDArray[np.bool_] | None = None,
) -> tuple[Hits, int, Counts]:
    """Do what `fairsync.guard.keep_promises` does where promise p is atom p and has a floor only."""
    n_groups = len(terms.floors)
    rows, relevance = hits.rows[:, :k].copy(), hits.relevance[:, :k].copy()
    forced = 0
    limited = None if eligible is None else exceeds_declared(eligible, terms)
    for i in range(len(rows)):
        left -= 1
        counts = _count(catalog, rows[i], n_groups)
        if ((counts > missing) & (prices < 0)).any() and (fixed is None or not fixed[i]):
            chosen = _choose_among(search, catalog, k, prices, hits, missing, i, may_be_short=eligible is not None)
            rows[i], relevance[i] = _padded(*chosen, k)
            counts = _count(catalog, rows[i], n_groups)
        own = None
        if eligible is not None or forecast is not None or terms.max_exclude:
            sizes = catalog.group_sizes
            if eligible is not None:
                sizes = eligible.group_sizes(i, catalog)
            own = np.minimum(sizes if hits.reached is None else np.minimum(sizes, hits.reached), k)
        due = due_exposures(missing, left + 1, terms, own)
        asked = None
        if forecast is not None and own is not None:
            asked = AskedSlots.of(due, own, forecast.counted(left), k)
        is_safe = can_be_met(np.maximum(due - counts, 0), left, terms)
        if not is_safe or (asked is not None and not asked.has(counts, due)):
            before = set(rows[i].tolist())
            if replaced is not None:
                replaced[i] = rows[i].copy(), relevance[i].copy()
            composed = compose(
                lambda p, n, i=i: search(i, p, n),  # type: ignore[misc]
                catalog.group_of, rows[i], relevance[i], terms, prices, due, left,
                limited=limited is not None and bool(limited[i]), asked=asked,
            )  # fmt: skip
            rows[i], relevance[i] = _padded(*composed, k)
            forced += len(set(rows[i].tolist()) - before)
            counts = _count(catalog, rows[i], n_groups)
        missing = np.maximum(missing - counts, 0)
    return Hits(rows, relevance, hits.reached), forced, missing


def _count(catalog: Catalog, rows: Rows, n_groups: int) -> Counts:
    """Return the exposures of each group in a list, which may have empty places at its end."""
    if rows[-1] < 0:
        rows = rows[rows >= 0]
    return np.bincount(catalog.group_of[rows], minlength=n_groups)


def _padded(rows: Rows, relevance: Floats, k: int) -> tuple[Rows, Floats]:
    """Return a list of k places, of which the last are empty if there are too few items."""
    if len(rows) == k:
        return rows, relevance
    short = Hits.empty(1, k)
    short.rows[0, : len(rows)], short.relevance[0, : len(rows)] = rows, relevance
    return short.rows[0], short.relevance[0]


def _choose_among(
    search: SearchOne,
    catalog: Catalog,
    k: int,
    prices: Floats,
    hits: Hits,
    missing: Counts,
    i: int,
    *,
    may_be_short: bool,
) -> tuple[Rows, Floats]:
    """Apply the first rule to the list of request i, with longer lists until the choice is certain."""
    rows, relevance = hits.rows[i], hits.relevance[i]
    while True:
        groups = catalog.group_of[rows]
        complete = len(rows) == len(catalog) or rows[-1] < 0
        if complete:
            rows, relevance, groups = rows[rows >= 0], relevance[rows >= 0], groups[rows >= 0]
            if may_be_short and len(rows) <= k:
                return rows, relevance
            if len(rows) < k:
                raise BackendUnavailableError(f"only {len(rows)} items are within reach, fewer than k = {k}.")
        beyond = -np.inf if complete else float(relevance[-1] - prices[groups[-1]])
        ranks = rows if catalog.rank is None else catalog.rank[rows]
        chosen = choose(groups, relevance, ranks, prices, missing, k, beyond)
        if chosen is not None:
            return rows[chosen], relevance[chosen]
        deeper = search(i, prices, min(2 * len(rows), len(catalog)))
        rows, relevance = deeper.rows[0], deeper.relevance[0]


def choose(
    groups: npt.NDArray[np.integer],
    relevance: Floats,
    ranks: npt.NDArray[np.integer],
    prices: Floats,
    missing: Counts,
    k: int,
    beyond: float,
) -> npt.NDArray[np.intp] | None:
    """Choose the k best entries of a list when a subsidy is paid for missing exposures only.

    Parameters
    ----------
    groups, relevance, ranks
        (width,) group, relevance and tie-breaking rank of each entry, best relevance minus price first.
    prices
        (G,) prices under which the list was made.
    missing
        (G,) exposures that each group still misses.
    k
        Number of entries to choose.
    beyond
        Upper bound of relevance minus price of the items outside the list; -inf if there are none.

    Returns
    -------
    numpy.ndarray or None
        (k,) positions in the list; None if an item outside it might belong among them.

    Examples
    --------
    Group 1 misses one exposure: its best item is subsidised by 0.5, its second one competes as it is.

    >>> choose(np.array([1, 1, 0]), np.array([0.6, 0.5, 0.8]), np.array([0, 1, 2]),
    ...        prices=np.array([0.0, -0.5]), missing=np.array([0, 1]), k=2, beyond=-np.inf).tolist()
    [0, 2]
    """
    by_group = np.argsort(groups, kind="stable")
    ordered = groups[by_group]
    nth = np.empty(len(groups), dtype=np.int64)  # 0 for the best entry of its group, 1 for the next, ...
    nth[by_group] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    price = prices[groups]
    score = relevance - np.where((price < 0) & (nth >= missing[groups]), 0.0, price)
    order = np.lexsort((ranks, -score))[:k]
    return order if score[order[-1]] > beyond else None


def compose(
    search: Callable[[Floats, int], Hits],
    group_of: npt.NDArray[np.int32],
    rows: Rows,
    relevance: Floats,
    terms: Terms,
    prices: Floats,
    missing: Counts,
    left: int,
    *,
    limited: bool = False,
    asked: AskedSlots | None = None,
) -> tuple[Rows, Floats]:
    r"""Return the best candidates that leave the rest of the horizon possible.

    With R requests after this one, these are at least :math:`D_g - R c_g` items of each group, at least
    :math:`\sum D - R K` items that count towards some group's missing exposures, and otherwise the candidates that
    prices chose. The requirements are nested, so that taking the best items for the narrowest one first is optimal.

    Parameters
    ----------
    search
        (prices, k) -> hits of this one request.
    group_of
        (n,) group of each item.
    rows, relevance
        (k,) candidates that prices alone would give, best relevance minus price first.
    terms, prices, missing
        As for :func:`fairsync.guard.keep_promises`.
    left
        Requests left after this one.
    limited
        Whether this request may be unable to show what is required: it then shows what it can.
    asked
        What a forecast asks of this request. It comes after what would be lost even if all later requests could show
        what was declared, so that a pessimistic forecast breaks no floor that is certain.
    """
    taken: dict[int, float] = {}

    def take(quota: Counts, how_many: int) -> None:
        """Take up to ``how_many`` of the best items of groups that have a quota left."""
        how_many = min(how_many, len(rows) - len(taken))  # after an outage, more can be due than a list holds
        while how_many > 0:
            before = len(taken)
            found = search(np.where(quota > 0, prices, np.inf), min(before + how_many, len(group_of)))
            for row, score in zip(found.rows[0].tolist(), found.relevance[0].tolist(), strict=True):
                if row >= 0 and row not in taken and how_many > 0 and quota[group_of[row]] > 0:
                    taken[row] = score
                    quota[group_of[row]] -= 1
                    how_many -= 1
            if len(taken) == before and (limited or found.reached is not None):
                return
            if len(taken) == before:
                raise FairSyncError(
                    "The index found too few items of a group whose floor is due. The promise needs an index that"
                    " can return every item of a group; 'exact' can."
                )

    owed = np.maximum(missing - left * terms.capacities, 0)
    still = missing - owed
    first = owed.copy()
    take(owed, int(owed.sum()))
    useful = int(missing.sum()) - left * terms.k
    if asked is not None:
        more = np.minimum(np.maximum(asked.groups - (first - owed), 0), still)
        still = still - more
        take(more, int(more.sum()))
        useful = max(useful, asked.total)
    take(still, useful - len(taken))
    for row, score in zip(rows.tolist(), relevance.tolist(), strict=True):
        if row >= 0 and len(taken) < len(rows):
            taken.setdefault(row, score)
    return np.array(list(taken), dtype=np.int64), np.array(list(taken.values()))
