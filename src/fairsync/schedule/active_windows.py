"""The agenda: which promises are under way at a moment, until when, and which come next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.inputs import check_positive
from fairsync.schedule.datetimes import check_aware
from fairsync.schedule.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule.promise import Promise
    from fairsync.schedule.seasonal_profile import Floats, Ints
    from fairsync.schedule.window import Span, Window


@dataclass(frozen=True)
class ActiveWindows:
    """Promises at a moment.

    Attributes
    ----------
    now : datetime
        The moment, in UTC.
    promises : tuple of Promise
        Those under way or still to come.
    spans : tuple of Span or None
        The window of each that is under way; None where it is still to come.
    end : datetime
        Where the present *tick* ends: the nearest moment at which any window ends or begins, so that no count has to be
        split. If there is none, the full hour.
    deadlines : tuple of datetime
        The end of the tick, and all later ends of windows under way.
    labels : tuple
        Labels of the groups that are promised something.
    caps : numpy.ndarray
        (G,) the most exposures of each that one request can hold.
    k : int
        Candidates per request.
    shares : numpy.ndarray
        (G,) which part of the exposures that are handed out counts.
    """

    now: datetime
    promises: tuple[Promise, ...]
    spans: tuple[Span | None, ...]
    end: datetime
    deadlines: tuple[datetime, ...]
    labels: tuple[Label, ...]
    caps: Ints
    k: int
    shares: Floats

    @classmethod
    def of(
        cls,
        promises: Iterable[Promise],
        now: datetime,
        k: int,
        caps: Mapping[Label, int],
        shares: Mapping[Label, float] | None = None,
    ) -> ActiveWindows:
        """Return the agenda of promises at a moment, or say what is wrong with them.

        Examples
        --------
        >>> from datetime import UTC, date, datetime
        >>> from fairsync.schedule import Promise, Window
        >>> daily = Promise("toys", 100, Window.day("UTC"))
        >>> sale = Promise("toys", 900, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
        >>> active = ActiveWindows.of([daily, sale], datetime(2026, 3, 4, 9, tzinfo=UTC), k=20, caps={"toys": 20})
        >>> active.end.isoformat(), len(active.deadlines)
        ('2026-03-05T00:00:00+00:00', 2)
        """
        now, k = check_aware(now, "now"), check_positive(k, "k")
        every = tuple(dict.fromkeys(promises))
        unknown = [promise.group for promise in every if promise.group not in caps]
        if unknown:
            raise UnknownGroupError(list(dict.fromkeys(unknown)), list(caps))
        labels = tuple(dict.fromkeys(promise.group for promise in every))
        for label in labels:
            if not 0 <= caps[label] <= k:
                raise InvalidInputError(f"the cap of group {label!r} is {caps[label]}: give min(k, items), 0 to {k}.")
        at = {promise: promise.window.at(now) for promise in every}
        next_of = {promise: promise.window.after(now) for promise in every if at[promise] is None}
        active = tuple(promise for promise in every if at[promise] or next_of[promise])
        spans = tuple(at[promise] for promise in active)
        edges = [span.end for span in spans if span] + [span.start for span in next_of.values() if span]
        full_hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        end = min(edges, default=full_hour)
        deadlines = tuple(sorted({end} | {span.end for span in spans if span}))
        sizes = np.array([int(caps[label]) for label in labels], dtype=np.int64)
        parts = np.array([1.0 if shares is None else shares.get(label, 1.0) for label in labels])
        if not ((parts > 0) & (parts <= 1)).all():
            raise InvalidInputError("the shares of exposures that count must lie above 0 and at most at 1.")
        return cls(now, active, spans, end, deadlines, labels, sizes, k, parts)

    def to_hand_out(self, counting: Sequence[int]) -> Ints:
        """Return (P,) the exposures that must be handed out so that so many count for each promise."""
        # A whole number that arithmetic made a hair too large stays what it is.
        needed: Ints = np.ceil(np.array(counting) / self._share_of_each() - 1e-6).astype(np.int64)
        return needed

    def that_count(self, handed_out: Ints) -> list[int]:
        """Return (P,) how many exposures count for each promise if so many are handed out."""
        counting: list[int] = np.floor(handed_out * self._share_of_each() + 1e-6).astype(np.int64).tolist()
        return counting

    def requirements(self, missing: Sequence[int], requests: Sequence[int]) -> Requirements:
        """Return what must be handed out, given what each promise misses and the requests until each deadline."""
        code = {label: place for place, label in enumerate(self.labels)}
        order = {deadline: place for place, deadline in enumerate(self.deadlines)}
        here = list(zip(self.promises, self.spans, strict=True))
        later = [
            [_count(promise.window, span.end if span else self.now, deadline) for deadline in self.deadlines]
            for promise, span in here
        ]
        return Requirements(
            group=np.array([code[promise.group] for promise in self.promises], dtype=np.int64),
            missing=self.to_hand_out(missing),
            floor=self.to_hand_out([promise.floor for promise in self.promises]),
            place=np.array([order[span.end] if span else 0 for span in self.spans], dtype=np.int64),
            later=np.array(later, dtype=np.int64).reshape(len(here), len(self.deadlines)),
            requests=np.maximum.accumulate(np.array(requests, dtype=np.int64)),
            caps=self.caps,
            k=self.k,
        )

    def _share_of_each(self) -> Floats:
        share = dict(zip(self.labels, self.shares.tolist(), strict=True))
        return np.array([share[promise.group] for promise in self.promises], dtype=np.float64)


@lru_cache(maxsize=4096)
def _count(window: Window, start: datetime, end: datetime) -> int:
    return sum(1 for _ in window.between(start, end))
