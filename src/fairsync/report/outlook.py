"""The outlook of each promise where requests have rules of their own: what is certain, expected, and will be missed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.eligibility.eligible_slots import EligibleSlots
    from fairsync.ledger import Totals
    from fairsync.policies import Terms

Outlook: TypeAlias = Literal["certain", "expected", "at risk", "will miss", "missed"]


@dataclass(frozen=True)
class PromiseOutlook:
    """What is to be expected of one promise, from the items that were eligible so far.

    Attributes
    ----------
    outlook : str
        ``certain``: the floor is reached. ``expected``: the requests to come can deliver what is missing, by a cautious
        forecast, or if they show as much as was counted on, as every request did so far. ``at risk``: they may. ``will
        miss``: not even an optimistic forecast covers it. Each promise is judged by itself, as if no other needed the
        same slots. ``missed``: the horizon is over.
    share : float
        The share of requests that could show the group at all.
    shortfall : int
        The exposures that will be missing if the requests to come can show as much as those so far; those that are
        missing, if none is to come.
    """

    outlook: Outlook
    share: float
    shortfall: int

    @property
    def reason(self) -> str:
        """Why the promise is at risk, will be missed or was missed, in a sentence; empty if it is not.

        Examples
        --------
        >>> PromiseOutlook("will miss", 0.0312, 40).reason
        'only 3.1 % of requests could show it; about 40 exposures will be missing'
        >>> PromiseOutlook("at risk", 0.5, 0).reason
        'only 50 % of requests could show it'
        >>> PromiseOutlook("at risk", 1.0, 0).reason
        'requests could show too few of its items'
        """
        if self.outlook not in ("at risk", "will miss", "missed"):
            return ""
        if self.outlook == "missed" and self.share == 1:
            return ""
        shown = f"only {_percent(self.share)} of requests could show it" if self.share else "no request could show it"
        if self.share == 1:
            shown = "requests could show too few of its items"
        if not self.shortfall or self.outlook == "missed":
            return shown
        exposures = count(self.shortfall, "exposure")
        return f"{shown}; about {exposures} will be missing"


def promise_outlooks(
    labels: Sequence[Label], terms: Terms, totals: Totals, slots: EligibleSlots
) -> dict[Label, PromiseOutlook]:
    """Return the outlook of each group with a floor.

    Parameters
    ----------
    labels, terms, totals
        The groups, the promise, and the totals of the horizon.
    slots
        What requests could show.

    Examples
    --------
    Of 1,000 requests, 30 could show group b.

    >>> from fairsync.eligibility.eligible_slots import EligibleSlots
    >>> from fairsync.ledger import Totals
    >>> from fairsync.policies import Terms
    >>> terms = Terms(np.array([900, 900]), np.array([2, 2]), k=2, horizon=9000, batch_size=1)
    >>> slots = EligibleSlots(1000, 970, np.array([1000.0, 30.0]), np.array([1000.0, 30.0]), 1000.0)
    >>> found = promise_outlooks(["a", "b"], terms, Totals(np.array([200, 50]), 1000), slots)
    >>> found["a"].outlook, found["b"].outlook, found["b"].shortfall
    ('expected', 'will miss', 370)
    """
    left = max(terms.horizon - totals.requests, 0)
    missing = np.maximum(terms.floors - totals.exposures, 0)
    judged = _judge(missing, left, *_surely_and_at_most(terms, slots))
    if left == 0:
        judged = [one if one.outlook == "certain" else replace(one, outlook="missed") for one in judged]
    return {labels[code]: judged[code] for code in np.flatnonzero(terms.floors > 0).tolist()}


def promise_outlook(code: int, missing: int, left: int, terms: Terms, slots: EligibleSlots) -> PromiseOutlook:
    """Return the outlook of a promise that still misses some exposures, with some requests to come."""
    surely, at_most = (one.only(code) for one in _surely_and_at_most(terms, slots))
    return _judge(np.array([missing]), left, surely, at_most)[0]


@dataclass(frozen=True)
class _Shown:
    """What requests could show of each promise, and what one could show at the most: the slots and their terms."""

    terms: Terms
    slots: EligibleSlots

    def only(self, code: int) -> _Shown:
        terms = replace(self.terms, floors=self.terms.floors[[code]], capacities=self.terms.capacities[[code]])
        return _Shown(terms, self.slots.only(code))


def _surely_and_at_most(terms: Terms, slots: EligibleSlots) -> tuple[_Shown, _Shown]:
    """Return what requests could surely show of each promise, by the record of its atoms, and the most they could.

    The two differ where a promise has atoms whose items are not planned for it, because requests may exclude them. The
    record says of these only whether a request could show any. A promise that rests on them is not certain: of that,
    too, the most is returned.
    """
    members = terms.membership
    if members is None:
        return _Shown(terms, slots), _Shown(terms, slots)
    capacities = terms.capacities
    homes = np.arange(members.n_atoms) if terms.home is None else terms.home
    atoms = np.repeat(np.arange(members.n_atoms), np.diff(members.offsets))
    at, able = homes[atoms], slots.able[homes[atoms]]
    best = np.zeros(members.n_promises)
    np.maximum.at(best, members.promises, able)
    shown, each = members.sums(slots.shares * terms.capacities), terms.sure_in_list
    surely = np.minimum(shown / np.maximum(each, 1), slots.requests)
    terms = replace(terms, membership=None, home=None, capacities=each)
    low = _Shown(terms, replace(slots, shares=surely, able=best))

    planned, moved = capacities[at] > 0, at != atoms
    pairs = members.n_promises * np.stack([atoms, at]) + members.promises
    planned[moved] &= np.isin(pairs[1][moved], pairs[0])
    if planned.all():
        return low, low
    others = np.bincount(members.promises[~planned], able[~planned], members.n_promises)
    most = np.where(others > 0, terms.k, each)
    shares = np.minimum((shown + others * terms.k) / np.maximum(most, 1), slots.requests)
    high = _Shown(replace(terms, capacities=most), replace(slots, shares=shares, able=best))
    if terms.certain is not None:
        surely, each = np.where(terms.certain, surely, shares), np.where(terms.certain, each, most)
        low = _Shown(replace(terms, capacities=each), replace(slots, shares=surely, able=best))
    return low, high


def _judge(missing: NDArray[np.int64], left: int, surely: _Shown, at_most: _Shown) -> list[PromiseOutlook]:
    slots, each = surely.slots, surely.terms.capacities
    counted = slots.forecast(surely.terms).counted(left).groups
    as_declared = np.minimum(slots.shares, slots.able) >= slots.requests
    expected = (missing <= counted) | (as_declared & (missing <= left * each))
    most = at_most.slots.highest_sum(at_most.terms, left)
    likely = left * at_most.slots.expected(at_most.terms)
    shortfall = np.ceil(np.maximum(missing - likely, 0.0) - 1e-9).astype(np.int64)
    share = np.minimum(slots.able / max(slots.requests, 1e-9), 1.0)
    outlooks: list[Outlook] = ["certain", "expected", "will miss", "at risk"]
    which = np.select([missing == 0, expected, missing > most], [0, 1, 2], 3)
    return [
        PromiseOutlook(outlooks[at], *rest)
        for at, *rest in zip(which.tolist(), share.tolist(), shortfall.tolist(), strict=True)
    ]


def _percent(share: float) -> str:
    """Return a share as a percentage with two significant digits, never rounded up to 100 %."""
    percent = share * 100
    if percent >= 99:
        return f"{min(percent, 99.9):.1f} %"
    return f"{percent:.2g} %" if percent >= 0.1 else "less than 0.1 %"
