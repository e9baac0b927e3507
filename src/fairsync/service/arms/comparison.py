"""The comparison of arms: differences with confidence intervals, and a verdict over all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairsync.service.arms.arm_sums import COLUMNS
from fairsync.service.arms.inference import CONFIDENCE, Cells, IntervalEstimate, adjust_p_values, difference
from fairsync.service.schema.arms import ArmsReport, ArmView, Difference, Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairsync.service.arms.arm_sums import ArmSums

# Cost is relevance as a share: a third test would ask the same question again.
MEASURES = ("relevance", "exposures")


def compare(
    experiment: str, shares: Mapping[str, float], sums: Sequence[ArmSums], more: Sequence[Mapping[str, Any]] = ()
) -> ArmsReport:
    """Return the arms, each compared with the first one, and whether any of them differs from it.

    Parameters
    ----------
    experiment
        Name of the experiment.
    shares
        The share of each arm, by name.
    sums
        What each arm got.
    more
        Further fields of each arm's view.
    """
    days = sorted({day for one in sums for day in one.days})
    cells = [_cells(one, days) for one in sums]
    estimates = [[difference(arm[name], cells[0][name]) for name in MEASURES] for arm in cells[1:]]
    p_values = [one.p_value for arm in estimates for one in arm]
    known = not any(math.isnan(one) for one in p_values)
    adjusted: Iterator[float | None] = iter(adjust_p_values(p_values) if known else [None] * len(p_values))
    differences: list[list[Difference | None]] = [[None] * len(MEASURES)]
    differences += [[_difference(one, next(adjusted)) for one in arm] for arm in estimates]
    views = []
    for number, (name, share) in enumerate(shares.items()):
        relevance, exposures = (cells[number][measure].mean() for measure in MEASURES)
        in_relevance, in_exposures = differences[number]
        views.append(
            ArmView(
                name=name, share=share, requests=int(sums[number].total("requests").sum()),
                relevance=_interval(relevance), exposures=_interval(exposures),
                relevance_difference=in_relevance, exposures_difference=in_exposures,
                cost=_cost(in_relevance, cells[0]["relevance"].mean().value), **(more[number] if more else {}),
            )
        )  # fmt: skip
    found = [name for row in differences[1:] for name, one in zip(MEASURES, row, strict=True) if one and one.differs]
    return ArmsReport(
        experiment=experiment,
        arms=views,
        days=len(days),
        differ=bool(found) if known else None,
        verdict=_verdict(list(dict.fromkeys(found)), len(p_values), len(days), known=known),
    )


def _cells(sums: ArmSums, days: list[int]) -> dict[str, Cells]:
    requests, relevance, plain, prices, exposures, held = (sums.cells(name, days) for name in COLUMNS)
    return {
        "relevance": Cells(requests, relevance, predictor=plain, held=prices),
        "exposures": Cells(requests, exposures, held=held),
    }


def _verdict(found: Sequence[str], tests: int, days: int, *, known: bool) -> str:
    if not known:
        needs = "days: two at least are needed" if days < 2 else "users in each arm"
        return f"It is too early for a verdict: there are too few {needs}."
    over = f"over {days} days, at most {1 - CONFIDENCE:.0%} by chance over all {tests} comparisons together"
    return f"The arms differ in {' and '.join(found)} ({over})." if found else f"No difference was found ({over})."


def _difference(one: IntervalEstimate, p_value: float | None) -> Difference:
    ends = _interval(one)
    differs = None if p_value is None else p_value < 1 - CONFIDENCE
    return Difference(value=ends.value, low=ends.low, high=ends.high, p_value=p_value, differs=differs)


def _cost(gained: Difference | None, scale: float) -> Interval | None:
    """Return a difference in relevance as a share of it that is given up."""
    if gained is None or gained.value is None or not scale:
        return None
    if gained.low is None or gained.high is None:
        return Interval(value=-gained.value / scale, low=None, high=None)
    low, high = sorted(-end / scale for end in (gained.low, gained.high))
    return Interval(value=-gained.value / scale, low=low, high=high)


def _interval(one: IntervalEstimate) -> Interval:
    if math.isnan(one.value):
        return Interval(value=None, low=None, high=None)
    half = one.half_width
    if math.isnan(half):
        return Interval(value=one.value, low=None, high=None)
    return Interval(value=one.value, low=one.value - half, high=one.value + half)
