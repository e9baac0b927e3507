"""Leader election: which of several replicas on one ledger plans for all of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds between two polls for the state that the leader is about to save.
_POLL_SECONDS = 0.1


class Electable(Protocol):
    """A coordinator, as far as leader election is concerned."""

    def lead(self, *, take: bool = False) -> bool:
        """Return whether this replica leads; with `take`, take the lead from another one if need be."""
        ...


class Leadership:
    """Whether this replica leads, and whether it was elected just now.

    A replica that has a ledger to itself always leads. If the leader dies another replica is elected, and a replica
    that is asked to change a promise takes the lead.

    Parameters
    ----------
    coordinator
        Knows who leads.

    Attributes
    ----------
    is_leader : bool
        The outcome of the last election.

    Examples
    --------
    >>> class Alone:
    ...     def lead(self, *, take=False):
    ...         return True
    >>> leadership = Leadership(Alone())
    >>> leadership.is_leader, leadership.was_elected()
    (True, False)
    """

    def __init__(self, coordinator: Electable) -> None:
        self._coordinator = coordinator
        self.is_leader = coordinator.lead()

    def wait_for_state(self, is_saved: Callable[[], bool]) -> None:
        """Wait until the leader has saved its first state, or this replica leads."""
        while not self.is_leader and not is_saved():
            time.sleep(_POLL_SECONDS)
            self.is_leader = self._coordinator.lead()

    def was_elected(self, *, take: bool = False) -> bool:
        """Renew the lead, or stand for election; return whether this replica leads now and did not before."""
        led, self.is_leader = self.is_leader, self._coordinator.lead(take=take)
        return self.is_leader and not led
