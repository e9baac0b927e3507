r"""Shares by what really comes: a bank of exposures that covers the requests under way.

A share promises a part of the slots that a window really had, however much traffic came. Let t be the requests so far,
E the exposures, and a the share times k. If the plan for the next h requests starts with :math:`E \ge a (t + h)`, the
share holds whenever the window ends during those h requests, whatever they bring. So each plan asks for
:math:`a (t + h + h') - E` exposures within its h requests: enough for the next plan, of h' requests. At the start of a
window the bank is empty and h is 1; it doubles until it is one hundredth of the window's requests.

An upper share counts slots that have come only: :math:`a (t + 1) - E` more exposures are allowed until the next plan,
because each of them comes with a request at least.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.plan import NO_CAP

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows, WindowProgress
    from fairsync.schedule.seasonal_profile import Ints
    from fairsync.schedule.traffic import Traffic

_FAR = 2**53
# The bank covers at most this part of the requests of a window.
_PART = Fraction(1, 100)


class Bank(NamedTuple):
    """What shares, and caps, ask for until the next plan.

    Attributes
    ----------
    horizon : int
        The most requests until the next plan.
    at_least, at_most : numpy.ndarray
        (selections,) bounds on the exposures to retrieve within them.
    due : numpy.ndarray
        (selections,) the part of ``at_least`` that shares need if their windows end with these requests.
    """

    horizon: int
    at_least: Ints
    at_most: Ints
    due: Ints


def share_bank(active: ActiveWindows, progress: WindowProgress, traffic: Traffic, until_next: int = 1) -> Bank:
    """Return what shares and caps ask for until the next plan.

    Parameters
    ----------
    active, progress, traffic
        The windows, how far they have come, and the requests to come.
    until_next
        Requests that are likely to come before the next plan: no horizon is shorter.
    """
    n = len(active.supply.selections)
    at_least, due, at_most = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.full(n, NO_CAP)
    plans = []
    for p, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True)):
        if span is None:
            continue
        one, so_far, had = promise.promise, int(progress.requests[p]), int(progress.exposures[p])
        if one.at_most is not None:
            room = max((one.cap(active.supply.k * (so_far + 1)) or 0) - had, 0)
            at_most[active.selection[p]] = min(int(at_most[active.selection[p]]), room)
        if isinstance(one.at_least, float) and one.at_least > 0:
            rate = Fraction(str(one.at_least)) * active.supply.k
            window = so_far + int(traffic.expected[active.deadline[p]])
            most = max(math.ceil(_PART * window), until_next)
            banked = math.floor((had + int(progress.pending[p])) / rate) - so_far
            plans.append((p, rate, max(min(banked, most), until_next), most))
        elif isinstance(one.at_most, float):
            plans.append(
                (p, Fraction(0), max(math.ceil(_PART * (so_far + int(traffic.expected[active.deadline[p]]))), 1), 1)
            )
    horizon = min((planned for _, _, planned, _ in plans), default=_FAR)
    for p, rate, planned, most in plans:
        if rate:
            following = min(2 * planned, most)
            for needs, ahead in ((due, horizon), (at_least, horizon + following)):
                needed = math.ceil(rate * (int(progress.requests[p]) + ahead))
                missing = max(needed - int(progress.exposures[p]) - int(progress.pending[p]), 0)
                retrieved = math.ceil(missing / active.impression_rates[active.selection[p]] - 1e-6)
                needs[active.selection[p]] = max(int(needs[active.selection[p]]), retrieved)
    return Bank(horizon, at_least, at_most, due)
