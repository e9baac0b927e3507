"""Groups without their items: all that floors, prices and counts are about."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.errors import UnknownGroupError

Label: TypeAlias = str | int


class Grouped(Protocol):
    """Anything that has groups of known sizes: a catalog, or its groups alone."""

    @property
    def labels(self) -> list[Label]:
        """The group labels, in the order of their codes."""
        ...

    @property
    def group_sizes(self) -> npt.NDArray[np.int64]:
        """(G,) how many items each group has."""
        ...

    def code_of(self, label: object) -> int:
        """Return the code of a group label."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Groups:
    """The groups of a catalog: small enough to be sent anywhere.

    Attributes
    ----------
    labels : list
        In the order of their codes.
    group_sizes : numpy.ndarray
        (G,) how many items each has.

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

    def __len__(self) -> int:
        """Return how many items there are in all."""
        return int(self.group_sizes.sum())
