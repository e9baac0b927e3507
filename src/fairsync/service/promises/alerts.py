"""Alerts: promises at risk, degraded answers, shards that do not answer, and clock skew."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from fairsync.service.promises.clock import describe_skew
from fairsync.service.promises.shards import describe_lost
from fairsync.service.schema import Alert
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fairsync.service.schema import PromiseView, ShardView

# An alert that was not raised for this long has ended; if it is raised again, it begins again.
_ENDED_AFTER = timedelta(minutes=5)
# Share of degraded answers that is worth an alert.
_DEGRADED = 0.001


class Alerts:
    """Raises alerts, and remembers since when each has been raised."""

    def __init__(self) -> None:
        self._raised: dict[str, tuple[datetime, datetime]] = {}

    def now(
        self,
        now: datetime,
        promises: Sequence[PromiseView],
        *,
        degraded: float = 0.0,
        shards: Sequence[ShardView] = (),
        clock_skew: float = 0.0,
        budget: str = "",
    ) -> list[Alert]:
        """Return the alerts of this moment.

        Parameters
        ----------
        now
            The time.
        promises
            All promises with their states.
        degraded
            Share of recent answers that lacked a part of the catalog.
        shards
            The shards of the index.
        clock_skew
            Seconds by which the wall clock is ahead of the service.
        budget
            Which promises give way to the budget, and why; empty if none does.
        """
        alerts = [self._promise_alert(view, now) for view in promises if _is_missed(view, now)]
        if degraded > _DEGRADED:
            message = f"{degraded:.1%} of recent answers lacked a part of the catalog."
            alerts.append(Alert(kind="degraded", message=message, since=self._since("degraded", now)))
        if not all(one.up for one in shards):
            alerts.append(Alert(kind="shard", message=describe_lost(shards), since=self._since("shard", now)))
        if clock_skew:
            message = f"{describe_skew(clock_skew).capitalize()}."
            alerts.append(Alert(kind="clock", message=message, since=self._since("clock", now)))
        if budget:
            alerts.append(Alert(kind="budget", message=budget, since=self._since("budget", now)))
        return alerts

    def _promise_alert(self, view: PromiseView, now: datetime) -> Alert:
        end = f"{view.end.astimezone(ZoneInfo(view.window.zone)):%Y-%m-%d %H:%M} ({view.window.zone})"
        return Alert(
            kind="impossible" if view.state == "impossible" else "at risk",
            group=view.group,
            promise=view.id,
            name=view.name,
            message=f"The promise to {view.name if view.group is None else view.group} until {end} {_problem(view)}.",
            since=view.impossible_since or self._since(f"{view.state} {view.id}", now),
        )

    def _since(self, name: str, now: datetime) -> datetime:
        """Return since when an alert has been raised."""
        known = self._raised.get(name)
        began = now if known is None or now - known[1] > _ENDED_AFTER else known[0]
        self._raised[name] = (began, now)
        return began


def _is_missed(view: PromiseView, now: datetime) -> bool:
    return view.state in ("impossible", "at risk") and view.end > now


def _problem(view: PromiseView) -> str:
    """Say what is wrong with a promise."""
    if view.state == "at risk":
        return f"is at risk: {view.reason}" if view.reason else "will be missed if traffic stays low"
    if view.cap is not None and view.exposures > view.cap:
        return f"has {view.exposures:,} exposures, more than {view.cap:,}"
    if view.reason and not view.shortfall:
        return f"cannot be kept: {view.reason}"
    return f"will miss {view.shortfall:,.0f} of {count(view.floor, 'exposure')}"
