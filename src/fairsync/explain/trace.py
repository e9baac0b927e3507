"""Traces: what was seen when requests were answered, and the explanations that follow from it.

A trace is recorded only if it is asked for. It holds what cannot be computed later (prices, missing exposures, ranks
without prices, and what the guard replaced); the explanation itself is made when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog.names import check_names, check_same_kind
from fairsync.errors import InvalidInputError
from fairsync.explain.explanation import WhyNot
from fairsync.search.exact import ExactIndex
from fairsync.search.filtering import search_eligible
from fairsync.search.ranks import rank_without_prices
from fairsync.search.scoring import relevance as relevance_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog import Catalog, Selection
    from fairsync.catalog.groups import Label
    from fairsync.cold_start.fixed_list import FixedList
    from fairsync.explain.explanation import Absence
    from fairsync.policies import Terms
    from fairsync.search.base import Hits, Index
    from fairsync.search.eligibility import Eligibility

_Rows: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]
Replaced: TypeAlias = dict[int, tuple[_Rows, _Floats]]
"""For each request that the guard composed, what it would have got otherwise: rows and relevance, best score first."""
_LISTS = ("excluded", "chosen", "before", "plain")


@dataclass(frozen=True)
class RequestTrace:
    """What was seen when one request was answered.

    Attributes
    ----------
    user : numpy.ndarray
        (interests, d) its vectors.
    prices, missing : numpy.ndarray
        (G,) the prices, and the exposures that each floor still missed.
    keeps_floors : bool
        Whether a subsidy ended with its floor.
    excluded : numpy.ndarray
        Rows of the items that the request excluded, in ascending order.
    selection : Selection or None
        The items that met its condition; None if it had none.
    chosen, before, plain : numpy.ndarray
        Rows of its candidates; of what prices gave it, of which the guard may have replaced some; and of what it would
        have got without prices.
    k : int
        Candidates that were asked for.
    cut : float or None
        The score that an item needed to get a slot; None if no slot was open to prices.
    """

    user: npt.NDArray[np.floating[Any]]
    prices: _Floats
    missing: npt.NDArray[np.int64]
    keeps_floors: bool
    excluded: _Rows
    selection: Selection | None
    chosen: _Rows
    before: _Rows
    plain: _Rows
    k: int
    cut: float | None

    def why_not(self, catalog: Catalog, item_id: Label) -> WhyNot:
        """Return why an item is not among the candidates.

        Parameters
        ----------
        catalog
            The items. Relevance and group are those that an item has here.
        item_id
            Id of the item.
        """
        ids = check_names([item_id], None, "item ids", "id")
        check_same_kind(ids, catalog.ids[:1], "ids")
        row = int(catalog.rows_of(ids)[0])
        if row < 0:
            raise InvalidInputError(f"the catalog has no item {item_id!r}.")
        if row in self.chosen:
            raise InvalidInputError(f"the item {item_id!r} is among the candidates of the request.")
        relevance = float(self._relevance(catalog, np.array([row]))[0])
        price = self._price(catalog, row, relevance)
        below = None if self.cut is None else self.cut - (relevance - price)
        reason: Absence = "relevance"
        if row in self.excluded:
            reason = "excluded"
        elif self.selection is not None and not self.selection.mask[row]:
            reason = "condition"
        elif row in self.before:
            reason = "forced"
        elif len(self.chosen) < self.k or (below is not None and below < 0):
            reason = "missed"  # a short list has every eligible item that was found
        elif row in self.plain or np.isinf(price):
            reason = "price"
        label = catalog.labels_of(catalog.group_of[row]).item()
        return WhyNot(ids.tolist()[0], label, reason, relevance, price, self.cut, below)

    def _relevance(self, catalog: Catalog, rows: _Rows) -> _Floats:
        users = np.asarray(self.user, dtype=np.float64)[None]
        return relevance_of(catalog, users, np.zeros(len(rows), dtype=np.int64), rows)

    def _price(self, catalog: Catalog, row: int, relevance: float) -> float:
        """Return the price of one item: a subsidy, if fewer items of its group are better than the floor misses."""
        group = int(catalog.group_of[row])
        price = float(self.prices[group])
        if not self.keeps_floors or price >= 0:
            return price
        others = np.flatnonzero(catalog.group_of == group)
        if self.selection is not None:
            others = others[self.selection.mask[others]]
        others = others[~np.isin(others, self.excluded) & (others != row)]
        scores, score, rank = self._relevance(catalog, others) - price, relevance - price, catalog.rank
        earlier = others < row if rank is None else rank[others] < rank[row]
        better = np.count_nonzero((scores > score) | ((scores == score) & earlier))
        return price if better < self.missing[group] else 0.0

    def to_dict(self, catalog: Catalog) -> dict[str, Any]:
        """Return the trace as values for JSON, in ids and labels, so that it outlives the catalog."""
        lists = {name: catalog.ids_of(getattr(self, name)).tolist() for name in _LISTS}
        return {
            "user": self.user.tolist(),
            "prices": [
                [catalog.labels[code], float(self.prices[code]), int(self.missing[code])]
                for code in np.flatnonzero(self.prices).tolist()
            ],
            "keeps_floors": self.keeps_floors,
            "where": None if self.selection is None else self.selection.where,
            "k": self.k,
            "cut": self.cut,
            **lists,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], catalog: Catalog) -> RequestTrace:
        """Return the trace that `to_dict` has written, in the rows of the catalog as it is now.

        An item that the catalog no longer holds has row -1, and groups that it no longer holds are left out.
        """
        prices, missing = np.zeros(catalog.n_groups), np.zeros(catalog.n_groups, dtype=np.int64)
        codes = {label: code for code, label in enumerate(catalog.labels)}
        for label, price, lacking in document["prices"]:
            if label in codes:
                prices[codes[label]], missing[codes[label]] = price, lacking
        none = np.empty(0, dtype=np.int64)
        lists = {name: catalog.rows_of(np.array(document[name])) if document[name] else none for name in _LISTS}
        return cls(
            user=np.array(document["user"], dtype=np.float64),
            prices=prices,
            missing=missing,
            keeps_floors=document["keeps_floors"],
            selection=None if document["where"] is None else catalog.select(document["where"]),
            k=document["k"],
            cut=document["cut"],
            **lists,
        )


@dataclass(frozen=True)
class BatchTrace:
    """What was seen when a batch was served. Its requests are explained when they are looked at.

    Attributes
    ----------
    catalog, users, eligible
        The items, the user vectors, and the items that each request could get.
    prices, missing, terms, keeps_floors
        Of the batch: prices, missing exposures before its first request, the promise, and whether the guard kept it.
    chosen : Hits
        (n, k) candidates.
    replaced : dict
        What the guard replaced.
    ranks : numpy.ndarray
        (n, k) ranks of the candidates without prices; 0 where it is not known.
    plain : numpy.ndarray
        (n, k) rows that the requests would have got without prices.
    depth : int or None
        The number of items by relevance that the index was asked for; None if every rank is known.
    fixed : FixedList or None
        The list that some of the requests begin with.
    names : dict or None
        Texts of promises by label, in place of "label ≥ floor". Labels without a text have no promise: their floors are
        only what they have had before a plan by the clock.
    promise_prices : numpy.ndarray or None
        (P,) prices by promise; None if promises do not overlap.
    """

    catalog: Catalog
    users: npt.NDArray[np.floating[Any]]
    eligible: Eligibility | None
    prices: _Floats
    missing: npt.NDArray[np.int64]
    terms: Terms
    keeps_floors: bool
    chosen: Hits
    replaced: Replaced
    ranks: _Rows
    plain: _Rows
    depth: int | None
    fixed: FixedList | None = None
    names: Mapping[Label, str] | None = None
    promise_prices: _Floats | None = None

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        index: Index,
        users: npt.NDArray[np.floating[Any]],
        eligible: Eligibility | None,
        chosen: Hits,
        replaced: Replaced,
        prices: _Floats,
        missing: npt.NDArray[np.int64],
        terms: Terms,
        *,
        depth: int,
        keeps_floors: bool,
        fixed: FixedList | None = None,
        promise_prices: _Floats | None = None,
    ) -> BatchTrace:
        """Return the trace of a batch that was served; this finds the candidates that it would have had without prices.

        Parameters
        ----------
        catalog, index, users, eligible
            As for :func:`fairsync.loop.serving.serve`.
        chosen
            (n, k) candidates.
        replaced
            As :func:`fairsync.guard.keep_promises` has filled it.
        prices, missing, terms, keeps_floors
            Of the batch.
        depth
            The number of items to ask the index for, if it does not know every rank.
        fixed
            The list that some of the requests begin with, with prices and without.
        promise_prices
            (P,) prices by promise; None if promises do not overlap.
        """
        k = chosen.rows.shape[1]
        known: int | None = None
        if not prices.any() and not replaced and fixed is None and terms.list_limits is None:
            found, ranks = chosen, np.where(chosen.rows >= 0, np.arange(1, k + 1), 0)
        elif isinstance(index, ExactIndex):
            ranks, found = rank_without_prices(index, users, chosen, eligible)
        else:
            known, found = depth, search_eligible(index, users, None, depth, eligible)
            same = (found.rows[:, None, :] == chosen.rows[:, :, None]) & (chosen.rows[:, :, None] >= 0)
            ranks = np.where(same.any(axis=2), same.argmax(axis=2) + 1, 0)
        if fixed is not None:
            found = fixed.put_first(found, k, catalog, users, eligible)
        return cls(
            catalog, users, eligible, prices, missing, terms, keeps_floors, chosen, replaced, ranks,
            found.rows[:, :k], known, fixed, promise_prices=promise_prices,
        )  # fmt: skip

    def request(self, i: int) -> RequestTrace:
        """Return the trace of one request."""
        eligible, k = self.eligible, self.chosen.rows.shape[1]
        chosen, nothing = self._candidates(i)[0], np.empty(0, dtype=np.int64)
        before = self.before(i)[0]
        plain, overlaps = self.plain[i], self.terms.membership is not None  # see `fairsync.explain.explained_promises`
        return RequestTrace(
            user=self.users[i],
            prices=self.prices,
            missing=self.missing if overlaps else self._missing(i),
            keeps_floors=self._keeps_floors(i),
            excluded=nothing if eligible is None else eligible.excluded[eligible.offsets[i] : eligible.offsets[i + 1]],
            selection=None if eligible is None else eligible.selection(i),
            chosen=chosen,
            before=before,
            plain=plain[plain >= 0],
            k=k,
            cut=self._cut(i) if len(chosen) == k and not overlaps else None,
        )

    def before(self, i: int) -> tuple[_Rows, _Floats]:
        """Return what prices gave a request, best score first."""
        rows, relevance = self.replaced.get(i, self._candidates(i))
        return rows[rows >= 0], relevance[rows >= 0]

    def promise_names(self, groups: _Rows) -> dict[int, str]:
        """Return the promise of each of these groups that has one, by its code."""
        floors, labels = self.terms.floors, self.catalog.labels
        promised = groups[floors[groups] > 0].tolist()
        if self.names is not None:
            return {code: self.names[labels[code]] for code in promised if labels[code] in self.names}
        return {code: f"{labels[code]} ≥ {floors[code]}" for code in promised}

    def _candidates(self, i: int) -> tuple[_Rows, _Floats]:
        there = self.chosen.rows[i] >= 0  # empty places are at the end
        return self.chosen.rows[i][there], self.chosen.relevance[i][there]

    def _is_fixed(self, i: int, rows: _Rows) -> npt.NDArray[np.bool_]:
        """Return which of these items a request got because its list begins with them."""
        if self.fixed is None or not self.fixed.requests[i]:
            return np.zeros(len(rows), dtype=bool)
        return np.isin(rows, self.fixed.rows)

    def _keeps_floors(self, i: int) -> bool:
        """Return whether a subsidy ended with its floor: not beside a fixed list, as `guard.keep_promises` has it."""
        return self.keeps_floors and (self.fixed is None or not self.fixed.requests[i])

    def _missing(self, i: int) -> npt.NDArray[np.int64]:
        earlier = self.chosen.rows[:i]
        counts = np.bincount(self.catalog.group_of[earlier[earlier >= 0]], minlength=len(self.missing))
        missing: npt.NDArray[np.int64] = np.maximum(self.missing - counts, 0)
        return missing

    def _cut(self, i: int) -> float | None:
        rows, relevance = self.before(i)
        n_open = len(rows)
        if i in self.replaced:
            # Slots are given to the best scores first, so that the first item that was dropped ends them.
            kept = np.isin(rows, self.chosen.rows[i])
            n_open = n_open if kept.all() else int(np.argmin(kept))
        is_open = ~self._is_fixed(i, rows)[:n_open]
        if not is_open.any():
            return None
        prices = applied_prices(self, np.full(len(rows), i), rows, relevance)
        lowest = float((relevance - prices)[:n_open][is_open].min())
        return lowest if np.isfinite(lowest) else None


def applied_prices(trace: BatchTrace, owners: _Rows, rows: _Rows, relevance: _Floats) -> _Floats:
    """Return the prices of lists that have the best items of each group: a subsidy ends with its floor.

    Parameters
    ----------
    trace
        The batch.
    owners, rows, relevance
        The request of each item, in ascending order; the item and its relevance.
    """
    groups = trace.catalog.group_of[rows].astype(np.int64)
    prices: _Floats = trace.prices[groups]
    paid = np.flatnonzero(prices < 0) if trace.keeps_floors else ()
    if not len(paid):
        return prices
    owners, rows, groups, price = owners[paid], rows[paid], groups[paid], prices[paid]
    ties = rows if trace.catalog.rank is None else trace.catalog.rank[rows]
    # By score, not by relevance: beside a huge price, different relevances give the same score, as in the search.
    lists = owners * trace.catalog.n_groups + groups
    order = np.lexsort((ties, price - relevance[paid], lists))
    nth = np.empty(len(rows), dtype=np.int64)  # 0 for the best item of its group in its list, 1 for the next, ...
    nth[order] = np.arange(len(rows)) - np.searchsorted(lists[order], lists[order])
    ends = nth >= missing_before(trace, owners, groups)
    if trace.fixed is not None:  # beside a fixed list no subsidy ends, as `guard.keep_floors` has it
        ends &= ~trace.fixed.requests[owners]
    prices[paid[ends]] = 0.0
    return prices


def missing_before(trace: BatchTrace, owners: _Rows, groups: _Rows) -> _Rows:
    """Return the exposures that the floor of each of these groups missed before each of these requests."""
    n = len(trace.chosen.rows)
    at, rows = filled_places(trace.chosen.rows)
    shown = np.sort(trace.catalog.group_of[rows].astype(np.int64) * n + at)
    earlier = np.searchsorted(shown, groups * n + owners) - np.searchsorted(shown, groups * n)
    return np.maximum(trace.missing[groups] - earlier, 0)


def filled_places(rows: _Rows) -> tuple[_Rows, _Rows]:
    """Return the request and the row of each place that is not empty."""
    owners, places = np.nonzero(rows >= 0)
    return owners, rows[owners, places]
