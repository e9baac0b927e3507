"""Groups without their items, and arrays with one value per group."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fairsync.errors import UnknownGroupError

Label: TypeAlias = str | int

_Number = TypeVar("_Number", np.int64, np.float64, np.bool_)


class Grouped(Protocol):
    """Anything that has groups of known sizes: a catalog, or its groups alone."""

    @property
    def labels(self) -> list[Label]:
        """The group labels, in the order of their codes."""
        ...

    @property
    def group_sizes(self) -> npt.NDArray[np.int64]:
        """(G,) the number of items of each group."""
        ...

    def code_of(self, label: object) -> int:
        """Return the code of a group label."""
        ...

    def attribute_of(self, label: object) -> str | None:
        """Return an attribute other than the group that has this label; None if none is known."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Groups:
    """The groups of a catalog: labels and sizes, small enough to be sent to another process.

    Attributes
    ----------
    labels : list
        The group labels, in the order of their codes.
    group_sizes : numpy.ndarray
        (G,) the number of items of each group.

    Examples
    --------
    >>> groups = Groups(["toys", "books"], np.array([10, 20]))
    >>> groups.code_of("books"), len(groups)
    (1, 30)
    """

    labels: list[Label]
    group_sizes: npt.NDArray[np.int64]

    @cached_property
    def _codes(self) -> dict[Label, int]:
        return {label: code for code, label in enumerate(self.labels)}

    def code_of(self, label: object) -> int:
        """Return the code of a group label, or raise `UnknownGroupError` with close labels."""
        plain = label.item() if isinstance(label, np.generic) else label
        # True == 1 in Python, but a bool is no label.
        code = None if isinstance(plain, bool) or not isinstance(plain, str | int) else self._codes.get(plain)
        if code is None:
            raise UnknownGroupError([plain], self.labels)
        return code

    def attribute_of(self, label: object) -> str | None:
        """Return None: these are the groups alone."""
        return None

    def __len__(self) -> int:
        """Return the number of items in all groups."""
        return int(self.group_sizes.sum())


def grow(values: npt.NDArray[_Number], n_groups: int) -> npt.NDArray[_Number]:
    """Return values by group, padded with zeros for groups that were added later.

    Examples
    --------
    >>> grow(np.array([1.5, 2.0]), 3).tolist()
    [1.5, 2.0, 0.0]
    """
    return np.concatenate([values, np.zeros(n_groups - len(values), dtype=values.dtype)])
