"""Targets: what to aim at until the next plan, as bounds on the exposures of each selection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.plan import NO_CAP, least_shortfall
from fairsync.plan.lowering import lower_floors
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.schedule.traffic import Traffic, worst_case_requests

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows, WindowProgress
    from fairsync.schedule.bank import Bank
    from fairsync.schedule.seasonal_profile import Bools, Floats, Ints

_ROUNDING = 1e-6
# What must come forward comes within this part of the requests until its deadline, or at one exposure in each list.
_STRETCH = 0.15
# The part of the slots that may be needed for what comes forward, if it is for more selections than a list has slots.
_FILLED = 0.8
# The time to find out how much of the targets of selections that overlap fits, before a quick rule decides.
_SECONDS = 2.0
# Stages of needs, within a priority.
_STAGES = 3
_SHARES, _CAN_BE_KEPT, _THE_REST = range(_STAGES)


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


class Owed(NamedTuple):
    """What a plan asked for and did not get yet.

    Attributes
    ----------
    requests : int
        The requests that are left of its horizon.
    exposures : numpy.ndarray
        (selections,) the exposures that are left of its targets.
    """

    requests: int
    exposures: Ints


class _Need(NamedTuple):
    """A part of what selections need.

    Attributes
    ----------
    exposures : numpy.ndarray
        (selections,) the exposures.
    stage : int
        When it is served, within a priority. Shares hold whenever a window ends, so what they need now comes first.
        Then comes what can be kept, then the rest.
    in_proportion : bool
        Whether the slots are divided in proportion where they run out: the largest need is not put off by all others.
    """

    exposures: Ints
    stage: int
    in_proportion: bool = False


def next_targets(
    active: ActiveWindows,
    progress: WindowProgress,
    traffic: Traffic,
    bank: Bank,
    until_next: int,
    reachable: Bools,
    owed: Owed | None = None,
) -> PlanTargets:
    """Return what to aim at until the next plan.

    A promise should get the same part of its missing exposures in every request until its end. It must get, step by
    step, what it would miss if traffic fell to the worst case. The horizon is the shortest of these steps.

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
    reachable
        (P,) Whether expected requests can keep each promise beside the others.
    owed
        What the previous plan asked for and did not get yet: what must come is not put off.
    """
    # What comes before the next plan needs targets. But a plan for more requests than come by then would put off what
    # must come, plan by plan: so few requests are counted on only as far as chance leaves them.
    certain = worst_case_requests(until_next, until_next, 1.0)
    least = max(until_next if 2 * certain >= until_next else certain, 1)
    missing = active.retrieved(active.missing(progress, _until_end(active, traffic)))
    forward = _brought_forward(active, progress, traffic, missing)
    rate, lists = _steps(active, traffic, missing, forward)
    horizon = min(max(_until_next_deadline(active, traffic, missing), 1), bank.horizon)
    horizon = max(min(horizon, max(int(lists.min(initial=np.inf) + 0.5), least)) if (forward > 0).any() else horizon, 1)
    step = rate * horizon
    late = np.zeros_like(forward) if owed is None else np.minimum(owed.exposures, forward)
    if owed is not None and (late > 0).any():
        horizon = min(horizon, owed.requests)
        step = np.maximum(rate * horizon, late * (horizon / owed.requests))
    must: Ints = np.where(horizon >= lists - 0.5, forward, np.minimum(_rounded_up(step), forward)).astype(np.int64)
    pace = _paced_exposures(active, traffic.lower_bound, missing, horizon)
    low = np.minimum(traffic.lower_bound, traffic.sustained.astype(np.int64))
    first = np.maximum(np.minimum(must, _paced_exposures(active, low, missing, horizon)), bank.at_least)
    can_be_kept = bank.at_least.copy()
    np.maximum.at(can_be_kept, active.selection[reachable], missing[reachable])
    needs = [
        _Need(np.minimum(bank.due, can_be_kept), _SHARES),
        _Need(np.minimum(first, can_be_kept), _CAN_BE_KEPT),
        _Need(np.minimum(must, can_be_kept), _CAN_BE_KEPT, in_proportion=True),
        _Need(np.minimum(pace, can_be_kept), _CAN_BE_KEPT, in_proportion=True),
        _Need(must, _THE_REST),
        _Need(pace, _THE_REST),
    ]
    return _fitted(active, horizon, needs, _turns(active, missing, needs), np.minimum(bank.at_most, NO_CAP))


def _rounded_up(parts: Floats) -> Floats:
    """Return whole numbers whose sum is that of the parts, rounded up: many short horizons put nothing off.

    Examples
    --------
    >>> _rounded_up(np.array([0.2, 1.5, 0.4])).tolist()
    [0.0, 2.0, 1.0]
    """
    whole: Floats = np.floor(parts + _ROUNDING)
    more = math.ceil(float(parts.sum() - whole.sum()) - _ROUNDING)
    whole[np.argsort(whole - parts, kind="stable")[: max(more, 0)]] += 1.0
    return whole


def _brought_forward(active: ActiveWindows, progress: WindowProgress, traffic: Traffic, missing: Ints) -> Ints:
    """Return (selections,) what would be missed if traffic fell to the worst case now: it has to come before."""
    most = np.zeros(len(active.supply.selections), dtype=np.int64)
    np.maximum.at(most, active.selection, missing)
    program = active.program(progress, traffic.worst_case, ahead=int(most.sum()) + 1)  # as many as could be needed
    first = active.supply.membership.sums(least_shortfall(program).exposures[:, 0])
    # An atom may have more, for other selections.
    forward: Ints = np.minimum(np.ceil(first - _ROUNDING).astype(np.int64), most)
    return forward


def _steps(active: ActiveWindows, traffic: Traffic, missing: Ints, forward: Ints) -> tuple[Floats, Floats]:
    """Return (selections,) at how many exposures per request, and in how many requests, what must be comes forward.

    A small need comes at one exposure in each list, a large one within a part of the requests until its deadline. So
    lists are not filled with a single selection, which is expensive.
    """
    part = np.minimum(forward[active.selection], missing)
    held = np.maximum(active.supply.most[active.selection], 1)
    stretch = np.minimum(part, _STRETCH * traffic.sustained[active.deadline])
    requests = np.maximum(np.maximum(stretch, part / held), 1.0)
    # Where no list has a place for one of each, all that must come until a deadline needs this many requests.
    n, k = len(active.deadlines), active.supply.k
    crowded = np.cumsum(np.bincount(active.deadline, part > 0, n)) > k
    until = np.cumsum(np.bincount(active.deadline, part, n)) / (_FILLED * k)
    requests = np.maximum(requests, np.where(crowded, until, 0.0)[active.deadline])
    rate, lists = np.zeros(len(forward)), np.full(len(forward), np.inf)
    np.maximum.at(rate, active.selection, part / requests)
    fastest = (part > 0) & (part / requests >= rate[active.selection] - _ROUNDING)
    np.minimum.at(lists, active.selection[fastest], requests[fastest])
    return rate, lists


def _until_next_deadline(active: ActiveWindows, traffic: Traffic, missing: Ints) -> int:
    """Return the requests that can be counted on until the first window ends that misses something."""
    first = active.deadline[missing > 0].min(initial=len(active.deadlines) - 1)
    return int(traffic.lower_bound[first])


def _until_end(active: ActiveWindows, traffic: Traffic) -> Ints:
    """Return (P,) the expected requests until the end of each promise's window."""
    requests: Ints = traffic.expected.astype(np.int64)[active.deadline]
    return requests


