"""The assignment of users to arms, by a hash."""

from __future__ import annotations

import hashlib
from itertools import accumulate
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Shares are written by people, as 0.333: their sum may be off by this.
_TOLERANCE = 1e-6
_BUCKETS = 200
"""Users of an arm fall into this many buckets, the units of its confidence intervals."""


def check_shares(names: Sequence[str], shares: Sequence[float]) -> None:
    """Refuse arms whose names or shares make no sense.

    Examples
    --------
    >>> check_shares(["a", "b"], [0.5, 0.4])
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: the shares of the arms add up to 0.9, not 1: change one of them.
    """
    if len(names) < 2:
        raise InvalidInputError("an A/B test has two arms at least: add another one, or remove it.")
    if len(set(names)) < len(names):
        raise InvalidInputError("two arms have the same name: give each its own.")
    for name, share in zip(names, shares, strict=True):
        if not 0 < share < 1:
            raise InvalidInputError(f"the arm {name!r} has the share {share:g}: it must lie between 0 and 1.")
    if abs(sum(shares) - 1) > _TOLERANCE:
        raise InvalidInputError(f"the shares of the arms add up to {sum(shares):g}, not 1: change one of them.")


class Assignment:
    """Assigns users to arms: the same user always to the same arm, whichever process asks.

    Parameters
    ----------
    experiment
        Name of the experiment. Under another name users are divided anew, independently.
    names, shares
        The arms, and the share of the users that each gets.

    Examples
    --------
    >>> assignment = Assignment("november", ["control", "cheaper"], [0.5, 0.5])
    >>> assignment.arm_of("user 7") == assignment.arm_of("user 7")
    True
    """

    def __init__(self, experiment: str, names: Sequence[str], shares: Sequence[float]) -> None:
        check_shares(names, shares)
        self.experiment, self.names, self.shares = experiment, tuple(names), tuple(shares)
        self._ends = [*list(accumulate(shares))[:-1], 1.0]

    def place_of(self, user: str) -> tuple[int, int]:
        """Return the number of a user's arm, and the bucket of the user in it."""
        digest = hashlib.sha256(f"{self.experiment}\n{user}".encode()).digest()
        point = int.from_bytes(digest[:8]) / 2**64
        arm = next(number for number, end in enumerate(self._ends) if point < end)
        return arm, int.from_bytes(digest[8:12]) % _BUCKETS

    def arm_of(self, user: str) -> str:
        """Return the name of a user's arm."""
        return self.names[self.place_of(user)[0]]

    @property
    def buckets(self) -> int:
        """Number of buckets of an arm."""
        return _BUCKETS

    def to_dict(self) -> dict[str, object]:
        """Return plain values, to recognise the same arms again."""
        return {"experiment": self.experiment, "arms": dict(zip(self.names, self.shares, strict=True))}
