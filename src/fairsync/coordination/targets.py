"""Targets: what a promise that ends by the clock asks of the next requests, as the scheduler sets it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError
from fairsync.policies.base import NO_CAP
from fairsync.promises.list_limits import longest_list, tree_of
from fairsync.promises.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Atoms
    from fairsync.catalog.groups import Groups, Label

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Targets:
    """Bounds on the additional exposures of each column within a number of further requests.

    Attributes
    ----------
    groups : Groups
        The columns, with the number of items of each.
    requests : int
        The number of further requests.
    tiers : tuple of numpy.ndarray
        For each priority, first to last, (P,) the floors of this priority and those before it.
    caps : numpy.ndarray or None
        (P,) the most exposures, `NO_CAP` where there is no limit; None if there is none at all.
    list_limits : numpy.ndarray or None
        (P,) the most items in one list; None if there is no limit at all.
    max_prices : numpy.ndarray or None
        (P,) the highest subsidies, inf where there is no limit; None if there is none at all.
    atoms : Atoms or None
        The atoms under the columns; None for floors of labels, which need none.
    selections : frozenset of str
        The selections that are counted.
    every_slot : bool
        Whether the first of the tiers fills every slot, so that it never gives way.
    """

    groups: Groups
    requests: int
    tiers: tuple[NDArray[np.int64], ...]
    caps: NDArray[np.int64] | None = None
    list_limits: NDArray[np.int64] | None = None
    max_prices: NDArray[np.float64] | None = None
    atoms: Atoms | None = None
    selections: frozenset[str] = frozenset()
    every_slot: bool = False

    @property
    def priorities(self) -> NDArray[np.int64]:
        """(P,) the first priority that each column has a floor of, by its place; 0 is for every slot."""
        has = np.array(self.tiers) > 0
        first: NDArray[np.int64] = np.where(has.any(axis=0), has.argmax(axis=0), len(has) - 1)
        return first if self.every_slot else first + 1

    @property
    def n_columns(self) -> int:
        """Number of columns, P."""
        return len(self.groups.labels)

    def first(self, label: Label, floor: int) -> Targets:
        """Return the targets with a floor that comes before all others."""
        code, tier = self.groups.code_of(label), np.zeros(self.n_columns, dtype=np.int64)
        tier[code] = floor
        return replace(self, tiers=(tier, *(np.maximum(tier, one) for one in self.tiers)), every_slot=True)

    def less(self, counted: NDArray[np.int64]) -> Targets:
        """Return the targets after further exposures, which count."""
        if not counted.any():
            return self
        counted = grow(counted, self.n_columns)
        caps = self.caps
        if caps is not None:
            caps = np.where(caps == NO_CAP, NO_CAP, np.maximum(caps - counted, 0))
        return replace(self, tiers=tuple(np.maximum(tier - counted, 0) for tier in self.tiers), caps=caps)


def check_promises(promises: object) -> list[Promise]:
    """Return promises as a list, or raise an error that says what is wrong with them."""
    if isinstance(promises, Promise) or not isinstance(promises, Iterable):
        raise InvalidInputError(f"promises must be a list of fairsync.Promise, got {promises!r:.80}.")
    given = list(promises)
    for one in given:
        if not isinstance(one, Promise):
            raise InvalidInputError(f"promises must be fairsync.Promise, got {one!r:.80}.")
    return given


def make_targets(
    groups: Groups,
    promises: Sequence[tuple[Label, Promise]],
    requests: int,
    k: int,
    atoms: Atoms | None,
    selections: frozenset[str] = frozenset(),
) -> Targets:
    """Return promises about columns as targets.

    Parameters
    ----------
    groups, atoms, selections
        The columns, the atoms under them, if there are other bounds than floors of labels, and the selections that are
        counted.
    promises
        The promises, each with the label of its column. Of several with the same one, the largest floor counts with the
        first priority that has it, the smallest cap and limit per list, and the largest highest price.
    requests, k
        The number of further requests, and of candidates of each.
    """
    n = len(groups.labels)
    priorities = sorted({promise.priority for _, promise in promises if promise.at_least}) or [1]
    tiers = {priority: np.zeros(n, dtype=np.int64) for priority in priorities}
    caps, limits = np.full(n, NO_CAP, dtype=np.int64), np.full(n, k, dtype=np.int64)
    max_prices = np.full(n, -np.inf)
    for label, promise in promises:
        code = groups.code_of(label)
        for bound in (promise.at_least, promise.at_most):
            if isinstance(bound, float):
                raise InvalidInputError(
                    f"{promise.name}: targets are whole numbers of exposures in the next requests, got a share."
                )
        if promise.at_least:
            tier = tiers[promise.priority]
            tier[code] = max(tier[code], int(promise.at_least))
            max_prices[code] = max(max_prices[code], np.inf if promise.max_price is None else promise.max_price)
        if promise.at_most is not None:
            caps[code] = min(caps[code], int(promise.at_most))
        if promise.at_most_per_list is not None:
            limits[code] = min(limits[code], promise.at_most_per_list)
    max_prices = np.where(max_prices < 0, np.inf, max_prices)
    cumulative = tuple(np.maximum.accumulate([tiers[priority] for priority in priorities]))
    return Targets(
        groups,
        requests,
        cumulative,
        None if (caps == NO_CAP).all() else caps,
        None if (limits >= k).all() else limits,
        None if np.isinf(max_prices).all() else max_prices,
        atoms,
        selections,
    )


def needs_every_slot(targets: Targets, k: int, max_exclude: int, requests: int | None = None) -> bool:
    """Return whether too few items lie outside all caps to fill a list with, once the caps are used up.

    Parameters
    ----------
    targets, k, max_exclude
        The targets, which have atoms, and the terms.
    requests
        The most requests that may come; caps that they cannot use up do not count. By default, any number.
    """
    if targets.caps is None or targets.atoms is None:
        return False
    membership, sizes = targets.atoms.membership, targets.atoms.sizes
    most = np.minimum(targets.groups.group_sizes, k)
    capped = targets.caps < (NO_CAP if requests is None else requests * most)
    limits = possible_limits(targets, targets.atoms, k, max_exclude)
    outside = np.where(membership.in_any(capped), 0, sizes)
    if limits is None:
        return int(outside.sum()) < k + max_exclude
    tree = tree_of(membership, np.flatnonzero(limits < k), sizes, list(map(str, targets.groups.labels)))
    return longest_list(membership, outside, limits, tree) < k + max_exclude


def possible_limits(targets: Targets, atoms: Atoms, k: int, max_exclude: int) -> NDArray[np.int64] | None:
    """Return the limits per list, without those that cross larger ones, and none if lists could not be filled."""
    limits = targets.list_limits
    if limits is None:
        return None
    names, membership, sizes = list(map(str, targets.groups.labels)), atoms.membership, atoms.sizes
    limited = np.flatnonzero(limits < k)
    try:
        tree = tree_of(membership, limited, sizes, names)
    except InvalidInputError as error:
        _warn_once(f"a limit per list is left out: {error}")
        kept: list[int] = []
        for code in limited[np.argsort(-targets.groups.group_sizes[limited], kind="stable")].tolist():
            try:
                tree = tree_of(membership, np.array([*kept, code]), sizes, names)
            except InvalidInputError:
                continue
            kept.append(code)
        left_out = np.setdiff1d(limited, kept)
        limits = limits.copy()
        limits[left_out] = k
    if longest_list(membership, sizes, limits, tree) < k + max_exclude:
        _warn_once("limits per list are left out: they leave too few items for a list.")
        return None
    return limits


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        _log.warning("%s", text)


_warned: set[str] = set()
