"""Targets: what to aim at until the next plan, as bounds on the exposures of each selection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.plan import NO_CAP, give_way, least_shortfall
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.schedule.worst_case import worst_case_requests

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows, WindowProgress
    from fairsync.schedule.bank import Bank
    from fairsync.schedule.seasonal_profile import Floats, Ints
    from fairsync.schedule.traffic import Traffic

_ROUNDING = 1e-6
# Traffic may fall to the worst case after this part of the requests of the period, or after the next plan.
_SOON = 0.02


class PlanTargets(NamedTuple):
    """Bounds on the exposures of each selection within a number of requests. They can hold together.

    Attributes
    ----------
    horizon : int
        The requests.
    at_least, at_most : numpy.ndarray
        (selections,) the bounds.
    """

    horizon: int
    at_least: Ints
    at_most: Ints


def apportion(total: int, weights: list[int]) -> list[int]:
    """Divide an integer in proportion to weights by the largest remainder method.

    Examples
    --------
    >>> apportion(10, [1, 1, 1]), apportion(2, [5, 30, 25]), apportion(3, [0, 0])
    ([4, 3, 3], [0, 1, 1], [0, 0])
    """
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    if total == whole:
        return list(weights)
    parts = [divmod(total * weight, whole) for weight in weights]
    shares = [share for share, _ in parts]
    by_remainder = sorted(range(len(parts)), key=lambda index: -parts[index][1])
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


def next_targets(
    active: ActiveWindows, progress: WindowProgress, traffic: Traffic, bank: Bank, until_next: int
) -> PlanTargets:
    """Return what to aim at until the next plan.

    A promise should get the part of its missing exposures that the requests of the period are of those until its end.
    It must get what it would miss if traffic fell to the worst case after the next few requests. If that is more than
    it should have of these requests, the targets are for them alone; otherwise they are for the period.

    Parameters
    ----------
    active, progress
        The windows, and how far they have come.
    traffic
        The requests until each deadline.
    bank
        What shares need.
    until_next
        Requests that are likely to come before the next plan.
    """
    # What comes before the next plan needs targets. But a plan for more requests than come by then would put off what
    # must come, plan by plan: so few requests are counted on only as far as chance leaves them.
    certain = worst_case_requests(until_next, until_next, 1.0)
    likely = until_next if 2 * certain >= until_next else certain
    least = max(min(likely, math.ceil(traffic.expected[0])), 1)
    most = max(int(traffic.lower_bound[0]), least)
    paced = _paced_exposures(active, progress, traffic)
    soon, must = _needed_soon(active, progress, traffic, least, most, paced)
    horizon = max(min(soon, bank.horizon), 1)
    needed = np.maximum(np.ceil(must * (horizon / soon) - _ROUNDING).astype(np.int64), bank.at_least)
    should = np.floor(paced * (horizon / most) + 0.5).astype(np.int64)
    return _fitted(active, horizon, needed, np.maximum(should, needed), np.minimum(bank.at_most, NO_CAP))


def _needed_soon(
    active: ActiveWindows, progress: WindowProgress, traffic: Traffic, least: int, most: int, paced: Ints
) -> tuple[int, Floats]:
    """Return a number of requests, and (selections,) what must come within them.

    These are the requests during which the nearest selections that are behind need all that lists can hold, but at
    least ``least`` and at most ``most``. If none is behind, they are ``most``.
    """
    held, membership = active.supply.most, active.supply.membership
    missing = np.zeros(len(held), dtype=np.int64)
    np.maximum.at(missing, active.selection, active.retrieved(active.missing(progress, _until_end(active, traffic))))

    ranks, k = _ranks(active), active.supply.k

    def needed(soon: int) -> Floats:
        """Return (selections,) what must come within some requests, if it is more than at the usual pace."""
        first = least_shortfall(active.program(progress, traffic.worst_case_after(soon), ahead=soon)).exposures[:, 0]
        must = np.minimum(membership.sums(first), missing)  # an atom may have more, for other selections
        if active.supply.is_disjoint and float(first.sum()) >= soon * k - _ROUNDING:
            must = _in_proportion(must, missing, _least_needed(active, progress, traffic, soon), ranks)
        return np.where(must > paced * (soon / most) + _ROUNDING, must, 0.0)

    found: tuple[int, Floats] | None = None
    behind = np.zeros(len(held), dtype=bool)
    while found is None or found[0] < most:
        soon = min(2 * found[0], most) if found else max(least, math.ceil(_SOON * most))
        must = needed(soon)
        if found is None:
            behind = must > 0
            if not behind.any():
                return most, must if soon == most else needed(most)
            behind &= ranks == ranks[behind].min()
        if float(must[behind].sum()) < soon * k - _ROUNDING and (must < soon * held - _ROUNDING)[behind].any():
            near = max(math.floor(float((must[behind] / held[behind]).min())), least)
            return found or (near, np.minimum(must, near * held))
        found = soon, must
    return found


def _least_needed(active: ActiveWindows, progress: WindowProgress, traffic: Traffic, soon: int) -> Ints:
    """Return (selections,) what must come within some requests although no other selection needed any slot.

    Later requests, of which only the lower bound comes, could not hold it.
    """
    held, until = active.supply.most, traffic.lower_bound[active.deadline]
    missing = active.retrieved(active.missing(progress, until))
    least = np.zeros(len(held), dtype=np.int64)
    np.maximum.at(least, active.selection, missing - np.maximum(until - soon, 0) * held[active.selection])
    return np.minimum(least, soon * held)


def _in_proportion(must: Floats, missing: Ints, least: Ints, ranks: Ints) -> Floats:
    """Return needs with the same total for each rank, in proportion to what is missing, but at least ``least``.

    Selections that compete for all slots could get them in any order. In proportion, none waits until the end.

    Examples
    --------
    >>> missing, ranks = np.array([8, 9, 3]), np.array([1, 1, 2])
    >>> for least in ([0, 5, 0], [8, 8, 0]):
    ...     _in_proportion(np.array([0.0, 9.0, 3.0]), missing, np.array(least), ranks).round(3)
    array([2.667, 6.333, 3.   ])
    array([4.5, 4.5, 3. ])
    """
    least = np.minimum(least, missing)
    more, n = (missing - least).astype(np.float64), int(ranks.max(initial=0)) + 1
    total, first, rest = (np.bincount(ranks, values, n) for values in (must, least, more))
    scale = np.minimum(total / np.maximum(first, 1.0), 1.0)
    part = np.clip((total - first) / np.maximum(rest, 1.0), 0.0, 1.0)
    return scale[ranks] * least + part[ranks] * more


def _until_end(active: ActiveWindows, traffic: Traffic) -> Ints:
    """Return (P,) the expected requests until the end of each promise's window."""
    requests: Ints = traffic.expected.astype(np.int64)[active.deadline]
    return requests


