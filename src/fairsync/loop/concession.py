"""By how much floors give way, and to which promises, where not all promises can be kept."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import UndecidedPromisesError
from fairsync.plan import give_way
from fairsync.promises.linear_program import least_missed
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from fairsync.policies import Terms
    from fairsync.policies.base import Counts

_log = logging.getLogger(__name__)

SECONDS = 10.0
"""The time limit for finding which floors give way, in seconds, and again for finding what they give way to."""

# What one exposure must be worth in a linear program for its promise to be in conflict.
_WEIGHT = 1e-7


@dataclass(frozen=True, eq=False)
class Concession:
    """By how much floors give way for the rest of a horizon, and to which promises.

    Attributes
    ----------
    shortfall : numpy.ndarray
        (P,) the exposures by which each floor gives way.
    conflicts : tuple
        For each priority of which some floor gives way: its number, and (n,) the codes of the promises that cannot be
        kept together with its floors.
    """

    shortfall: Counts
    conflicts: tuple[tuple[int, Counts], ...] = ()

    def rivals(self, promise: int) -> list[int]:
        """Return the promises that one gives way to: those in conflict with it at its priority, itself left out.

        Examples
        --------
        >>> Concession(np.array([2, 0]), ((2, np.array([0, 1])),)).rivals(0)
        [1]
        """
        # At later priorities it may be among those that others give way to.
        found = next((codes for _, codes in self.conflicts if promise in codes), ())
        return [int(code) for code in found if code != promise]

    def grown(self, n_promises: int) -> Concession:
        """Return the same, with nothing for promises that were added."""
        return replace(self, shortfall=grow(self.shortfall, n_promises))


def concede(
    terms: Terms, missing: Counts, room: Counts | None, left: int, seconds: float = SECONDS
) -> tuple[Counts | None, Concession | None]:
    """Return a plan that keeps what can be kept, higher priorities first, and the concession; None for nothing.

    Of all plans this one misses the least exposures of the first priority in total, among those the least of the
    second, and so on. Upper bounds never give way.

    Parameters
    ----------
    terms
        The promises.
    missing, room
        (P,) exposures that floors still miss, and that caps still allow; None if there are no caps.
    left
        Requests left.
    seconds
        The time limit. If it passes, there is no plan: None.

    Examples
    --------
    Six slots, and floors of 5 and 3 that share no item. The second comes first.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.policies import Terms
    >>> apart, order = Membership.of([(0,), (1,)], 2), np.array([2, 1])
    >>> terms = Terms(np.array([5, 3]), np.array([2, 2]), 2, 3, 1, membership=apart, priorities=order)
    >>> plan, concession = concede(terms, terms.floors, None, 3)
    >>> plan.tolist(), concession.shortfall.tolist(), concession.rivals(0)
    ([3, 3], [2, 0], [1])
    """
    bounds = PlanBounds.of(terms, missing, room, left)
    try:
        found = give_way(bounds, terms.order, seconds)
    except UndecidedPromisesError as error:
        _log.warning("it was not found in time which floors give way: %s", error)
        return None, None
    if not found.shortfall.any():
        return found.plan, None
    return found.plan, conceded(bounds, terms.order, found.shortfall, seconds)


def conceded(bounds: PlanBounds, order: Counts, shortfall: Counts, seconds: float = SECONDS) -> Concession:
    """Return a concession with what the floors give way to.

    For each priority, a linear program minimises what its floors miss beside what is kept of higher priorities. The
    floors and caps that have a weight in its solution cannot be kept together.
    """
    deadline, conflicts = time.monotonic() + seconds, []
    for number in np.unique(order[shortfall > 0]).tolist():
        wanted = np.where(order < number, bounds.lower - shortfall, np.where(order == number, bounds.lower, 0))
        try:
            _, weights = least_missed(replace(bounds, lower=wanted), np.ones(len(order)), deadline)
        except UndecidedPromisesError:  # then the report does not say to which
            break
        conflicts.append((int(number), np.flatnonzero((weights.floors > _WEIGHT) | (weights.caps > _WEIGHT))))
    return Concession(shortfall, tuple(conflicts))
