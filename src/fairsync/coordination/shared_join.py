"""How a coordinator agrees with the promise of a ledger that others share, or makes it if there is none."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairsync.coordination.counted import with_labels
from fairsync.coordination.shared_state import SharedState
from fairsync.coordination.shared_terms import SharedTerms
from fairsync.coordination.targets import Targets
from fairsync.errors import InvalidInputError
from fairsync.loop.spending import NO_LIMITS
from fairsync.promises.floors import capacities_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.catalog.atoms import Atoms
    from fairsync.catalog.groups import Groups
    from fairsync.coordination.shared_rows import OpenLeases
    from fairsync.ledger import SqlLedger
    from fairsync.ledger.database import Transaction
    from fairsync.loop.spending import Spending
    from fairsync.policies import Policy, Terms
    from fairsync.promises import Promise

IfDiffers = Literal["refuse", "follow", "take over"]


def join_ledger(
    ledger: SqlLedger,
    groups: Groups,
    terms: Terms,
    policy: Policy,
    lease_seconds: float,
    if_differs: IfDiffers = "refuse",
    resolve: Callable[[SharedTerms], Atoms | None] = lambda _: None,
    promises: tuple[Promise, ...] | None = None,
    spending: Spending = NO_LIMITS,
) -> SharedState:
    """Return the state of a coordinator that agrees with the promise of the ledger, or has made it.

    Parameters
    ----------
    ledger
        The ledger, opened with ``shared=True``.
    groups, terms, policy
        The promise that this coordinator would make, its groups, and the policy that makes prices.
    lease_seconds
        Seconds after which an open lease expires.
    if_differs
        What to do if the ledger has another promise; see :class:`fairsync.Coordinator`.
    resolve
        Returns the atoms of this coordinator's items under a promise of the ledger; None for floors of groups.
    promises
        The promises over a horizon, if they may overlap.
    spending
        What promises may cost, and which of its floors have given way to that in the horizon under way.
    """
    state = SharedState(ledger, groups, terms, policy, resolve, lease_seconds, promises)
    state.prices.spending = spending
    # Twice, because a lease may have been granted just now, and has to expire first.
    deadline, tries = time.monotonic() + 2 * lease_seconds, 0
    while True:
        may_wait = time.monotonic() < deadline
        if _try_to_join(state, groups, terms, if_differs, promises, may_wait=may_wait):
            break
        time.sleep(state.retry_delay(tries))
        tries += 1
    state.reset_grants()
    state.prices.restart(state.terms, state.rows.horizon)
    return state


def _try_to_join(
    state: SharedState,
    groups: Groups,
    terms: Terms,
    if_differs: IfDiffers,
    promises: tuple[Promise, ...] | None,
    *,
    may_wait: bool,
) -> bool:
    shared = SharedTerms.saved_in(state.ledger)
    if shared is None:
        state.assume(0, groups, terms)
        return state.promise(groups, terms, may_wait=may_wait)
    mine = SharedTerms.of(0, groups, terms, keeps_floors=state.policy.keeps_floors, promises=promises)
    if if_differs == "refuse":
        mine.check_agrees(shared, state.ledger.database.address)
    if not mine.difference(shared):
        state.adopt(shared)
        if shared.overlaps:
            return terms.auto_restart or _join_with_labels(state, groups, shared)
        return terms.auto_restart or _join_by_the_clock(state, groups, shared)
    if if_differs == "follow":
        state.adopt(shared)
        return True
    state.assume(shared.number, shared.groups, state.terms)
    if shared.overlaps or terms.membership is not None:
        if shared.auto_restart and groups.labels[: len(shared.groups.labels)] != shared.groups.labels:
            raise InvalidInputError(
                "the ledger counts other promises: give its promises first, under their names, or another ledger."
            )
        return state.promise(groups, terms, may_wait=may_wait, promises=promises)
    known = state.extended_groups(groups)
    floors = np.pad(terms.floors, (0, len(known.labels) - len(terms.floors)))
    capacities = capacities_of(known.group_sizes, terms.k, terms.max_exclude)
    return state.promise(known, replace(terms, floors=floors, capacities=capacities), may_wait=may_wait)


def _join_by_the_clock(state: SharedState, groups: Groups, shared: SharedTerms) -> bool:
    """Continue with the leader's targets, and with the groups of this coordinator's catalog, which may be newer.

    Groups without items here keep the sizes that other coordinators know.
    """
    known = state.extended_groups(groups)
    there = np.pad(shared.groups.group_sizes, (0, len(known.labels) - len(shared.groups.labels)))
    known = replace(known, group_sizes=np.where(known.group_sizes, known.group_sizes, there))
    capacities = capacities_of(known.group_sizes, shared.k, shared.max_exclude)
    if capacities.tolist() == state.terms.capacities.tolist():
        return True
    now, floors = state.ledger.totals(), state.terms.floors
    missing = np.maximum(floors - now.exposures[: len(floors)], 0)  # groups may have been added since
    more = np.pad(missing, (0, len(capacities) - len(floors)))
    return state.set_targets(Targets(known, max(state.terms.horizon - now.requests, 1), (more,)))


def _join_with_labels(state: SharedState, groups: Groups, shared: SharedTerms) -> bool:
    """Continue with the leader's targets by selection, and count labels that only this coordinator's items have."""
    grown = with_labels(shared.groups, groups.labels)
    if grown is shared.groups:
        return True

    def attempt(transaction: Transaction, rows: OpenLeases) -> bool:
        state.write_shared(transaction, shared.grown(grown), state.terms, rows)
        return True

    return state.change(attempt)
