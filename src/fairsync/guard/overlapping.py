"""The guard for promises that overlap, have caps or limit single lists: one request after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.guard.asked import AskedSlots, exceeds_declared
from fairsync.guard.fitting import fitted, relocate
from fairsync.guard.forced_list import compose
from fairsync.guard.open_list import OpenList
from fairsync.promises.shown import Shown
from fairsync.search.base import Hits

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.eligibility.eligible_slots import CountedSlots, SlotForecast
    from fairsync.guard.live_certificate import LiveCertificate
    from fairsync.guard.price_limits import PriceLimits
    from fairsync.policies.base import Counts, Floats, Terms
    from fairsync.search.eligibility import Eligibility


@dataclass
class OverlapGuard:
    """Chooses the candidates of requests one after another; the parameters are those of `keep_promises`.

    Attributes
    ----------
    certificate : LiveCertificate
        The certificate before the next request.
    left : int
        Requests left in the horizon, the next one included.
    forced : int
        Slots that the second rule has filled so far.
    """

    search: Callable[[int, Floats, int], Hits]
    catalog: Catalog
    terms: Terms
    prices: Floats
    promise_prices: Floats
    hits: Hits
    k: int
    certificate: LiveCertificate
    left: int
    eligible: Eligibility | None = None
    forecast: SlotForecast | None = None
    replaced: dict[int, tuple[NDArray[np.int64], Floats]] | None = None
    fixed: NDArray[np.bool_] | None = None
    forced: int = 0
    limits: PriceLimits | None = None

    def keep(self) -> Hits:
        """Return the candidates of all requests."""
        rows, relevance = self.hits.rows[:, : self.k].copy(), self.hits.relevance[:, : self.k].copy()
        limited = None if self.eligible is None else exceeds_declared(self.eligible, self.terms)
        for i in range(len(rows)):
            self.left -= 1
            self._apply_first_rule(i, rows[i], relevance[i])
            self._apply_second_rule(i, rows[i], relevance[i], may_lack=limited is not None and bool(limited[i]))
        return Hits(rows, relevance, self.hits.reached)

    def _apply_first_rule(self, i: int, rows: NDArray[np.int64], relevance: Floats) -> None:
        """Put the best list in place if a subsidy ends within the list of prices, or if that breaks a list limit."""
        if self.fixed is not None and self.fixed[i]:
            return
        given = self.certificate.exposures(Shown.of(rows, self.catalog.group_of))
        ends = (given > self.certificate.missing) & (self.promise_prices < 0)
        if ends.any() or self._breaks_limits(given):
            chosen = OpenList(self.catalog, self.certificate, self.promise_prices, self.k, keeps_caps=False)
            self._fill(i, chosen)
            chosen.write(rows, relevance)

    def _fill(self, i: int, chosen: OpenList) -> None:
        """Fill a list with the best items that it admits; where these are too few, with others."""
        is_open = True
        while is_open and not chosen.is_full:
            chosen.fill(self.hits.rows[i], self.hits.relevance[i], self.prices, lambda p, n: self.search(i, p, n))
            is_open = chosen.relax()

    def _breaks_limits(self, given: Counts) -> bool:
        limits = self.terms.limits_of_any_list
        return limits is not None and bool((given > limits).any())

    def _apply_second_rule(self, i: int, rows: NDArray[np.int64], relevance: Floats, *, may_lack: bool) -> None:
        """Put another list in place if this one is not safe, and count it."""
        own = self._own(i)
        counted = None if self.forecast is None or own is None else self.forecast.counted(self.left)
        lost = self._lost(own)
        if lost is not None:
            self.certificate.lower(lost)
        shown = Shown.of(rows, self.catalog.group_of)
        while not self._is_kept(shown, own, counted):
            before = None if self.limits is None else self.certificate.copy()
            chosen = OpenList(self.catalog, self.certificate, self.promise_prices, self.k)
            asked = None if counted is None else self._asked(self.certificate, own, counted)
            lacks = may_lack or self.hits.reached is not None or not self.certificate.is_deliverable(self.left + 1)
            self._compose(i, chosen, rows, relevance, asked, may_lack=lacks)
            if self.limits is not None and before is not None:
                too_dear = self.limits.too_dear(before, rows, relevance, chosen)
                if too_dear is not None:
                    self.certificate = before
                    self.limits.give_way(before, too_dear)
                    continue
            if self.replaced is not None:
                self.replaced[i] = rows.copy(), relevance.copy()
            listed = set(rows.tolist())
            chosen.write(rows, relevance)
            self.forced += len(set(rows.tolist()) - listed)
            shown = chosen.shown()
            break
        self.certificate.record(shown)
        if lost is not None:
            self.certificate.lower(-lost)
            self.certificate.keep_caps()

    def _own(self, i: int) -> Counts | None:
        """Return (A,) what request i can show of each atom; None for what was declared."""
        if self.eligible is None and self.forecast is None and not self.terms.max_exclude:
            return None
        sizes, reached = self.catalog.group_sizes, self.hits.reached
        if self.eligible is not None:
            sizes = self.eligible.group_sizes(i, self.catalog)
        return np.minimum(self.terms.at_home(sizes if reached is None else np.minimum(sizes, reached)), self.k)

    def _lost(self, own: Counts | None) -> Counts | None:
        """Return (A,) what is planned but cannot be shown any more, nor anything in its place; None for nothing.

        An outage or a condition came too late for it.
        """
        capacities = self.terms.capacities
        if self.certificate.fits(self.left if own is not None else self.left + 1):
            return None
        possible = (self.left + 1) * capacities if own is None else self.left * capacities + own
        lost: Counts = np.maximum(self.certificate.plan - possible, 0)
        if not lost.any():
            return None
        relocate(self.certificate, lost, self.left)
        np.maximum(self.certificate.plan - possible, 0, out=lost)
        return lost

    def _asked(self, certificate: LiveCertificate, own: Counts | None, counted: CountedSlots) -> AskedSlots:
        assert own is not None
        return AskedSlots.of(certificate.plan, own, counted, self.k)

    def _is_kept(self, shown: Shown, own: Counts | None, counted: CountedSlots | None) -> bool:
        """Return whether a list is safe, after fitting the certificate to it if need be."""

        def is_fine(certificate: LiveCertificate) -> bool:
            if not certificate.is_safe(shown, self.left):
                return False
            if counted is None:
                return True
            asked = self._asked(certificate, own, counted)
            return asked.has(self.terms.at_home(shown.up_to(len(certificate.plan))), certificate.plan)

        if self._breaks_limits(self.certificate.exposures(shown)):
            return False
        if is_fine(self.certificate):
            return True
        self.certificate.limit_missing(self.left + 1)
        self.certificate.prune()
        if is_fine(self.certificate):
            return True
        adapted = fitted(self.certificate, shown, self.left)
        kept = is_fine(adapted)
        if kept or adapted.is_deliverable(self.left + 1):
            self.certificate = adapted
        return kept

    def _compose(
        self,
        i: int,
        chosen: OpenList,
        rows: NDArray[np.int64],
        relevance: Floats,
        asked: AskedSlots | None,
        *,
        may_lack: bool,
    ) -> None:
        """Fill a list with what cannot wait, then with the candidates of prices, then with the best that are left."""
        compose(
            lambda p, n: self.search(i, p, n), chosen, self.certificate, self.prices, self.left,
            asked=asked, may_lack=may_lack,
        )  # fmt: skip
        chosen.add_admitted(rows, relevance)
        self._fill(i, chosen)
