"""What promises cost, estimated before they are made: by keeping them on the requests that came last."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.search import Index

# Enough for a price of each group, few enough to be searched within a second.
_REQUESTS = 256


@dataclass(frozen=True)
class Estimate:
    """What floors cost per request, and as a share of the relevance without any."""

    cost: float
    share: float


class RecentRequests:
    """The requests that came last, to try promises on."""

    def __init__(self) -> None:
        self._users: deque[NDArray[np.floating[Any]]] = deque(maxlen=_REQUESTS)
        self._lock = threading.Lock()

    def add(self, users: NDArray[np.floating[Any]]) -> None:
        """Remember some of these requests."""
        with self._lock:
            self._users.extend(users[-16:])

    def estimate(self, catalog: Catalog, index: Index, k: int, rates: Mapping[Label, float]) -> Estimate | None:
        """Return the cost of giving each group so many exposures per request; None if too few requests are known."""
        with self._lock:
            interests = max((len(user) for user in self._users), default=0)
            users = [user for user in self._users if len(user) == interests]
        if len(users) < _REQUESTS // 4:
            return None
        vectors, n = np.stack(users), len(users)
        sizes = dict(zip(catalog.labels, catalog.group_sizes.tolist(), strict=True))
        floors: dict[Label, int] = {
            label: min(math.ceil(rate * n), n * min(k, sizes[label])) for label, rate in rates.items()
        }
        if sum(floors.values()) > n * k:
            return None
        plain = FairRetriever(catalog, k=k, floors=0, horizon=n, policy="none", index=index)
        plain.retrieve(vectors)
        kept = FairRetriever(catalog, k=k, floors=floors, horizon=n, index=index).calibrate(vectors)
        kept.retrieve(vectors)
        most = plain.report().relevance
        given_up = max(most - kept.report().relevance, 0.0)
        return Estimate(given_up / n, given_up / abs(most) if most else 0.0)
