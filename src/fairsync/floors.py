"""Floors: what is promised to each group, and whether it can be kept at all."""

from collections.abc import Mapping
from numbers import Integral
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog.groups import Grouped, Label
from fairsync.errors import InfeasibleFloorsError, InvalidInputError, UnknownGroupError

# A mapping's keys are invariant to type checkers, so that {int: int} needs its own mention.
Floors: TypeAlias = int | Mapping[str, int] | Mapping[int, int] | Mapping[Label, int]


def resolve_floors(floors: Floors, groups: Grouped) -> npt.NDArray[np.int64]:
    """Return (G,) floors in the order of the labels; groups that are not named get 0.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), ["toys", "books", "toys"])
    >>> resolve_floors(7, catalog).tolist(), resolve_floors({"toys": 5}, catalog).tolist()
    ([7, 7], [0, 5])
    """
    if not isinstance(floors, Mapping):
        return np.full(len(groups.labels), _count(floors, "floors"), dtype=np.int64)
    known = set(groups.labels)
    plain = {_plain(label): floor for label, floor in floors.items()}
    unknown = [label for label in plain if label not in known or isinstance(label, bool)]
    if unknown:
        raise UnknownGroupError(unknown, groups.labels)
    resolved = np.zeros(len(groups.labels), dtype=np.int64)
    for label, floor in plain.items():
        resolved[groups.code_of(label)] = _count(floor, f"the floor of group {label!r}")
    return resolved


def group_caps(groups: Grouped, k: int) -> npt.NDArray[np.int64]:
    """Return (G,) the most exposures of each group that one request can hold: min(k, items of the group)."""
    return np.minimum(groups.group_sizes, k)


def check_feasible(floors: npt.NDArray[np.int64], groups: Grouped, k: int, horizon: int) -> None:
    """Raise :class:`InfeasibleFloorsError` unless some plan of candidates meets all floors.

    A request holds at most min(k, items of g) items of group g and k items in all. The floors can be met if and only
    if no group's floor exceeds the first over the horizon, and their sum does not exceed the second: slots can be dealt
    out freely within those limits.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), ["toys", "books", "toys"])
    >>> check_feasible(np.array([10, 20]), catalog, k=3, horizon=10)
    >>> check_feasible(np.array([11, 0]), catalog, k=3, horizon=10)
    Traceback (most recent call last):
    fairsync.errors.InfeasibleFloorsError: The floor of group 'books' is 11, which cannot be met: ...
    """
    most = group_caps(groups, k) * horizon
    for code in np.flatnonzero(floors > most)[:1]:
        size = int(groups.group_sizes[code])
        per_request = min(size, k)
        why = f"it has {size} item{'s' if size != 1 else ''}" if size < k else f"a request has {k} slots"
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


def _plain(label: object) -> Label:
    """Return a label as the catalog holds it: numpy's strings and integers are as good as Python's."""
    if isinstance(label, np.generic):
        return label.item()  # type: ignore[no-any-return]
    return label  # type: ignore[return-value]


def _count(value: object, what: str) -> int:
    """Return a number of exposures, or say why it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or int(value) < 0:
        raise InvalidInputError(f"{what} must be a whole number of exposures, 0 or more, got {value!r}.")
    if int(value) >= 2**53:
        raise InvalidInputError(f"{what} is {value}: more exposures than can be counted.")
    return int(value)