def _paced_exposures(active: ActiveWindows, requests: Ints, missing: Ints, horizon: int) -> Ints:
    """Return (selections,) the exposures to retrieve within some requests, at a constant rate until each deadline.

    Promises with the same deadline are apportioned together, so that rounding does not inflate their sum.
    """
    most = np.zeros(len(active.supply.selections), dtype=np.int64)
    for s, until in enumerate(requests.tolist()):
        ending = np.flatnonzero(active.deadline == s)
        whole = missing[ending].tolist()
        fraction = min(horizon / until, 1.0) if until > 0 else 1.0
        paced = apportion(math.floor(sum(whole) * fraction + 0.5), whole)
        np.maximum.at(most, active.selection[ending], np.array(paced, dtype=np.int64))
    return most


def _turns(active: ActiveWindows, missing: Ints, needs: list[_Need]) -> Ints:
    """Return (needs, selections) the turn of each need, 0 first. No two needs have the same turn.

    By priority, then by stage. In each stage but that of shares, windows that miss something come first, near
    deadlines first.
    """
    n, deadlines = len(active.supply.selections), len(active.deadlines)
    some = active.with_window
    last = np.where(missing[some] > 0, active.deadline[some], deadlines - 1)
    first = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(first, active.selection[some], active.priority[some] * deadlines + last)
    priority, deadline = np.divmod(first, deadlines)
    priority = np.unique(priority, return_inverse=True)[1]
    stages = np.array([[need.stage] for need in needs])
    place = (priority * _STAGES + stages) * deadlines + np.where(stages == _SHARES, 0, deadline)
    turns: Ints = place * len(needs) + np.arange(len(needs))[:, None]
    return turns


