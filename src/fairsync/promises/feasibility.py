"""Whether promises can hold together, decided when they are made.

Promises are accepted only with a certificate (:mod:`fairsync.promises.certificate`). Without one they are refused: with
`InfeasibleFloorsError` if none exists, which names an irreducible set of promises that cannot hold together, and with
`UndecidedPromisesError` if the time limit passes first. No promise is accepted without a proof.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from fairsync.errors import InfeasibleFloorsError, UndecidedPromisesError
from fairsync.policies.base import NO_CAP
from fairsync.promises.certificate import SECONDS, find_certificate, plan_within
from fairsync.promises.conflict import find_conflict, keep_promises, largest_floor, smallest_cap
from fairsync.promises.linear_program import seconds_until
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.policies.base import Counts, Terms

EXPLAIN_SECONDS = 20.0
"""The time limit for finding which promises are in conflict, in seconds."""

_SHOWN = 5


def check_together(terms: Terms, names: Sequence[str], seconds: float = SECONDS) -> Counts:
    """Return a certificate for a whole horizon, or raise the error that says which promises cannot hold together.

    Parameters
    ----------
    terms, names
        The promises, and their names.
    seconds
        The time limit for the decision.

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
        raise explain_conflict(terms, names)
    return plan


def explain_conflict(terms: Terms, names: Sequence[str], seconds: float = EXPLAIN_SECONDS) -> InfeasibleFloorsError:
    """Return the error for promises that cannot hold together in a whole horizon."""
    deadline = time.monotonic() + seconds
    bounds = PlanBounds.of(terms, terms.floors, terms.caps, terms.horizon)
    conflict = find_conflict(bounds, seconds / 2)
    part = keep_promises(bounds, conflict.promises)
    largest: dict[str, int] = {}
    smallest: dict[str, int] = {}
    changes: list[str] = []
    try:
        for promise in conflict.promises if conflict.is_irreducible else ():
            name = names[promise]
            floor = _possible_value(bounds, part, promise, largest_floor, deadline)
            if floor is not None and floor < terms.floors[promise]:
                largest[name] = floor
                changes.append(f"{name} at least {floor:,}")
            most = _possible_value(bounds, part, promise, smallest_cap, deadline)
            if most is None or most <= bounds.upper[promise]:
                continue
            raised = []
            if terms.caps is not None and terms.caps[promise] < most:
                smallest[name] = most
                raised.append(f"at most {most:,}")
            if terms.list_limits is not None and terms.list_limits[promise] * terms.horizon < most:
                raised.append(f"at most {-(-most // terms.horizon):,} per list")
            changes.append(f"{name} {' and '.join(raised)}")
    except UndecidedPromisesError:
        pass  # what is known by now helps, too
    return _error(terms, names, conflict.promises, conflict.is_irreducible, changes, largest, smallest)


def _possible_value(
    bounds: PlanBounds,
    part: PlanBounds,
    promise: int,
    find: Callable[[PlanBounds, int, float], int],
    deadline: float,
) -> int | None:
    """Return the value of a bound of a promise that lets all promises hold, or at least those in conflict; or None."""
    which = "lower" if find is largest_floor else "upper"

    def changed(some: PlanBounds, value: int) -> PlanBounds:
        array = getattr(some, which).copy()
        array[promise] = value
        return replace(some, **{which: array})

    free = 0 if which == "lower" else bounds.total
    if getattr(part, which)[promise] == free or plan_within(changed(part, free), seconds_until(deadline)) is None:
        return None
    value = find(part, promise, seconds_until(deadline))
    try:
        if (
            plan_within(changed(bounds, value), seconds_until(deadline)) is None
            and plan_within(changed(bounds, free), seconds_until(deadline)) is not None
        ):
            return find(bounds, promise, seconds_until(deadline))
    except UndecidedPromisesError:
        pass
    return value


def _error(
    terms: Terms,
    names: Sequence[str],
    conflict: Sequence[int],
    is_irreducible: bool,
    changes: Sequence[str],
    largest: dict[str, int],
    smallest: dict[str, int],
) -> InfeasibleFloorsError:
    texts = [f"{names[promise]} ({_bounds_text(terms, promise)})" for promise in conflict]
    if len(conflict) == 1:
        reason = f"{texts[0]} cannot hold"
    else:
        among = "" if is_irreducible else "Among "
        these = "These" if is_irreducible else "these"
        end = "cannot hold together" if is_irreducible else "are some that cannot hold together"
        reason = f"{among}{these} {len(conflict):,} promises {end}: {_listed(texts, ', ')}"
    remedy = f"One change would suffice: {_listed(changes, ', or ')}." if changes else "Lower some of them."
    floor = int(terms.floors[list(conflict)].sum())
    lowered = [
        int(terms.floors[promise]) - largest[names[promise]] for promise in conflict if names[promise] in largest
    ]
    only = names[conflict[0]] if len(conflict) == 1 else None
    shown = [names[promise] for promise in conflict]
    return InfeasibleFloorsError(only, floor, reason, floor - min(lowered, default=0), remedy, shown, largest, smallest)


def _bounds_text(terms: Terms, promise: int) -> str:
    parts = []
    if terms.floors[promise]:
        parts.append(f"at least {int(terms.floors[promise]):,}")
    if terms.caps is not None and terms.caps[promise] < NO_CAP:
        parts.append(f"at most {int(terms.caps[promise]):,}")
    if terms.list_limits is not None and terms.list_limits[promise] < terms.k:
        parts.append(f"at most {int(terms.list_limits[promise]):,} per list")
    return ", ".join(parts)


def _listed(texts: Sequence[str], between: str) -> str:
    more = f"{between}{len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return between.join(texts[:_SHOWN]) + more
