"""Floors: what is promised to each group, and whether it can be kept."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog.groups import Grouped, Label
from fairsync.errors import InfeasibleFloorsError, InvalidInputError, UnknownGroupError
from fairsync.inputs import check_floors, check_k, check_max_exclude, check_positive
from fairsync.ledger import Totals
from fairsync.policies import Terms
from fairsync.text import count

# A mapping is invariant in its keys, so that {int: int} has to be named for type checkers.
Floors: TypeAlias = int | Mapping[str, int] | Mapping[int, int] | Mapping[Label, int]

_BLOCK = 1 << 15  # exposures that stay in cache


def make_terms(
    groups: Grouped,
    k: int,
    floors: Floors,
    horizon: int,
    batch_size: int,
    *,
    auto_restart: bool = True,
    max_exclude: int = 0,
) -> Terms:
    """Return a promise as terms for the policy and the guard, or refuse one that cannot be kept.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> make_terms(Catalog(np.eye(3), ["a", "b", "b"]), k=2, floors=5, horizon=10, batch_size=4).capacities.tolist()
    [1, 2]
    """
    k, horizon = check_k(k, groups), check_positive(horizon, "horizon")
    max_exclude = check_max_exclude(max_exclude, k, groups)
    resolved = resolve_floors(floors, groups)
    check_feasible(resolved, groups, k, horizon, max_exclude)
    capacities, batch_size = capacities_of(groups.group_sizes, k, max_exclude), check_positive(batch_size, "batch_size")
    return Terms(resolved, capacities, k, horizon, batch_size, auto_restart, max_exclude)


def changed_terms(
    terms: Terms, labels: Sequence[Label], groups: Grouped, floors: Floors | None, horizon: int | None
) -> Terms:
    """Return the terms of a changed promise. Floors and horizon stay as they are unless given.

    Parameters
    ----------
    terms, labels
        The promise so far, and the labels of its groups.
    groups, floors, horizon
        The new groups, floors and horizon.
    """
    if floors is None:
        floors = dict(zip(labels, terms.floors.tolist(), strict=True))
    horizon = terms.horizon if horizon is None else horizon
    return make_terms(
        groups, terms.k, floors, horizon, terms.batch_size,
        auto_restart=terms.auto_restart, max_exclude=terms.max_exclude,
    )  # fmt: skip


def resolve_floors(floors: Floors, groups: Grouped) -> npt.NDArray[np.int64]:
    """Return (G,) floors in the order of the labels; groups that are not named get 0.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), ["toys", "books", "toys"])
    >>> resolve_floors(7, catalog).tolist(), resolve_floors({"toys": 5}, catalog).tolist()
    ([7, 7], [0, 5])
    """
    floors = check_floors(floors)
    resolved = np.zeros(len(groups.labels), dtype=np.int64)
    if not isinstance(floors, Mapping):
        resolved[:] = _count(floors, "floors")
        return _check_total(resolved)
    known = set(groups.labels)
    plain = {_plain(label): floor for label, floor in floors.items()}
    unknown = [label for label in plain if label not in known or isinstance(label, bool)]
    if unknown:
        raise UnknownGroupError(unknown, groups.labels, groups.attribute_of(unknown[0]))
    for label, floor in plain.items():
        resolved[groups.code_of(label)] = _count(floor, f"the floor of group {label!r}")
    return _check_total(resolved)


def capacities_of(sizes: npt.NDArray[np.int64], k: int, max_exclude: int = 0) -> npt.NDArray[np.int64]:
    """Return the exposures of each group, or atom, that any request can hold, given the number of its items.

    They are min(k, items), for a request that excludes none of them. One that excludes ``max_exclude`` items may
    exclude them all in the same group.

    Examples
    --------
    >>> capacities_of(np.array([2, 9]), k=5, max_exclude=3).tolist()
    [0, 5]
    """
    return np.minimum(np.maximum(sizes - max_exclude, 0), k)


def check_feasible(floors: npt.NDArray[np.int64], groups: Grouped, k: int, horizon: int, max_exclude: int = 0) -> None:
    """Raise :class:`InfeasibleFloorsError` unless some plan of candidates meets all floors.

    A request holds at most min(k, items of g) items of group g and k items in all. The floors can be met if and only
    if no group's floor exceeds the first limit over the horizon, and their sum does not exceed the second: within these
    limits, slots can be assigned freely. Requests may exclude up to ``max_exclude`` items, in the worst case all of
    them of g: then they hold at most min(k, items of g less that many).

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), ["toys", "books", "toys"])
    >>> check_feasible(np.array([10, 20]), catalog, k=3, horizon=10)
    >>> check_feasible(np.array([11, 0]), catalog, k=3, horizon=10)
    Traceback (most recent call last):
    fairsync.errors.InfeasibleFloorsError: The floor of group 'books' is 11, which cannot be met: ...
    """
    most = capacities_of(groups.group_sizes, k, max_exclude) * horizon
    for code in np.flatnonzero(floors > most)[:1]:
        size = int(groups.group_sizes[code])
        per_request = min(max(size - max_exclude, 0), k)
        few_items = f"it has {size} item{'s' if size != 1 else ''}"
        why = few_items if size - max_exclude < k else f"a request has {k} slot{'s' if k != 1 else ''}"
        if max_exclude and size - max_exclude < k:
            why += f", of which a request may exclude {max_exclude} (max_exclude)"
        raise InfeasibleFloorsError(
            groups.labels[code],
            int(floors[code]),
            f"{why}, so that {horizon} requests can show the group at most {per_request} × {horizon} times",
            int(most[code]),
        )
    total = int(floors.sum())
    if total > horizon * k:
        raise InfeasibleFloorsError(
            None, total, f"{horizon} requests of {k} candidates have {horizon * k} slots", horizon * k
        )


def can_be_met(missing: npt.NDArray[np.int64], left: int, terms: Terms) -> bool:
    """Return whether a number of requests can deliver the missing exposures of each atom.

    Examples
    --------
    >>> terms = Terms(np.array([9, 9]), np.array([2, 1]), k=2, horizon=9, batch_size=1)
    >>> can_be_met(np.array([4, 2]), 3, terms), can_be_met(np.array([4, 2]), 2, terms)
    (True, False)
    """
    total, most = 0, 0
    for start in range(0, len(missing), _BLOCK):  # both in one pass: there can be a million atoms
        part = missing[start : start + _BLOCK]
        total, most = total + int(part.sum()), max(most, int(part.max()))
    if total > left * terms.k:
        return False
    # As a rule what is missing can be shown in every list, and is missing less often: this saves a comparison of all.
    if most <= left * terms.least_capacity:
        return not missing[terms.never_sure].any()
    return bool((missing <= left * terms.capacities).all())


def check_reachable(terms: Terms, totals: Totals, *, keeps_floors: bool, is_over: bool = True) -> None:
    """Raise :class:`InvalidInputError` if the horizon under way cannot meet its floors, or belongs to another catalog.

    Parameters
    ----------
    terms, totals
        The promise, and the totals of the horizon.
    keeps_floors
        Whether the policy promises to meet the floors.
    is_over
        Whether a horizon without requests left counts as over, so that the floors are those of the next one.
    """
    if len(totals.exposures) != len(terms.floors):
        what = "groups" if terms.membership is None else "promises"
        raise InvalidInputError(
            f"The ledger counts {len(totals.exposures)} {what}, and there are {len(terms.floors)}:"
            " it belongs to another catalog, or to other promises."
        )
    if not terms.auto_restart:
        return
    left = terms.horizon - totals.requests
    if left < 0:
        raise InvalidInputError(
            f"The horizon has had {count(totals.requests, 'request')} already, more than {terms.horizon:,}: choose a"
            " longer horizon, or start with a new ledger."
        )
    missing = np.maximum(terms.floors - totals.exposures, 0)
    under_way = left > 0 or not is_over
    if under_way and keeps_floors and not can_be_met(missing, left, terms):
        raise InvalidInputError(
            f"The horizon has had {count(totals.requests, 'request')} and misses"
            f" {count(int(missing.sum()), 'exposure')}: the floors cannot be met by request {terms.horizon}. Lower"
            " them, lengthen the horizon, or start with a new ledger."
        )


def _plain(label: object) -> Label:
    """Return a label as the catalog holds it: numpy strings and integers become Python's."""
    if isinstance(label, np.generic):
        return label.item()  # type: ignore[no-any-return]
    return label  # type: ignore[return-value]


def _count(value: object, what: str) -> int:
    """Return a number of exposures, or raise an error that says what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or int(value) < 0:
        raise InvalidInputError(f"{what} must be a whole number of exposures, 0 or more, got {value!r}.")
    if int(value) >= 2**53:
        raise InvalidInputError(f"{what} is {value}: more exposures than can be counted.")
    return int(value)


def _check_total(floors: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return floors whose sum fits in 64 bits, or raise."""
    total = float(floors.sum(dtype=np.float64))
    if total >= 2**62:
        raise InvalidInputError(f"the floors add up to {total:.3g}: more exposures than can be counted.")
    return floors
