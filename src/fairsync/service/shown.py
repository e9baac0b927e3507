"""How much of what is retrieved is really shown: to aim at what must be retrieved for so much to be shown."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# As many retrieved candidates of a group as its own share of shown ones must rest on, to weigh as much as that of all.
_PRIOR = 50.0
_LEAST_SHARE = 0.01


@dataclass
class ShownShare:
    """Learns the share of candidates that are shown, of each group.

    Reports come late. What was retrieved within the last ``within`` seconds is taken to be still on its way: it is not
    held against the share, and is expected to bring its part.

    Attributes
    ----------
    within : float
        Seconds within which a report is expected, if it comes at all.
    retrieved, shown : numpy.ndarray
        (G,) of which reports should have come, and have.
    """

    within: float
    retrieved: NDArray[np.float64]
    shown: NDArray[np.float64]
    _pending: deque[tuple[float, NDArray[np.int64]]] = field(default_factory=deque)

    @classmethod
    def of(cls, n_groups: int, within: float) -> ShownShare:
        """Return one that has learnt nothing yet."""
        return cls(within, np.zeros(n_groups), np.zeros(n_groups))

    def note_retrieved(self, now: float, counts: NDArray[np.int64]) -> None:
        """Take in candidates that have just been retrieved."""
        if self._pending and now - self._pending[-1][0] < self.within / 60:
            at, before = self._pending.pop()
            counts, now = before + counts, at
        self._pending.append((now, counts))
        self.settle(now)

    def note_shown(self, counts: NDArray[np.int64]) -> None:
        """Take in a report."""
        self.shown[: len(counts)] += counts

    def settle(self, now: float) -> None:
        """Give up waiting for reports on what was retrieved long ago."""
        while self._pending and self._pending[0][0] <= now - self.within:
            counts = self._pending.popleft()[1]
            self.retrieved[: len(counts)] += counts

    def grow(self, n_groups: int) -> None:
        """Go on with more groups."""
        more = np.zeros(n_groups - len(self.shown))
        self.retrieved, self.shown = np.concatenate([self.retrieved, more]), np.concatenate([self.shown, more])

    def shares(self) -> NDArray[np.float64]:
        """Return (G,) the share that is shown; of a group of which little is known, nearly that of all."""
        # Before anything has come back, everything is taken to be shown: asking for more would be a guess.
        overall = (self.shown.sum() + _PRIOR) / (max(self.retrieved.sum(), self.shown.sum()) + _PRIOR)
        reached = np.maximum(self.retrieved, self.shown)
        shares: NDArray[np.float64] = np.clip((self.shown + _PRIOR * overall) / (reached + _PRIOR), _LEAST_SHARE, 1.0)
        return shares

    def pending(self) -> NDArray[np.int64]:
        """Return (G,) candidates on which reports may still come."""
        total = np.zeros(len(self.shown), dtype=np.int64)
        for _, counts in self._pending:
            total[: len(counts)] += counts
        return total

    def needed(self, missing: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (G,) how many must be retrieved so that so many more are shown, beside those on their way.

        Examples
        --------
        >>> share = ShownShare(60.0, retrieved=np.array([1e6, 1e6]), shown=np.array([5e5, 1e6]))
        >>> share.needed(np.array([10, 10])).tolist()
        [20, 10]
        """
        shares = self.shares()
        return np.ceil(np.maximum(missing - self.pending() * shares, 0) / shares - 1e-3).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        settled = self.retrieved + self.pending()
        return {"retrieved": settled.tolist(), "shown": self.shown.tolist()}

    def restore(self, values: dict[str, Any]) -> None:
        """Take up what :meth:`to_dict` wrote."""
        n = len(values["shown"])
        self.retrieved[:n], self.shown[:n] = values["retrieved"], values["shown"]
