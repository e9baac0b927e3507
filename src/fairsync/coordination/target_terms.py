"""Terms that aim at targets: what a policy, the guard and the certificate work for until the next targets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.coordination.targets import possible_limits
from fairsync.errors import UndecidedPromisesError
from fairsync.plan.lowering import lower_floors
from fairsync.policies.base import NO_CAP
from fairsync.promises.certainty import most_certain
from fairsync.promises.floors import capacities_of
from fairsync.promises.home_atoms import with_homes, with_homes_before
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Atoms
    from fairsync.coordination.targets import Targets
    from fairsync.ledger import Totals
    from fairsync.policies import Terms

# Seconds within which floors are lowered to what can be reached.
_SECONDS = 0.5


def target_terms(
    terms: Terms,
    totals: Totals,
    leased: int,
    targets: Targets,
    reserve: Callable[[Terms], NDArray[np.int64] | None] = lambda _: None,
    near: NDArray[np.int64] | None = None,
    too_dear: NDArray[np.bool_] | None = None,
    *,
    continues: bool = True,
) -> Terms:
    """Return terms that aim at additional exposures within a number of further requests.

    Targets that these requests cannot deliver are lowered to what they can, higher priorities first.

    Parameters
    ----------
    terms, totals
        The terms so far, and the totals of the horizon, with all columns.
    leased
        Requests of open leases.
    targets
        The targets.
    reserve
        Returns (P,) what open leases may use of the caps of terms.
    near
        (A,) the certificate so far.
    too_dear
        (P,) floors that are left to prices, because a slot for them would cost more than their highest price.
    continues
        Whether the targets are those of the horizon under way. Then floors that were certain come before the others.

    Examples
    --------
    >>> from fairsync.catalog.groups import Groups
    >>> from fairsync.coordination.targets import Targets
    >>> from fairsync.ledger import Totals
    >>> from fairsync.policies import Terms
    >>> terms = Terms(np.zeros(2), np.ones(2), k=2, horizon=1, batch_size=16, auto_restart=False)
    >>> totals, groups = Totals(np.array([7, 4]), requests=10), Groups(["a", "b"], np.array([1, 9]))
    >>> aim = target_terms(terms, totals, 0, Targets(groups, 20, (np.array([50, 3]),)))
    >>> aim.floors.tolist(), aim.horizon
    ([27, 7], 30)
    """
    horizon = totals.requests + leased + targets.requests
    if targets.atoms is None:
        capacities = capacities_of(targets.groups.group_sizes, terms.k, terms.max_exclude)
        tiers = [np.minimum(tier, targets.requests * capacities) for tier in targets.tiers]
        floors = totals.exposures + _within(tiers, targets.requests * terms.k)
        return replace(
            terms, floors=floors, capacities=capacities, horizon=horizon, auto_restart=False,
            caps=None, membership=None, list_limits=None, certain=None, certificate=None, max_prices=None, home=None,
        )  # fmt: skip
    return _overlapping(terms, totals, horizon, targets, targets.atoms, reserve, near, too_dear, continues=continues)


def _within(tiers: Sequence[NDArray[np.int64]], slots: int) -> NDArray[np.int64]:
    """Return floors of labels; if there are priorities, those that the slots suffice for, higher ones first."""
    floors = tiers[0]
    for tier in tiers[1:]:
        more = tier - floors
        if int(tier.sum()) > slots:
            more = np.diff(np.minimum(np.cumsum(more), max(slots - int(floors.sum()), 0)), prepend=0)
        floors = floors + more
    return floors


def _overlapping(
    terms: Terms,
    totals: Totals,
    horizon: int,
    targets: Targets,
    atoms: Atoms,
    reserve: Callable[[Terms], NDArray[np.int64] | None],
    near: NDArray[np.int64] | None,
    too_dear: NDArray[np.bool_] | None,
    *,
    continues: bool,
) -> Terms:
    sizes, k, requests, caps = atoms.sizes, terms.k, targets.requests, targets.caps
    limits = possible_limits(targets, atoms, k, terms.max_exclude)
    aim = replace(
        terms, floors=np.zeros(targets.n_columns, dtype=np.int64), capacities=np.minimum(sizes, k), horizon=horizon,
        auto_restart=False, caps=caps, membership=atoms.membership, list_limits=limits, certain=None, certificate=None,
        home=None,
        priorities=targets.priorities, max_prices=targets.max_prices,
    )  # fmt: skip
    reserved, room = reserve(aim), caps
    if caps is not None and reserved is not None:
        room = np.where(caps == NO_CAP, NO_CAP, np.maximum(caps - reserved, 0))
    near = None if near is None else grow(near, aim.n_atoms)
    tiers, dear = list(targets.tiers), np.zeros(targets.n_columns, dtype=bool)
    if too_dear is not None and targets.max_prices is not None:
        dear = grow(too_dear, targets.n_columns) & np.isfinite(targets.max_prices)
        tiers = [np.where(dear, 0, tier) for tier in tiers]
    due = np.zeros(targets.n_columns, dtype=np.int64)
    if continues and terms.max_exclude:
        due = grow(_certain_so_far(terms, totals), targets.n_columns)
        tiers = _with_first(tiers, due)
    bounds = PlanBounds.of(aim, tiers[-1], room, requests)
    floors, plan = lower_floors(bounds, tiers, near, _SECONDS)
    certain = None
    if terms.max_exclude:  # what rests on atoms of which requests may exclude everything is left to prices
        aim = replace(aim, capacities=capacities_of(sizes, k, terms.max_exclude))
        needed = replace(aim, floors=floors, caps=room, horizon=requests)
        options = [with_homes(atoms, needed, may_add=False)[1]]  # its columns are known to all
        before = with_homes_before(atoms, needed, terms if continues else None)
        options = options if before is None else [before, *options]
        every = [PlanBounds.of(one, floors, room, requests) for one in options]
        first = (floors > 0) & (floors <= due)
        try:
            place, certain, plan = most_certain(every, _SECONDS, first)
        except UndecidedPromisesError:
            place, wanted = 0, np.where(first, floors, 0) if first.any() else floors
            _, plan = lower_floors(every[0], [wanted], near, _SECONDS)
            certain = aim.exposures(plan) >= floors
        aim = replace(aim, capacities=options[place].capacities, home=options[place].home)
    if dear.any():
        floors = np.where(dear, targets.tiers[-1], floors)
        certain = ~dear if certain is None else certain & ~dear
    return replace(
        aim,
        floors=totals.exposures + floors,
        caps=None if caps is None else np.where(caps == NO_CAP, NO_CAP, totals.exposures + caps),
        certain=None if certain is None or certain.all() else certain,
        certificate=plan,
    )


def _certain_so_far(terms: Terms, totals: Totals) -> NDArray[np.int64]:
    """Return (P,) what floors still miss, 0 for those that are not certain."""
    missing = np.maximum(terms.floors - totals.exposures[: len(terms.floors)], 0)
    return missing if terms.certain is None else np.where(terms.certain, missing, 0)


def _with_first(tiers: Sequence[NDArray[np.int64]], due: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return tiers of which each begins with what was certain so far: what was expected may lag behind, and gives way.

    Examples
    --------
    >>> [tier.tolist() for tier in _with_first([np.array([5, 3, 0]), np.array([5, 3, 4])], np.array([4, 0, 0]))]
    [[4, 0, 0], [5, 3, 0], [5, 3, 4]]
    """
    found: list[NDArray[np.int64]] = []
    before = np.zeros_like(due)
    for tier in tiers:
        first = np.maximum(before, np.minimum(tier, due))
        if (first > before).any() and (first < tier).any():
            found.append(first)
        found.append(tier)
        before = tier
    return found


def counted_since(since: Totals, now: Totals) -> NDArray[np.int64]:
    """Return (P,) the exposures that were counted in a horizon since its totals were read."""
    if since.began != now.began or since.requests > now.requests:
        return np.zeros_like(now.exposures)  # they are of another horizon
    return now.exposures - grow(since.exposures[: len(now.exposures)], len(now.exposures))


def has_other_shape(before: Terms, after: Terms) -> bool:
    """Return whether a policy has to be told of other terms: columns or atoms were added, or others have caps."""
    if len(before.floors) != len(after.floors) or before.n_atoms != after.n_atoms:
        return True
    capped = [[] if caps is None else np.flatnonzero(caps < NO_CAP).tolist() for caps in (before.caps, after.caps)]
    return (before.membership is None) != (after.membership is None) or capped[0] != capped[1]
