"""How much of what is retrieved is really shown: to aim at what must be retrieved for so much to be shown."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# As many retrieved candidates of a group as its own share of shown ones must rest on, to weigh as much as that of all.
_PRIOR = 50.0
_LEAST_SHARE = 0.01


class ShownShare:
    """Learns the share of candidates that are shown, of each group, from the totals of both as time goes by.

    Reports come late. What was retrieved within the last ``within`` seconds is taken to be still on its way: it is not
    held against the share, and is expected to bring its part.

    Parameters
    ----------
    within
        Seconds within which a report is expected, if it comes at all.
    """

    def __init__(self, within: float) -> None:
        self._within = within
        self._retrieved: deque[tuple[float, NDArray[np.int64]]] = deque()
        self._shown: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def look(self, now: float, retrieved: NDArray[np.int64], shown: NDArray[np.int64]) -> None:
        """Take in the totals (G,) of what was ever retrieved and shown, at a moment."""
        self._shown = shown
        if len(self._retrieved) > 1 and now - self._retrieved[-2][0] < self._within / 60:
            self._retrieved.pop()
        self._retrieved.append((now, retrieved))
        while len(self._retrieved) > 1 and self._retrieved[1][0] <= now - self._within:
            self._retrieved.popleft()

    def needed(self, missing: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (G,) how many must be retrieved so that so many more are shown, beside those on their way.

        Examples
        --------
        >>> share = ShownShare(within=60.0)
        >>> share.look(0.0, np.array([10**6, 10**6]), np.array([5 * 10**5, 10**6]))
        >>> share.needed(np.array([10, 10])).tolist()
        [20, 10]
        """
        shares = self.shares(len(missing))
        due = missing - self._pending(len(missing)) * shares
        return np.ceil(np.maximum(due, 0) / shares - 1e-3).astype(np.int64)

    def shares(self, n_groups: int) -> NDArray[np.float64]:
        """Return (G,) the share that is shown; of a group of which little is known, nearly that of all."""
        if not self._retrieved:
            return np.ones(n_groups)
        shown = _grown(self._shown, n_groups)
        reported = np.maximum(_grown(self._retrieved[0][1], n_groups), shown)
        # Before anything has come back, everything is taken to be shown: asking for more would be a guess.
        overall = (shown.sum() + _PRIOR) / (reported.sum() + _PRIOR)
        shares: NDArray[np.float64] = np.clip((shown + _PRIOR * overall) / (reported + _PRIOR), _LEAST_SHARE, 1.0)
        return shares

    def _pending(self, n_groups: int) -> NDArray[np.int64]:
        """Return (G,) candidates on which reports may still come."""
        if not self._retrieved:
            return np.zeros(n_groups, dtype=np.int64)
        return _grown(self._retrieved[-1][1], n_groups) - _grown(self._retrieved[0][1], n_groups)


def _grown(counts: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n_groups - len(counts), dtype=np.int64)])
