"""The explanations of a batch, from its trace: all at once, because one by one would take longer than serving."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.explain.explained_promises import ExplainedPromises
from fairsync.explain.explanation import FIXED_LIST, ExplainedCandidate, Explanation
from fairsync.explain.trace import BatchTrace, applied_prices, filled_places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Label
    from fairsync.explain.explanation import WhyNot

_Rows: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]
# As `ExplainedCandidate(...)`, in a third of the time.
_make = partial(tuple.__new__, ExplainedCandidate)


class _Columns(NamedTuple):
    """What `Explanation` says of each candidate of a batch, as columns of all its candidates.

    Attributes
    ----------
    columns : tuple of list
        The fields of `ExplainedCandidate`, request by request.
    ends : list of int
        Where the candidates of each request end.
    cuts : list
        The score that an item needed to get a slot of each request.
    """

    columns: tuple[list[Any], ...]
    ends: list[int]
    cuts: list[float | None]


class ExplainedBatch:
    """The explanations of a batch: all of them are made when the first is asked for.

    Parameters
    ----------
    trace
        What was seen when the batch was served.
    """

    def __init__(self, trace: BatchTrace) -> None:
        self.trace = trace

    def explanation(self, i: int) -> Explanation:
        """Return the explanation of one request."""
        columns, ends, cuts = self._columns
        mine = slice(ends[i - 1] if i else 0, ends[i])
        # Made when they are read: the garbage collector has to look at all that are kept.
        candidates = tuple(map(_make, zip(*[column[mine] for column in columns], strict=True)))
        return Explanation(candidates, cuts[i], self.trace.depth, partial(self._why_not, i))

    def _why_not(self, i: int, item_id: Label) -> WhyNot:
        return self.trace.request(i).why_not(self.trace.catalog, item_id)

    @cached_property
    def _columns(self) -> _Columns:
        trace = self.trace
        there = trace.chosen.rows >= 0
        order = self._order(trace)[np.sort(~there, axis=1) == 0]  # empty places are the last in this order
        owners = np.repeat(np.arange(len(there)), there.sum(axis=1))
        rows, relevance = trace.chosen.rows[owners, order], trace.chosen.relevance[owners, order]
        groups = trace.catalog.group_of[rows].astype(np.int64)
        shown = np.zeros(trace.catalog.n_groups, dtype=bool)
        shown[groups] = True
        promises = trace.promise_names(np.flatnonzero(shown))
        prices = applied_prices(trace, owners, rows, relevance)
        plain_at, plain = filled_places(trace.plain)
        is_plain, absent = self._compare(owners, rows, trace.ranks[owners, order], plain_at, plain)
        ids, labels = trace.catalog.ids_of(rows).tolist(), trace.catalog.labels_of(groups).tolist()
        codes, reasons = groups.tolist(), ["relevance"] * len(groups)
        for at in np.flatnonzero(~is_plain).tolist():
            reasons[at] = f"promise: {promises[codes[at]]}" if codes[at] in promises else "price"
        named_prices = self._named_prices(groups, prices, promises)
        forced = set(self._forced(owners, rows))
        for at in np.flatnonzero(self._is_fixed(owners, rows)).tolist():
            if at not in forced:
                reasons[at], named_prices[at] = FIXED_LIST, {}
        for at in forced:
            reasons[at] = f"forced: {promises.get(codes[at])}"
        ranks: list[int | None] = trace.ranks[owners, order].tolist()
        if trace.depth is not None:
            ranks = [rank or None for rank in ranks]
        displaced = self._displaced(owners, is_plain, plain_at[absent], plain[absent])
        columns = (ids, labels, relevance.tolist(), named_prices, ranks, reasons, displaced)
        ends = np.cumsum(there.sum(axis=1)).tolist()
        return _Columns(columns, ends, self._find_cuts(owners, rows, relevance - prices))

    def _compare(
        self, owners: _Rows, rows: _Rows, ranks: _Rows, plain_at: _Rows, plain: _Rows
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which candidates are there without prices, too, and which items without prices are no candidates."""
        trace = self.trace
        if trace.fixed is not None:  # its items come first, whatever their ranks
            n = len(trace.catalog)
            ours, theirs = owners * n + rows, plain_at * n + plain
            return np.isin(ours, theirs), ~np.isin(theirs, ours)
        # Without prices, an item of rank r has place r.
        requests, k = trace.plain.shape
        counts = np.bincount(plain_at, minlength=requests)
        is_plain = (ranks > 0) & (ranks <= counts[owners])
        there = np.zeros((requests, k), dtype=bool)
        there[owners[is_plain], ranks[is_plain] - 1] = True
        return is_plain, ~there[trace.plain >= 0]

    @staticmethod
    def _order(trace: BatchTrace) -> _Rows:
        """Return (n, k) the places of the candidates in the order of the answer."""
        rows = trace.chosen.rows
        rank = rows if trace.catalog.rank is None else trace.catalog.rank[rows]
        order = np.lexsort((rank, -trace.chosen.relevance, rows < 0))
        if trace.fixed is not None:
            for i in np.flatnonzero(trace.fixed.requests).tolist():
                n = np.count_nonzero(rows[i] >= 0)
                mine = order[i, :n]
                order[i, :n] = mine[trace.fixed.order(rows[i, mine])]
        return order

    def _named_prices(self, groups: _Rows, prices: _Floats, promises: Mapping[int, str]) -> list[Mapping[str, float]]:
        """Return the price of each candidate by its name, if it has one. Equal ones are one dict."""
        kinds = 2 * groups + (prices == 0)
        named = np.empty(2 * len(self.trace.prices), dtype=object)
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            code, price = kind // 2, float(self.trace.prices[kind // 2])
            name = promises.get(code)
            if name is None and price != 0:
                name = f"{self.trace.catalog.labels[code]} (no promise)"
            named[kind] = {name: 0.0 if kind % 2 else price} if name else {}
        found: list[Mapping[str, float]] = named[kinds].tolist()
        return found

    def _is_fixed(self, owners: _Rows, rows: _Rows) -> npt.NDArray[np.bool_]:
        fixed = self.trace.fixed
        if fixed is None:
            return np.zeros(len(rows), dtype=bool)
        found: npt.NDArray[np.bool_] = fixed.requests[owners] & np.isin(rows, fixed.rows)
        return found

    def _forced(self, owners: _Rows, rows: _Rows) -> list[int]:
        """Return the candidates that the guard has put in, of the requests whose lists it composed."""
        forced: list[int] = []
        for i, (before, _) in self.trace.replaced.items():
            mine = np.flatnonzero(owners == i)
            forced += mine[~np.isin(rows[mine], before)].tolist()
        return forced

    def _displaced(
        self, owners: _Rows, is_plain: npt.NDArray[np.bool_], absent_at: _Rows, absent: _Rows
    ) -> list[Label | None]:
        """Return the item that each candidate displaced: the first such candidate the best absent item, and so on."""
        newcomers, k = np.flatnonzero(~is_plain), self.trace.chosen.rows.shape[1]
        _, first, second = np.intersect1d(_keys(owners[newcomers], k), _keys(absent_at, k), True, return_indices=True)
        displaced: list[Label | None] = [None] * len(owners)
        names = self.trace.catalog.ids_of(absent[second]).tolist()
        for at, name in zip(newcomers[first].tolist(), names, strict=True):
            displaced[at] = name
        return displaced

    def _find_cuts(self, owners: _Rows, rows: _Rows, scores: _Floats) -> list[float | None]:
        """Return the score that an item needed to get a slot of each request, None where no slot was open to prices."""
        n, k = self.trace.chosen.rows.shape
        lowest = np.full(n, np.inf)
        is_open = ~self._is_fixed(owners, rows)
        np.minimum.at(lowest, owners[is_open], scores[is_open])
        is_full = np.bincount(owners, minlength=n) == k
        cuts: list[float | None] = [
            cut if full and np.isfinite(cut) else None
            for cut, full in zip(lowest.tolist(), is_full.tolist(), strict=True)
        ]
        for i in self.trace.replaced:
            cuts[i] = self.trace.request(i).cut
        return cuts


