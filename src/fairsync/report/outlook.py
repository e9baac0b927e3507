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
        forecast. ``at risk``: they may. ``will miss``: not even an optimistic forecast covers it. Each promise is
        judged by itself, as if no other needed the same slots. ``missed``: the horizon is over.
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
        """
        if self.outlook not in ("at risk", "will miss", "missed"):
            return ""
        shown = f"only {_percent(self.share)} of requests could show it" if self.share else "no request could show it"
        if self.outlook == "missed" and self.share == 1:
            return ""
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
    terms, slots = _by_promise(terms, slots)
    judged = _judge(np.maximum(terms.floors - totals.exposures, 0), left, terms, slots)
    if left == 0:
        judged = [one if one.outlook == "certain" else replace(one, outlook="missed") for one in judged]
    return {labels[code]: judged[code] for code in np.flatnonzero(terms.floors > 0).tolist()}


def _by_promise(terms: Terms, slots: EligibleSlots) -> tuple[Terms, EligibleSlots]:
    """Return capacities and slots of promises from those of atoms; the same if promises do not overlap."""
    members = terms.membership
    if members is None:
        return terms, slots
    able = members.sums(slots.shares * terms.capacities)
    most = np.minimum(members.exposures(terms.capacities), terms.k)
    shares = np.minimum(able / np.maximum(most, 1), slots.requests)
    best = np.zeros(members.n_promises)
    np.maximum.at(best, members.promises, slots.able[np.repeat(np.arange(members.n_atoms), np.diff(members.offsets))])
    return replace(terms, capacities=most, membership=None), replace(slots, shares=shares, able=best)


def promise_outlook(code: int, missing: int, left: int, terms: Terms, slots: EligibleSlots) -> PromiseOutlook:
    """Return the outlook of a promise that still misses some exposures, with some requests to come."""
    terms, slots = _by_promise(terms, slots)
    one = replace(terms, floors=terms.floors[[code]], capacities=terms.capacities[[code]])
    return _judge(np.array([missing]), left, one, slots.only(code))[0]


def _judge(missing: NDArray[np.int64], left: int, terms: Terms, slots: EligibleSlots) -> list[PromiseOutlook]:
    counted, most = slots.forecast(terms).counted(left).groups, slots.highest_sum(terms, left)
    shortfall = np.ceil(np.maximum(missing - left * slots.expected(terms), 0.0) - 1e-9).astype(np.int64)
    share = np.minimum(slots.able / max(slots.requests, 1e-9), 1.0)
    outlooks: list[Outlook] = ["certain", "expected", "will miss", "at risk"]
    which = np.select([missing == 0, missing <= counted, missing > most], [0, 1, 2], 3)
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
