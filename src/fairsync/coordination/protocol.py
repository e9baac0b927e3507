"""The part of a coordinator that front ends use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Label
    from fairsync.coordination.lease import Lease, Settlement
    from fairsync.promises import Promise


class CoordinatorProtocol(Protocol):
    """The part of a coordinator that front ends use, in this process or another."""

    @property
    def labels(self) -> Sequence[Label]: ...  # noqa: D102

    @property
    def promises(self) -> tuple[Promise, ...] | None: ...  # noqa: D102

    @property
    def k(self) -> int: ...  # noqa: D102

    def lease(self, n: int) -> Lease:
        """Lease up to n requests. Blocks while granting them could make a floor unreachable."""
        ...

    def settle(self, number: int, settlement: Settlement) -> object:
        """Record the counts of a lease, and answers by request id. Idempotent: settling again changes nothing."""
        ...

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; see `Ledger.answers`."""
        ...

    def save_answers(self, answers: Mapping[str, bytes]) -> None:
        """Save answers that do not count, by request id. Raises `RepeatedRequestError` if some are known."""
        ...

    def release(self, number: int) -> None:
        """Return a lease that was not answered. Its requests can be leased again."""
        ...
