"""The explanation of a request where promises overlap: a candidate may have the prices of several promises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.explain.explanation import FIXED_LIST, ExplainedCandidate, Explanation
from fairsync.explain.trace import RequestTrace
from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairsync.catalog import Catalog
    from fairsync.catalog.atoms import Membership
    from fairsync.catalog.groups import Label
    from fairsync.explain.explanation import WhyNot
    from fairsync.explain.trace import BatchTrace
    from fairsync.policies import Terms

_Rows: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]


def why_not_under_promises(seen: RequestTrace, catalog: Catalog, item_id: Label) -> WhyNot:
    """Return why an item is not among the candidates of a request, with the label that it has in its first attribute.

    Parameters
    ----------
    seen
        What was seen, with prices by atom.
    catalog
        The items, with atoms as their groups.
    item_id
        Id of the item.
    """
    found, catalog = seen.why_not(catalog, item_id), catalog.ungrouped
    row = int(catalog.rows_of(np.array([item_id]))[0])
    return replace(found, group=catalog.labels_of(catalog.group_of[row]).item())


def saved_why_not(
    document: Mapping[str, Any], catalog: Catalog, names: Sequence[str], membership: Membership | None
) -> Callable[[Label], WhyNot]:
    """Return what answers `why_not` for a trace that `ExplainedPromises.to_dict` has written.

    Parameters
    ----------
    document
        The trace.
    catalog, names, membership
        The items, with atoms as their groups, and the promises, all as they are now; no membership if there are none.
        A promise that has ended meanwhile bears on no item.
    """
    seen = RequestTrace.from_dict(document, catalog.ungrouped)
    if membership is not None:
        prices = np.array([document["promises"].get(name, 0.0) for name in names])
        seen = replace(seen, prices=membership.atom_prices(prices))
    return partial(why_not_under_promises, seen, catalog)


@dataclass(frozen=True, eq=False)
class ExplainedPromises:
    """The explanation of one request of a batch, which is made when it is asked for.

    Attributes
    ----------
    trace, position
        What was seen when the batch was served, and the request in it.
    names : sequence of str
        The names of the promises.
    prices : numpy.ndarray
        (P,) the prices of the promises.
    """

    trace: BatchTrace
    position: int
    names: Sequence[str]
    prices: _Floats

    def explanation(self) -> Explanation:
        """Return the explanation."""
        return self._made

    def to_dict(self) -> Mapping[str, Any]:
        """Return explanation and trace as values for JSON; see `StoredExplanation`."""
        made, prices = self._made, self._left_prices()
        seen = replace(self._seen, prices=np.zeros(len(self._seen.prices)), keeps_floors=False, cut=made.cut)
        promises = {self.names[promise]: float(prices[promise]) for promise in np.flatnonzero(prices).tolist()}
        return {
            "explanation": made.to_dict(),
            "trace": {**seen.to_dict(self.trace.catalog.ungrouped), "promises": promises},
        }

    @cached_property
    def _made(self) -> Explanation:
        trace, seen = self.trace, self._seen
        rows, relevance = seen.chosen, self._relevance()
        catalog = trace.catalog.ungrouped
        missing = self._missing()
        named, scores = self._applied(rows, relevance)
        rank = rows if catalog.rank is None else catalog.rank[rows]
        order = np.lexsort((rank, -relevance))
        fixed = trace.fixed if trace.fixed is not None and trace.fixed.requests[self.position] else None
        if fixed is not None:
            order = order[fixed.order(rows[order])]
        plain, before, chosen = set(seen.plain.tolist()), set(seen.before.tolist()), set(rows.tolist())
        absent = iter(catalog.ids_of([row for row in seen.plain.tolist() if row not in chosen]).tolist())
        ids, labels = catalog.ids_of(rows).tolist(), catalog.labels_of(catalog.group_of[rows]).tolist()
        candidates = []
        for at in order.tolist():
            row = int(rows[at])
            is_plain = row in plain
            reason = "relevance" if is_plain else self._reason(named[at])
            if row not in before:
                reason = self._forced(row, missing)
            elif fixed is not None and row in fixed.rows:
                reason = FIXED_LIST
            candidates.append(
                ExplainedCandidate(
                    ids[at], labels[at], float(relevance[at]), {} if reason == FIXED_LIST else named[at],
                    int(trace.ranks[self.position, at]) or None, reason, None if is_plain else next(absent, None),
                )
            )  # fmt: skip
        open_slots = np.isin(rows, seen.before)
        cut = float(scores[open_slots].min()) if len(rows) == seen.k and open_slots.any() else None
        priced = replace(seen, prices=self._membership.atom_prices(self._left_prices()), keeps_floors=False)
        why_not = partial(why_not_under_promises, replace(priced, cut=cut), trace.catalog)
        return Explanation(tuple(candidates), cut, trace.depth, why_not)

    @cached_property
    def _seen(self) -> RequestTrace:
        return self.trace.request(self.position)

    def _relevance(self) -> _Floats:
        hits = self.trace.chosen
        relevance: _Floats = hits.relevance[self.position][hits.rows[self.position] >= 0]
        return relevance

    def _missing(self) -> _Rows:
        """Return (P,) what floors missed before the request."""
        trace, membership = self.trace, self._membership
        earlier = trace.chosen.rows[: self.position]
        shown = np.bincount(trace.catalog.group_of[earlier[earlier >= 0]], minlength=membership.n_atoms)
        missing: _Rows = np.maximum(trace.missing - membership.exposures(shown), 0)
        return missing

    def _left_prices(self) -> _Floats:
        """Return (P,) the prices for items that are not in the list of prices.

        A subsidy has ended if that list has what the floor missed. A promise whose limit per list is used up has the
        price +inf.
        """
        seen, terms = self._seen, self._terms
        if not seen.keeps_floors:
            return self.prices
        given = self._exposures(seen.before)
        prices = np.where((self.prices < 0) & (self._missing() <= given), 0.0, self.prices)
        limits = terms.list_limits
        return prices if limits is None else np.where((limits < terms.k) & (given >= limits), np.inf, prices)

    def _exposures(self, rows: _Rows) -> _Rows:
        membership = self._membership
        counts = np.bincount(self.trace.catalog.group_of[rows], minlength=membership.n_atoms)
        return membership.exposures(counts)

    def _applied(self, rows: _Rows, relevance: _Floats) -> tuple[list[dict[str, float]], _Floats]:
        """Return the prices of each candidate by promise, and its score.

        A subsidy is applied to the first items by score that its floor needs: in the list that prices gave, and then of
        those that the guard put in.
        """
        before, values = self.trace.before(self.position)
        applied = dict(zip(before.tolist(), self._prices_in_order(before, values, self._missing()), strict=True))
        forced = np.flatnonzero(~np.isin(rows, before))
        missing = self._missing() - self._exposures(rows[np.isin(rows, before)])
        late = self._prices_in_order(rows[forced], relevance[forced], missing)
        applied.update(zip(rows[forced].tolist(), late, strict=True))
        named = [applied[row] for row in rows.tolist()]
        return named, relevance - np.array([sum(one.values()) for one in named])

    def _prices_in_order(self, rows: _Rows, relevance: _Floats, missing: _Rows) -> list[dict[str, float]]:
        """Return the prices of items by promise, if they are added in the order of their scores."""
        trace, membership = self.trace, self._membership
        left, named = missing.copy(), [dict[str, float]() for _ in rows]
        atoms = trace.catalog.group_of[rows]
        for at in np.argsort(trace.prices[atoms] - relevance, kind="stable").tolist():
            for promise in membership.of_atom(int(atoms[at])).tolist():
                price = float(self.prices[promise])
                if price < 0 and self._seen.keeps_floors:
                    price = price if left[promise] > 0 else 0.0
                    left[promise] -= 1
                if self.prices[promise] != 0:
                    named[at][self._text(promise)] = price
        return named

    def _reason(self, prices: dict[str, float]) -> str:
        """Return the promise with the largest subsidy, if there is one."""
        name = min(prices, key=prices.__getitem__, default=None)
        return f"promise: {name}" if name is not None and prices[name] < 0 else "price"

    def _forced(self, row: int, missing: _Rows) -> str:
        """Return the promise that the guard filled a slot for: of those that missed most, or the caps."""
        promises = self._membership.of_atom(int(self.trace.catalog.group_of[row]))
        due = promises[missing[promises] > 0]
        return f"forced: {self._text(int(due[np.argmax(missing[due])]))}" if len(due) else "forced: caps"

    def _text(self, promise: int) -> str:
        terms, name = self._terms, self.names[promise]
        bounds = [f"≥ {terms.floors[promise]:,}"] if terms.floors[promise] else []
        if terms.caps is not None and terms.caps[promise] < NO_CAP:
            bounds.append(f"≤ {terms.caps[promise]:,}")
        return f"{name} {', '.join(bounds)}"

    @property
    def _terms(self) -> Terms:
        return self.trace.terms

    @property
    def _membership(self) -> Membership:
        membership = self.trace.terms.membership
        assert membership is not None
        return membership
