"""What each request may get, as the caller says it: ids to leave out (`exclude`) and conditions (`where`), checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from fairsync.catalog.arrays import to_values
from fairsync.catalog.names import check_names
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Where
    from fairsync.search.eligibility import Eligibility

T = TypeVar("T")

# What callers give as lists of ids is looked at for every request: most of it is one of the first kinds.
_LISTS, _NO_LISTS = (list, tuple, np.ndarray), (str, bytes, Mapping)

Exclude: TypeAlias = Any
"""For each request a list of ids; or a scipy sparse matrix, (requests, items), whose nonzero entries are excluded."""


class Rules(ABC):
    """What each of n requests may get, as the caller said it: checked, but conditions are evaluated part by part.

    A call may have more requests, each with a condition of its own, than there is memory for their selections.

    Parameters
    ----------
    where
        Conditions on attributes (see `Catalog.select`): one dict for all requests, or one for each, or None.
    unknown
        (n,) the number of excluded ids of each request that do not exist.
    allow_empty
        Whether no item may meet a condition: nothing is eligible for such a request. Otherwise it is refused.
    """

    def __init__(
        self, where: Where | Sequence[Where | None] | None, unknown: NDArray[np.int64], *, allow_empty: bool
    ) -> None:
        self._where, self.unknown, self._allow_empty = _checked_where(where, len(unknown)), unknown, allow_empty

    @abstractmethod
    def check(self) -> None:
        """Raise for a condition that would be refused, whichever request has it, before any is answered."""

    @abstractmethod
    def eligibility_of(self, requests: Sequence[int]) -> Eligibility | None:
        """Return the items that these requests may get, in this order; None if all may get every item.

        A condition that no item meets is refused, unless that is allowed.
        """

    def eligibility(self, start: int, stop: int) -> Eligibility | None:
        """Return the items that the requests from ``start`` to ``stop`` may get; see `eligibility_of`."""
        return self.eligibility_of(range(start, stop))

    def _each(self, requests: Sequence[int], evaluate: Callable[[Where], T]) -> list[T | None]:
        """Evaluate the condition of each of these requests; None for those without one."""
        where = self._where
        if where is None:
            return [None] * len(requests)
        if isinstance(where, Mapping):
            return [evaluate(where)] * len(requests)
        found: list[T | None] = []
        for i in requests:
            one = where[i]
            try:
                found.append(None if one is None else evaluate(one))
            except InvalidInputError as error:
                raise InvalidInputError(f"request {i}: {error}") from None
        return found


def _checked_where(where: Where | Sequence[Where | None] | None, n: int) -> Where | Sequence[Where | None] | None:
    if where is None or isinstance(where, Mapping):
        return where
    if isinstance(where, str | bytes) or not isinstance(where, Sequence):
        raise InvalidInputError(
            f'where must be a dict such as {{"region": "DE"}}, or one for each request, got {where!r:.80}.'
        )
    if len(where) != n:
        raise InvalidInputError(f"there are {n} requests, and {len(where)} conditions in where.")
    return where


def id_lists(exclude: Exclude, n: int) -> list[Any]:
    """Return the ids that each of n requests excludes, or say what is wrong with them."""
    if type(exclude) not in _LISTS:
        exclude = to_values(exclude)
        if isinstance(exclude, _NO_LISTS) or not isinstance(exclude, Sequence | np.ndarray):
            raise InvalidInputError(f"exclude must be a list of ids for each request, got {exclude!r:.80}.")
    if len(exclude) != n:
        raise InvalidInputError(f"there are {n} requests, and exclude has {len(exclude)} lists of ids.")
    return [one if type(one) in _LISTS else _id_list(one, i) for i, one in enumerate(exclude)]


def _id_list(given: Any, request: int) -> Any:
    one = () if given is None else to_values(given)
    if isinstance(one, _NO_LISTS) or not isinstance(one, Iterable):
        raise InvalidInputError(
            f"exclude must have a list of ids for each request, such as [['item-1'], []], got {one!r:.80} for request"
            f" {request}."
        )
    return one


def joined_ids(lists: Sequence[Any]) -> NDArray[Any]:
    """Return the ids of all lists, one after another, at least one."""
    if all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind in "iuU" for one in lists):
        filled = [one for one in lists if len(one)]
        if len({one.dtype.kind == "U" for one in filled}) == 1:
            return np.concatenate(filled)
    flat = list(chain.from_iterable(one.tolist() if isinstance(one, np.ndarray) else one for one in lists))
    # One look at the types: `check_names` looks at every value, and is needed only to say what is wrong.
    if set(map(type, flat)) == {int} and min(flat) >= -(2**63) and max(flat) < 2**63:
        return np.array(flat, dtype=np.int64)
    return check_names(flat, None, "excluded ids", "id")
