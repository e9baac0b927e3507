"""Reports as a demo makes them."""

from typing import TYPE_CHECKING

from fairsync.report import Report

if TYPE_CHECKING:
    from fairsync.catalog.groups import Label

RECALLS = {"none": 0.2, "fairsync": 0.15, "guaranteed": 0.19, "guaranteed, calibrated": 0.1925, "hindsight": 0.19}


def make(exposures: list[int], cost: float, ratio: float, forced: int = 0) -> Report:
    given: dict[Label, int] = dict(enumerate(exposures))
    floors: dict[Label, int] = dict.fromkeys(given, 10)
    prices: dict[Label, float] = dict.fromkeys(given, 0.0)
    return Report("p", 5, 1, 8, 8, floors, given, prices, 200 - cost, cost, ratio, forced, 0, 0, caps={})