@dataclass(frozen=True)
class PendingExplanation:
    """The explanation of one request of a batch, which is made when it is asked for.

    Attributes
    ----------
    batch, position
        The explanations of the batch, and the request in it.
    """

    batch: ExplainedBatch
    position: int

    def explanation(self) -> Explanation:
        """Return the explanation."""
        return self.batch.explanation(self.position)

    def to_dict(self) -> Mapping[str, Any]:
        """Return explanation and trace as values for JSON; see `StoredExplanation`."""
        seen = self.batch.trace.request(self.position)
        return {"explanation": self.explanation().to_dict(), "trace": seen.to_dict(self.batch.trace.catalog)}


def explain_requests(trace: BatchTrace, names: Sequence[Label]) -> Sequence[PendingExplanation | ExplainedPromises]:
    """Return the explanation of each request of a batch.

    Parameters
    ----------
    trace
        What was seen when the batch was served.
    names
        The names of the promises, which are needed if promises overlap.
    """
    n, prices = len(trace.chosen.rows), trace.promise_prices
    if prices is not None:
        return [ExplainedPromises(trace, i, [str(name) for name in names], prices) for i in range(n)]
    batch = ExplainedBatch(trace)
    return [PendingExplanation(batch, i) for i in range(n)]


def _keys(owners: _Rows, k: int) -> _Rows:
    """Return a number for each entry's request and its place among the at most k entries of that request."""
    return owners * k + np.arange(len(owners)) - np.searchsorted(owners, owners)
