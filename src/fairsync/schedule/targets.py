"""Targets: what to aim at until the next plan, as bounds on the exposures of each selection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.plan import give_way, least_shortfall
from fairsync.policies.base import NO_CAP
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows, Progress
    from fairsync.schedule.bank import Bank
    from fairsync.schedule.seasonal_profile import Floats, Ints
    from fairsync.schedule.traffic import Traffic

_ROUNDING = 1e-6


class Targets(NamedTuple):
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


class _Needs(NamedTuple):
    """Exposures of each selection within a horizon: those that it must have, and those that it should have."""

    horizon: int
    must: Floats
    should: Floats


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


def next_targets(active: ActiveWindows, progress: Progress, traffic: Traffic, bank: Bank) -> Targets:
    """Return what to aim at until the next plan.

    A promise should get the part of its missing exposures that the requests of the period are of those until its end.
    It must get what worst-case traffic could not deliver later. If worst-case traffic could not deliver that in the
    rest of the period either, it must get it at once: the horizon is shortened to as many requests as that takes.

    Parameters
    ----------
    active, progress
        The windows, and how far they have come.
    traffic
        The requests until each deadline.
    bank
        What shares need.
    """
    needs = _worst_case_needs(active, progress, traffic)
    horizon = max(min(needs.horizon, bank.horizon), 1)
    part = horizon / max(int(traffic.lower_bound[0]), 1)
    must = np.where(needs.horizon <= horizon, needs.must, needs.must * (horizon / needs.horizon))
    must = np.maximum(np.ceil(must - _ROUNDING).astype(np.int64), bank.at_least)
    paced, ending = _paced_exposures(active, progress, traffic)
    should = paced
    if part < 1:  # what ends with the period has no later plan to make up for exposures that were rounded down
        should = np.maximum(np.floor(part * paced + 0.5), np.ceil(part * ending - _ROUNDING)).astype(np.int64)
    at_most = np.minimum(bank.at_most, NO_CAP)
    return _fitted(active, horizon, must, np.maximum(should, must), at_most)


def _worst_case_needs(active: ActiveWindows, progress: Progress, traffic: Traffic) -> _Needs:
    """Return what each selection must have now so that worst-case traffic can deliver the rest, and by when."""
    most = max(int(traffic.lower_bound[0]), 1)
    program = active.program(progress, traffic.worst_case, ahead=most)
    solution = least_shortfall(program)
    membership, capacities = active.supply.membership, active.supply.most
    now = membership.sums(solution.exposures[:, 0])
    now = np.where(now > _ROUNDING, now, 0.0)
    in_period = now + membership.sums(solution.exposures[:, 1])
    if not now.any():
        return _Needs(most, np.minimum(in_period, most * capacities), in_period)
    # A selection that needs all that requests can hold, whatever the horizon, gains nothing from a shorter one.
    full = now >= capacities * most - _ROUNDING
    rest = np.where(full, 0.0, now)
    if not rest.any():
        return _Needs(most, np.minimum(in_period, most * capacities), in_period)
    late = rest > 0
    near = max(math.floor(float((rest[late] / capacities[late]).min()) + _ROUNDING), 1)
    must = np.where(full, capacities * near, np.minimum(now, capacities * near))
    return _Needs(near, must, must)


def _paced_exposures(active: ActiveWindows, progress: Progress, traffic: Traffic) -> tuple[Ints, Ints]:
    """Return (selections,) the exposures to retrieve in the period, in proportion to expected traffic.

    The second array is about promises that end with the period only. Promises with the same deadline are apportioned together, so that rounding does not inflate their sum.
    """
    requests = traffic.expected.astype(np.int64)[active.deadline]
    every = active.retrieved(active.missing(progress, requests))
    most = np.zeros(len(active.supply.selections), dtype=np.int64)
    first = most
    for s, until in enumerate(traffic.expected.tolist()):
        ending = np.flatnonzero(active.deadline == s)
        missing = every[ending].tolist()
        fraction = float(traffic.expected[0]) / until if until > 0 else 1.0
        # The tolerance keeps an integer that floating-point arithmetic made slightly too large.
        paced = apportion(min(sum(missing), math.ceil(sum(missing) * fraction - _ROUNDING)), missing)
        np.maximum.at(most, active.selection[ending], np.array(paced, dtype=np.int64))
        first = most.copy() if s == 0 else first
    return most, first


def _fitted(active: ActiveWindows, horizon: int, must: Ints, should: Ints, at_most: Ints) -> Targets:
    """Return targets that the requests of the horizon can deliver, lowered by priority where they could not."""
    supply, total = active.supply, horizon * active.supply.k
    limits = supply.k if active.list_limits is None else active.list_limits
    upper = np.minimum(np.minimum(at_most, horizon * limits), horizon * supply.most)
    must, should = np.minimum(must, upper), np.minimum(should, upper)
    if supply.is_disjoint:
        if int(should.sum()) > total:
            should = _in_order(must, should, _ranks(active), total)
        return Targets(horizon, should, at_most)
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
    return Targets(horizon, np.maximum(lower[:n], lower[n:]), at_most)


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
    given = np.zeros_like(needs)
    given[order] = np.minimum(more, np.maximum(total - (np.cumsum(more) - more), 0))
    return given[: len(must)] + given[len(must) :]
