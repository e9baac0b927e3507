"""What a coordinator needs of its books: they may be its own, or shared with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Grouped, Groups
    from fairsync.coordination.books import Lease, LoopState, PriceState
    from fairsync.ledger import Entry, Totals
    from fairsync.policies import Sample, Terms


class StateStore(Protocol):
    """Books as they are now, and how a change of them is made or agreed on. One thread at a time."""

    groups: Groups
    terms: Terms
    pricing: PriceState

    @property
    def present(self) -> LoopState:
        """Accounts and prices together."""
        ...

    def look(self) -> None:
        """Go by what others have written."""
        ...

    def past(self) -> Sequence[Totals]:
        """Return how the horizons before have ended."""
        ...

    def pause(self, tries: int) -> float:
        """Return after how many seconds it is worth to try once more."""
        ...

    def lease(self, n: int) -> Lease | None:
        """Hand out up to n requests; None if that has to wait for leases that are out."""
        ...

    def settle(self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes]) -> bool:
        """Write down what came of a lease; return False if that was done before."""
        ...

    def note(self, entry: Entry, receipt: str) -> bool:
        """Write down something that belongs to no lease; return False if that was done under this receipt."""
        ...

    def release(self, number: int) -> None:
        """Take a lease back that will hardly be answered."""
        ...

    def following(self, groups: Grouped) -> Groups:
        """Return the groups of a catalog, if they begin with those that are known."""
        ...

    def promise(self, groups: Groups, terms: Terms, *, patient: bool) -> bool:
        """Go by another promise, if it can be kept; False if that is to be tried again as things stand then."""
        ...

    def set_targets(self, groups: Groups, more: NDArray[np.int64], requests: int, anew: float | None = None) -> bool:
        """Aim at so many exposures more; False if that is to be tried again as things stand then."""
        ...
