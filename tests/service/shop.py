"""A shop whose promises a dashboard can look at: a real keeper, and a clock that tests turn."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.coordinator import Coordinator
from fairsync.front_end import FrontEnd
from fairsync.groups import Label
from fairsync.service.keeper import Keeper
from fairsync.service.records import PromiseView
from fairsync.windows import Forecast, Promise

K, DIM = 10, 16
RATE = 0.01
# Requests over the hours of a day, next to the mean: few at night, most in the evening.
_HOURS = np.array([3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 11, 12, 13, 12, 11, 11, 12, 14, 17, 19, 18, 14, 9, 5]) / 9.08


class Shop:
    """Keeps promises while a test turns the clock: each turn brings requests."""

    def __init__(self, labels: Sequence[Label], promises: Sequence[Promise], start: datetime, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._seconds = start.timestamp()
        catalog = self._make_catalog(labels)
        forecast = Forecast(RATE, slot=3600).learn(self._month_before(start), start - timedelta(days=28), start)
        coordinator = Coordinator(catalog, K, 0, 1, rolls=False)
        self.keeper = Keeper(
            FrontEnd(catalog, coordinator), coordinator, promises, forecast, clock=lambda: self._seconds
        )

    def turn(self, hours: int, busy: float = 1.0) -> None:
        """Let hours pass, with so much of the usual traffic."""
        for _ in range(hours):
            mean = 3600 * RATE * busy * _HOURS[int(self._seconds) // 3600 % 24]
            self.serve(int(self._rng.poisson(mean)))
            self._seconds += 3600
            self.keeper.look()

    def serve(self, requests: int) -> None:
        """Answer so many requests at once."""
        if requests:
            self.keeper.retrieve(self._rng.normal(size=(requests, DIM)))

    def view(self, label: Label) -> PromiseView:
        """Return the first promise for a group, and where it stands."""
        return next(view for view in self.keeper.promises() if view.group == label)

    def _make_catalog(self, labels: Sequence[Label]) -> Catalog:
        """Return groups of all sizes around centres of their own."""
        codes = np.repeat(np.arange(len(labels)), self._rng.integers(20, 90, size=len(labels)))
        centres = self._rng.normal(size=(len(labels), DIM))
        vectors = centres[codes] + 1.4 * self._rng.normal(size=(len(codes), DIM))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Catalog(vectors, np.array(labels, dtype=object)[codes].tolist())

    def _month_before(self, start: datetime) -> npt.NDArray[np.float64]:
        hours = start.timestamp() - 3600 * np.arange(28 * 24, 0, -1)
        counts = self._rng.poisson(3600 * RATE * _HOURS[(hours // 3600).astype(int) % 24])
        return np.asarray(np.repeat(hours, counts) + self._rng.uniform(0, 3600, size=counts.sum()))


def at(text: str) -> datetime:
    """Read a moment of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
