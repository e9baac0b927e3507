r"""The guard: enforces the promises, request by request.

Prices make the promises likely. Two rules, applied to single requests, make them certain and waste nothing.

**A subsidy ends with its floor.** Of a promise that still misses :math:`D_p` exposures, only the first :math:`D_p`
items of a list carry the subsidy (`choose`, `OpenList`).

**What remains must stay possible.** A *certificate* is a plan of exposures of each atom that the requests left can
deliver and that covers what all floors miss, within what caps have left (`LiveCertificate`). Where promises do not
overlap, it is the missing exposures themselves: with R requests left, they can still be delivered if and only if

.. math::  D_g \le R \, c_g \text{ for every group } g, \qquad \sum_g D_g \le R \, K

where :math:`c_g = \min(K, |I_g|)` (:func:`fairsync.promises.floors.can_be_met`). A request whose candidates would leave
no certificate gets other candidates that do (`compose`). They always exist (docs/promise.md has the proof), and without
requests left a certificate says that nothing is missing.

Requests may exclude items. If none excludes more than e items (`Terms.max_exclude`), then
:math:`c_g = \min(K, |I_g| - e)` is what each of them can surely show, and all of this holds as it stands. A request
that excludes more, or has a condition, may still be able to show as much (`is_limited`). If not, it gives what it can,
and what the others cannot make up for is no longer required. From the first such request on, the guard counts on a
cautious forecast for the requests to come (:mod:`fairsync.eligibility.eligible_slots`), and makes room as soon as the
planned exposures exceed it.

While a part of the catalog is out of reach, :math:`c_g` counts the items that were searched. Exposures that could not
be delivered even if every request from now on gave all it can, because the outage came too late, are no longer
required; the others are.
"""

from fairsync.guard.asked import AskedSlots, is_limited
from fairsync.guard.disjoint import choose, compose
from fairsync.guard.keep import keep_promises, needs_guard, overshoots

__all__ = ["AskedSlots", "choose", "compose", "is_limited", "keep_promises", "needs_guard", "overshoots"]
