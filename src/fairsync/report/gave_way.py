"""Which promises gave way in a horizon, to which others, and what keeping them would have cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fairsync.text import count, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.groups import Label
    from fairsync.loop.loop_state import LoopState
    from fairsync.policies import Terms

Reason: TypeAlias = Literal["capacity", "max_price", "budget"]
_NAMED = 3  # promises that are named in a sentence
# By reason: now, once the horizon is over, and how exactly the cost is known.
_WHY = {
    "max_price": ("needs more than its max_price", "needed more than its max_price", "more than"),
    "budget": ("gives way to the budget", "gave way to the budget", "about"),
}


@dataclass(frozen=True)
class GaveWay:
    """A promise that gave way, as a whole or in part.

    Attributes
    ----------
    reason : str
        ``capacity``: not all promises can be kept. ``max_price``: it would cost more than its ``max_price``.
        ``budget``: all promises together cost more than the budget.
    exposures : int
        The exposures of its floor that are given up, as far as is known now.
    to : tuple
        The promises of its priority or a higher one that it cannot be kept together with; for ``capacity`` only.
    since : int or None
        Requests of the horizon when it gave way; None for ``capacity``.
    would_cost : float or None
        The relevance that would be given up to get these exposures: for ``max_price`` they would cost more than this,
        and for ``budget`` about this, by what an exposure had cost when it gave way; None for ``capacity``,
        and if it is not known, as under a new model.
    """

    reason: Reason
    exposures: int
    to: tuple[Label, ...] = ()
    since: int | None = None
    would_cost: float | None = None

    def text(self, *, is_over: bool = False) -> str:
        """Return the reason in words.

        Parameters
        ----------
        is_over
            Whether the horizon is over.

        Examples
        --------
        >>> GaveWay("capacity", 1200, ("acme", "new")).text()
        'gives way to acme, new: 1,200 exposures are given up'
        >>> GaveWay("capacity", 1200, ("acme", "new")).text(is_over=True)
        'gave way to acme, new: 1,200 exposures were given up'
        >>> GaveWay("budget", 1200, since=32, would_cost=0.0).text()
        'gives way to the budget since request 32: 1,200 exposures are given up, which had cost nothing until then'
        """
        one = self.exposures == 1
        are = ("was" if one else "were") if is_over else ("is" if one else "are")
        lost = f"{count(self.exposures, 'exposure')} {are} given up"
        if self.reason != "capacity":
            now, then, about = _WHY[self.reason]
            would = "would have cost" if is_over else "would cost"
            why = f"{then} from request {self.since:,} on" if is_over else f"{now} since request {self.since:,}"
            if self.would_cost is None:
                return f"{why}: {lost}"
            cost = f"{would} {about} {self.would_cost:.4g}" if self.would_cost else "had cost nothing until then"
            return f"{why}: {lost}, which {cost}"
        others = listed(self.to, _NAMED)
        if not others:
            return f"{'could not' if is_over else 'cannot'} be kept: {lost}"
        return f"{'gave' if is_over else 'gives'} way to {others}: {lost}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            "reason": self.reason,
            "exposures": self.exposures,
            "to": list(self.to),
            "since": self.since,
            "would_cost": self.would_cost,
        }


def find_given_way(labels: Sequence[Label], terms: Terms, state: LoopState) -> dict[Label, GaveWay]:
    """Return the promises that have given way by now, those of the highest priority first.

    Parameters
    ----------
    labels, terms
        The names of the promises, and the promises.
    state
        The state of the loop.
    """
    found: dict[int, GaveWay] = {}
    order, certificate = terms.order, state.certificate
    concession = None if certificate is None else certificate.concession
    missing = np.maximum(terms.floors - state.progress.totals.exposures, 0)
    if concession is not None:
        # What was given up in advance is known to be missed once the horizon is over, and what else was missed with it.
        lost = missing if state.progress.left(terms) <= 0 else concession.shortfall
        for code in np.flatnonzero((concession.shortfall > 0) & (lost > 0)).tolist():
            to = tuple(labels[rival] for rival in concession.rivals(code))
            found[code] = GaveWay("capacity", int(lost[code]), to)
    spending = state.spending
    if spending.since is not None:
        since = spending.since
        to_budget, highest = spending.gave_way(terms), spending.highest(terms)
        for code in np.flatnonzero((missing > 0) & (since >= 0)).tolist():
            reason: Reason = "budget" if to_budget[code] else "max_price"
            each = spending.unit_costs if to_budget[code] else highest
            cost = None if each is None else float(missing[code] * each[code])
            found[code] = GaveWay(reason, int(missing[code]), (), int(since[code]), cost)
    return {labels[code]: found[code] for code in sorted(found, key=lambda code: (order[code], code))}
