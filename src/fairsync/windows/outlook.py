"""The outlook of a promise: how its window is likely to end, and since when it is known to fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairsync.windows.moments import read_moment
from fairsync.windows.promise import Promise
from fairsync.windows.window import Span

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True)
class Outlook:
    """How a promise stands in its window under way.

    Attributes
    ----------
    promise : Promise
        What was promised.
    span : Span
        Its window under way.
    exposures : int
        So far in it.
    at_pace : int
        Exposures at its deadline if requests go on bringing as many as so far in the window.
    reachable : int
        Exposures at its deadline, up to the floor, that the expected requests can carry beside all other promises.
    certain : int
        The same for the requests that can be counted on.
    impossible_since : datetime or None
        When a plan first found that the expected requests cannot carry it. It stays for the window, also if
        traffic picks up afterwards: ``possible`` says how things are now.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.windows import Window
    >>> daily = Promise("toys", 100, Window.day("UTC"))
    >>> span = daily.window.at(datetime(2026, 3, 4, 9, tzinfo=UTC))
    >>> outlook = Outlook(daily, span, exposures=20, at_pace=60, reachable=100, certain=80, impossible_since=None)
    >>> outlook.missing, outlook.possible, outlook.at_risk, outlook.shortfall
    (80, True, True, 0)
    """

    promise: Promise
    span: Span
    exposures: int
    at_pace: int
    reachable: int
    certain: int
    impossible_since: datetime | None

    @property
    def missing(self) -> int:
        """Exposures that it still needs."""
        return max(self.promise.floor - self.exposures, 0)

    @property
    def possible(self) -> bool:
        """Whether the expected requests can carry it."""
        return self.shortfall == 0

    @property
    def at_risk(self) -> bool:
        """The early warning: the requests that can be counted on do not carry it."""
        return self.certain < self.promise.floor

    @property
    def shortfall(self) -> int:
        """Exposures by which it is going to fail, as things stand."""
        return max(self.promise.floor - self.reachable, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: what was found, and what follows from it."""
        return {
            "promise": self.promise.to_dict(),
            "span": self.span.to_dict(),
            "exposures": self.exposures,
            "at_pace": self.at_pace,
            "reachable": self.reachable,
            "certain": self.certain,
            "impossible_since": self.impossible_since.isoformat() if self.impossible_since else None,
            "missing": self.missing,
            "possible": self.possible,
            "at_risk": self.at_risk,
            "shortfall": self.shortfall,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outlook:
        """Return what :meth:`to_dict` wrote."""
        since = values["impossible_since"]
        return cls(
            Promise.from_dict(values["promise"]),
            Span.from_dict(values["span"]),
            exposures=int(values["exposures"]),
            at_pace=int(values["at_pace"]),
            reachable=int(values["reachable"]),
            certain=int(values["certain"]),
            impossible_since=read_moment(since, "impossible_since") if since else None,
        )
