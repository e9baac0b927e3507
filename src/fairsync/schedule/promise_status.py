"""Promise status: the progress of a promise in its active window, and how the window is likely to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairsync.schedule.datetimes import parse_aware
from fairsync.schedule.promise import ScheduledPromise
from fairsync.schedule.window import Span

if TYPE_CHECKING:
    from datetime import datetime

# Attributes and properties of a status that are numbers or truth values, and those that are moments.
_NUMBERS = ("exposures", "at_pace", "reachable", "certain", "foreseen", "floor", "cap", "requests")
_DERIVED = ("missing", "possible", "at_risk", "shortfall")
_MOMENTS = ("at_risk_since", "impossible_since", "unlimited_since")


@dataclass(frozen=True)
class PromiseStatus:
    """The status of a promise in its active window.

    Attributes
    ----------
    promise : ScheduledPromise
        The promise.
    span : Span
        Its active window.
    exposures : int
        Exposures in the window so far.
    at_pace : int
        Projected exposures at the deadline, if each request brings as many as those of the window so far.
    reachable : int
        Exposures at the deadline, up to the floor, that expected traffic can deliver beside all other promises.
    certain : int
        The same for the lower bound of the traffic.
    at_risk_since : datetime or None
        When a plan first found that the lower bound of the traffic cannot deliver the floor.
    impossible_since : datetime or None
        When a plan first found that expected traffic cannot deliver the floor. Both moments are kept until the window
        ends, even if traffic recovers; ``possible`` and ``at_risk`` describe the present.
    foreseen : int
        The shortfall that was predicted at ``impossible_since``.
    floor : int
        The floor of the window. That of a share follows from the requests so far and those expected.
    cap : int or None
        The cap of the window, likewise; None without one.
    requests : int
        Requests in the window so far, as far as they were given to the plan.
    gives_way_to : tuple of ScheduledPromise
        Promises because of which expected traffic cannot deliver the floor.
    unlimited_since : datetime or None
        Since when its limit per list was left out, because lists could not be filled under it, or because it crossed
        another one. It is kept until the window ends.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Window
    >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
    >>> span = daily.window.at(datetime(2026, 3, 4, 9, tzinfo=UTC))
    >>> status = PromiseStatus(daily, span, exposures=20, at_pace=60, reachable=100, certain=80)
    >>> status.missing, status.possible, status.at_risk, status.shortfall
    (80, True, True, 0)
    """

    promise: ScheduledPromise
    span: Span
    exposures: int
    at_pace: int
    reachable: int
    certain: int
    at_risk_since: datetime | None = None
    impossible_since: datetime | None = None
    foreseen: int = 0
    floor: int = -1
    cap: int | None = None
    requests: int = 0
    gives_way_to: tuple[ScheduledPromise, ...] = ()
    unlimited_since: datetime | None = None

    def __post_init__(self) -> None:
        if self.floor < 0:
            object.__setattr__(self, "floor", self.promise.promise.floor(0))

    @property
    def missing(self) -> int:
        """Exposures that the floor still needs."""
        return max(self.floor - self.exposures, 0)

    @property
    def possible(self) -> bool:
        """Whether expected traffic can deliver the floor."""
        return self.shortfall == 0

    @property
    def at_risk(self) -> bool:
        """Early warning: whether the lower bound of the traffic cannot deliver the floor."""
        return self.certain < self.floor

    @property
    def shortfall(self) -> int:
        """Exposures by which the promise is predicted to miss its floor."""
        return max(self.floor - self.reachable, 0)

    def carry_over(self, before: PromiseStatus | None, now: datetime) -> PromiseStatus:
        """Return this status with the warnings of an earlier one, or with new warnings from ``now`` on.

        Examples
        --------
        >>> from datetime import UTC, datetime
        >>> from fairsync.schedule import Window
        >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
        >>> noon = datetime(2026, 3, 4, 12, tzinfo=UTC)
        >>> bad = PromiseStatus(daily, daily.window.at(noon), exposures=20, at_pace=40, reachable=70, certain=50)
        >>> earlier = bad.carry_over(None, noon)
        >>> better = PromiseStatus(daily, daily.window.at(noon), exposures=60, at_pace=90, reachable=100, certain=95)
        >>> later = better.carry_over(earlier, noon.replace(hour=18))
        >>> later.possible, later.impossible_since == noon, later.foreseen
        (True, True, 30)
        """
        unlimited = (before.unlimited_since if before else None) or self.unlimited_since
        at_risk = (before.at_risk_since if before else None) or (now if self.at_risk or not self.possible else None)
        impossible, foreseen = None if self.possible else now, self.shortfall
        if before and before.impossible_since:
            impossible, foreseen = before.impossible_since, before.foreseen
        return replace(
            self, at_risk_since=at_risk, impossible_since=impossible, foreseen=foreseen, unlimited_since=unlimited
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary of the attributes and the derived properties."""
        moments = {name: getattr(self, name) for name in _MOMENTS}
        return {
            "promise": self.promise.to_dict(),
            "span": self.span.to_dict(),
            **{name: getattr(self, name) for name in (*_NUMBERS, *_DERIVED)},
            **{name: None if moment is None else moment.isoformat() for name, moment in moments.items()},
            "gives_way_to": [one.to_dict() for one in self.gives_way_to],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], attribute: str = "group") -> PromiseStatus:
        """Return the object that :meth:`to_dict` describes; see :meth:`ScheduledPromise.from_dict`."""
        # Plans that older versions stored do not have all of these keys.
        known: dict[str, Any] = {name: values[name] for name in _NUMBERS if name in values}
        known |= {name: parse_aware(values[name], name) for name in _MOMENTS if values.get(name)}
        return cls(
            ScheduledPromise.from_dict(values["promise"], attribute),
            Span.from_dict(values["span"]),
            **known,
            gives_way_to=tuple(ScheduledPromise.from_dict(one, attribute) for one in values.get("gives_way_to", ())),
        )
