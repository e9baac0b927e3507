"""Whether promises can hold together, decided when they are made.

Promises are accepted only with a certificate (:mod:`fairsync.promises.certificate`). Without one they are refused: with
`InfeasibleFloorsError` if none exists, which names an irreducible set of promises that cannot hold together, and with
`UndecidedPromisesError` if the time limit passes first. No promise is accepted without a proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InfeasibleFloorsError, UndecidedPromisesError
from fairsync.policies.base import NO_CAP
from fairsync.promises.certificate import SECONDS, find_certificate, is_quickly_possible, plan_within
from fairsync.promises.conflict import Conflict, find_conflict, keep_promises, largest_floor, smallest_cap, with_bound
from fairsync.promises.linear_program import seconds_until
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.promises.promise import EVERY_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.policies.base import Counts, Terms

EXPLAIN_SECONDS = 20.0
"""The time limit for finding which promises are in conflict, in seconds."""

_SHOWN = 5


def check_together(
    terms: Terms, names: Sequence[str], seconds: float = SECONDS, *, may_give_way: bool = False
) -> Counts:
    """Return a certificate for a whole horizon, or raise the error that says which promises cannot hold together.

    Parameters
    ----------
    terms, names
        The promises, and their names.
    seconds
        The time limit for the decision.
    may_give_way
        As in `explain_conflict`.

    Raises
    ------
    InfeasibleFloorsError
        The promises cannot hold together. Its ``conflict`` names an irreducible set of them, ``largest`` and
        ``smallest`` what each could be if nothing else changed.
    UndecidedPromisesError
        Neither was proved within the time limit.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.policies.base import Terms
    >>> both = Membership.of([(0,), (1,), (0, 1)], 2)
    >>> terms = Terms(np.array([5, 5]), np.array([2, 2, 1]), k=2, horizon=3, batch_size=1, membership=both)
    >>> check_together(terms, ["toys", "acme"])
    Traceback (most recent call last):
    fairsync.errors.InfeasibleFloorsError: These 2 promises cannot hold together: toys (at least 5), acme (at least 5).
    One change would suffice: toys at least 4, or acme at least 4.
    """
    plan = find_certificate(terms, terms.floors, terms.caps, terms.horizon, seconds=seconds)
    if plan is None:
        raise explain_conflict(terms, names, may_give_way=may_give_way)
    return plan


def explain_conflict(
    terms: Terms,
    names: Sequence[str],
    seconds: float = EXPLAIN_SECONDS,
    under_way: UnderWay | None = None,
    *,
    may_give_way: bool = False,
) -> InfeasibleFloorsError:
    """Return the error for promises that cannot hold together in a whole horizon, or in what is left of it.

    Parameters
    ----------
    terms, names
        The promises, and their names.
    seconds
        The time limit for finding which of them are in conflict.
    under_way
        What the horizon has had; by default it has not begun.
    may_give_way
        Whether the error says that `FairRetriever` can let floors give way, where that is enough.
    """
    deadline = time.monotonic() + seconds
    left, had = terms.horizon, np.zeros_like(terms.floors)
    if under_way is not None:
        left, had = terms.horizon - under_way.requests, under_way.exposures
    room = None if terms.caps is None else np.where(terms.caps < NO_CAP, np.maximum(terms.caps - had, 0), NO_CAP)
    certain = True if under_way is None or terms.certain is None else terms.certain
    bounds = PlanBounds.of(terms, np.where(certain, np.maximum(terms.floors - had, 0), 0), room, left)
    conflict = find_conflict(bounds, seconds / 2)
    part = keep_promises(bounds, conflict.promises)
    found = _Changes()
    try:
        for promise in conflict.promises if conflict.is_irreducible else ():
            name = names[promise]
            floor = _possible(bounds, part, promise, largest_floor, deadline, found) if part.lower[promise] else None
            if floor is not None and floor < bounds.lower[promise] and name != EVERY_SLOT:
                found.largest[name] = floor + int(had[promise])
                found.texts.append(f"{name} at least {found.largest[name]:,}")
            most = _possible(bounds, part, promise, smallest_cap, deadline, found) if promise in part.capped else None
            if most is None or most <= bounds.upper[promise]:
                continue
            raised = []
            if room is not None and room[promise] < most:
                found.smallest[name] = most + int(had[promise])
                raised.append(f"at most {found.smallest[name]:,}")
            if terms.list_limits is not None and terms.list_limits[promise] * left < most:
                raised.append(f"at most {-(-most // left):,} per list")
            found.texts.append(f"{name} {' and '.join(raised)}")
    except UndecidedPromisesError:
        pass  # what is known by now helps, too
    if may_give_way:
        found.can_give_way = _can_give_way(bounds, terms, deadline)
    return _error(terms, names, conflict, found, under_way)


@dataclass(frozen=True, eq=False)
class UnderWay:
    """What a horizon that has begun has had.

    Attributes
    ----------
    requests : int
        Its requests so far.
    exposures : numpy.ndarray
        (P,) exposures of each promise so far.
    remedy : str
        What else could be done, as a sentence.
    """

    requests: int
    exposures: Counts
    remedy: str = ""


def _can_give_way(bounds: PlanBounds, terms: Terms, deadline: float) -> bool:
    """Return whether the promises can hold without the floors that may give way."""
    kept = replace(bounds, lower=np.where(terms.order == 0, bounds.lower, 0))
    try:
        return plan_within(kept, seconds_until(deadline)) is not None
    except UndecidedPromisesError:
        return False


@dataclass
class _Changes:
    """Changes of single promises, each of which would resolve a conflict.

    Attributes
    ----------
    texts : list of str
        The changes in words.
    largest, smallest : dict
        Possible floors and caps by name.
    are_enough : bool
        Whether each of them lets all promises hold, not only those in conflict.
    can_give_way : bool
        Whether the promises could be accepted if floors gave way.
    """

    texts: list[str] = field(default_factory=list)
    largest: dict[str, int] = field(default_factory=dict)
    smallest: dict[str, int] = field(default_factory=dict)
    are_enough: bool = True
    can_give_way: bool = False


def _possible(
    bounds: PlanBounds,
    part: PlanBounds,
    promise: int,
    find: Callable[[PlanBounds, int, float], int | None],
    deadline: float,
    found: _Changes,
) -> int | None:
    """Return the value of a bound of a promise that lets all promises hold, or at least those in conflict; or None."""
    value = find(part, promise, deadline)
    if value is None:
        return None
    changed = with_bound(bounds, promise, **{"lower" if find is largest_floor else "upper": value})
    if is_quickly_possible(changed):
        return value
    try:
        whole = find(bounds, promise, deadline)
    except UndecidedPromisesError:
        whole = None
    found.are_enough &= whole is not None
    return value if whole is None else whole


def _error(
    terms: Terms, names: Sequence[str], conflict: Conflict, found: _Changes, under_way: UnderWay | None
) -> InfeasibleFloorsError:
    promises = [promise for promise in conflict.promises if names[promise] != EVERY_SLOT]
    texts = [f"{names[promise]} ({_bounds_text(terms, promise, under_way)})" for promise in promises]
    if not promises:
        reason = "lists were short"
    elif len(promises) == 1:
        reason = f"{texts[0]} cannot hold"
    elif conflict.is_irreducible:
        reason = f"These {len(promises):,} promises cannot hold together: {_listed(texts, ', ')}"
    else:
        reason = f"Among these {len(promises):,} promises are some that cannot hold together: {_listed(texts, ', ')}"
    if len(promises) < len(conflict.promises):  # nobody made the promise of every slot
        cause = {0: "there are", 1: "it leaves"}.get(len(promises), "they leave")
        reason += f": {cause} too few items to fill all {terms.horizon * terms.k:,} slots"
    if under_way is not None:
        reason = f"After {under_way.requests:,} of {terms.horizon:,} requests: {reason}"
    remedy = "Lower some of them."
    if found.texts:
        changes = _listed(found.texts, ", or ")
        remedy = f"One change would suffice: {changes}."
        if not found.are_enough:
            remedy = f"At least one change is needed here: {changes}. Other promises may need changes, too."
    if found.can_give_way:
        which = "floors" if len(np.unique(terms.order[promises])) == 1 else "those of the lowest priority"
        remedy += f" Or let {which} give way: FairRetriever(if_infeasible='give way')."
    if under_way is not None and under_way.remedy:
        remedy += f" {under_way.remedy}"
    floor = int(terms.floors[promises].sum())
    lowered = [int(terms.floors[names.index(name)]) - value for name, value in found.largest.items()]
    return InfeasibleFloorsError(
        names[promises[0]] if len(promises) == 1 else None,
        floor,
        reason,
        floor - min(lowered, default=0),
        remedy,
        [names[promise] for promise in promises],
        found.largest,
        found.smallest,
    )


def _bounds_text(terms: Terms, promise: int, under_way: UnderWay | None) -> str:
    parts = []
    if terms.floors[promise]:
        parts.append(f"at least {int(terms.floors[promise]):,}")
    if terms.caps is not None and terms.caps[promise] < NO_CAP:
        parts.append(f"at most {int(terms.caps[promise]):,}")
    if terms.list_limits is not None and terms.list_limits[promise] < terms.k:
        parts.append(f"at most {int(terms.list_limits[promise]):,} per list")
    if under_way is not None:
        parts.append(f"{int(under_way.exposures[promise]):,} so far")
    return ", ".join(parts)


def _listed(texts: Sequence[str], between: str) -> str:
    more = f"{between}{len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return between.join(texts[:_SHOWN]) + more