def _paced_exposures(active: ActiveWindows, progress: WindowProgress, traffic: Traffic) -> Ints:
    """Return (selections,) the exposures to retrieve in the period, in proportion to expected traffic.

    Promises with the same deadline are apportioned together, so that rounding does not inflate their sum.
    """
    every = active.retrieved(active.missing(progress, _until_end(active, traffic)))
    most = np.zeros(len(active.supply.selections), dtype=np.int64)
    for s, until in enumerate(traffic.expected.tolist()):
        ending = np.flatnonzero(active.deadline == s)
        missing = every[ending].tolist()
        fraction = float(traffic.expected[0]) / until if until > 0 else 1.0
        # The tolerance keeps an integer that floating-point arithmetic made slightly too large.
        paced = apportion(min(sum(missing), math.ceil(sum(missing) * fraction - _ROUNDING)), missing)
        np.maximum.at(most, active.selection[ending], np.array(paced, dtype=np.int64))
    return most


def _fitted(active: ActiveWindows, horizon: int, must: Ints, should: Ints, at_most: Ints) -> PlanTargets:
    """Return targets that the requests of the horizon can deliver, lowered by priority where they could not."""
    supply, total = active.supply, horizon * active.supply.k
    limits = supply.k if active.list_limits is None else active.list_limits
    upper = np.minimum(np.minimum(at_most, horizon * limits), horizon * supply.most)
    must, should = np.minimum(must, upper), np.minimum(should, upper)
    if supply.is_disjoint:
        if int(should.sum()) > total:
            should = _in_order(must, should, _ranks(active), total)
        return PlanTargets(horizon, should, at_most)
    # Every selection twice: once for what it must have, once for what it should have.
    n, table = len(must), supply.membership
    both = np.concatenate([table.promises, table.promises + n])
    atoms = np.repeat(np.arange(table.n_atoms), np.diff(table.offsets))
    order = np.lexsort((both, np.tile(atoms, 2)))
    ranks = _ranks(active)
    bounds = PlanBounds(
        Membership(2 * n, both[order], 2 * table.offsets),
        np.concatenate([must, should]),
        np.tile(upper, 2),
        np.minimum(horizon * supply.capacities, total),
        total,
    )
    lower = give_way(bounds, np.concatenate([2 * ranks, 2 * ranks + 1])).lower
    return PlanTargets(horizon, np.maximum(lower[:n], lower[n:]), at_most)


def _ranks(active: ActiveWindows) -> Ints:
    """Return (selections,) which of them comes first, by priority and then by deadline, 1 first."""
    most = len(active.deadlines)
    first = np.full(len(active.supply.selections), np.iinfo(np.int64).max)
    with_window = active.with_window
    keys = active.priority[with_window] * most + active.deadline[with_window]
    np.minimum.at(first, active.selection[with_window], keys)
    return np.unique(first, return_inverse=True)[1].astype(np.int64) + 1


def _in_order(must: Ints, should: Ints, ranks: Ints, total: int) -> Ints:
    """Return targets of selections that share no item, rank by rank: what they must have, then what they should have.

    Where the slots run out, small needs come first: as many selections as possible get all of it.

    Examples
    --------
    >>> _in_order(np.array([0, 4, 0]), np.array([5, 9, 7]), np.array([1, 2, 2]), 13).tolist()
    [5, 8, 0]
    """
    needs = np.concatenate([must, should - must])
    order = np.lexsort((needs, np.repeat([0, 1], len(must)), np.tile(ranks, 2)))
    more = needs[order]
    given: Ints = np.zeros_like(needs)
    given[order] = np.minimum(more, np.maximum(total - (np.cumsum(more) - more), 0))
    whole: Ints = given[: len(must)] + given[len(must) :]
    return whole