def _fitted(active: ActiveWindows, horizon: int, needs: list[_Need], turns: Ints, at_most: Ints) -> PlanTargets:
    """Return targets that the requests of the horizon can deliver, lowered where they could not, last turns first.

    Parameters
    ----------
    active, horizon
        The windows, and the requests.
    needs, turns
        What the selections need, and (needs, selections) when it is their turn.
    at_most
        (selections,) upper bounds.
    """
    supply, total = active.supply, horizon * active.supply.k
    limits = supply.k if active.list_limits is None else active.list_limits
    upper = np.minimum(np.minimum(at_most, horizon * limits), horizon * supply.most)
    whole: Ints = np.minimum(np.maximum.accumulate([need.exposures for need in needs]), upper)
    should = whole[-1]
    if supply.is_disjoint:
        if int(should.sum()) > total:
            should = _in_turn(whole, turns, [need.in_proportion for need in needs], total)
        return PlanTargets(horizon, should, at_most)
    tiers = [np.where(turns <= turn, whole, 0).max(axis=0) for turn in np.unique(turns[whole > 0]).tolist()]
    most = np.minimum(horizon * supply.capacities, total)
    bounds = PlanBounds(supply.membership, np.zeros_like(should), upper, most, total)
    return PlanTargets(horizon, lower_floors(bounds, tiers or [should], seconds=_SECONDS)[0], at_most)


def _in_turn(needs: Ints, turns: Ints, in_proportion: list[bool], total: int) -> Ints:
    """Return targets of selections that share no item, turn by turn.

    Parameters
    ----------
    needs, turns
        (needs, selections) exposures, which include those of the needs before, and when it is their turn.
    in_proportion
        For each need, whether the slots are divided in proportion where they run out. Otherwise small ones come first:
        as many selections as possible get all of it.
    total
        The slots.

    Examples
    --------
    >>> needs = np.array([[1, 4, 2], [5, 10, 8]])
    >>> turns = np.array([[0, 2, 2], [1, 3, 3]])
    >>> [_in_turn(needs, turns, [False, True], total).tolist() for total in (9, 17)]
    [[5, 2, 2], [5, 7, 5]]
    """
    more = np.diff(needs, axis=0, prepend=0)
    given: Ints = np.zeros_like(more)
    for turn in np.unique(turns[more > 0]).tolist():
        (need, *_), selections = np.nonzero(turns == turn)
        whole = more[need, selections]
        if in_proportion[need]:
            part = np.array(apportion(min(total, int(whole.sum())), whole.tolist()), dtype=np.int64)
        else:
            part, small_first = np.zeros_like(whole), np.argsort(whole, kind="stable")
            part[small_first] = np.diff(np.minimum(np.cumsum(whole[small_first]), total), prepend=0)
        given[need, selections] = part
        total -= int(part.sum())
    targets: Ints = given.sum(axis=0)
    return targets
