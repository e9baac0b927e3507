"""The reading of a demo: sentences made from its numbers, whatever they turn out to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.report.table import count, percent

if TYPE_CHECKING:
    from fairsync.hindsight import Hindsight
    from fairsync.report import Report


def read(reports: dict[str, Report], best: Hindsight, recalls: dict[str, float], floor: int) -> list[str]:
    """Say what happened.

    Parameters
    ----------
    reports
        Those of ``none``, ``fairsync``, ``guaranteed`` and ``guaranteed, calibrated``, next to ``best``.
    best
        The plan in hindsight.
    recalls
        By name of the run: the share of what users went on to take that was among their candidates.
    floor
        What every group was promised.
    """
    plain, calibrated, cold = reports["none"], reports["guaranteed, calibrated"], reports["guaranteed"]
    groups = len(plain.floors)
    below = groups - sum(plain.satisfied.values())
    worst = min(plain.exposures.values())
    largest = max(plain.exposures.values()) / max(sum(plain.exposures.values()), 1)
    words = [
        f"Without floors, {below:,} of {count(groups, 'group')} got less than {count(floor, 'exposure')}, the"
        f" worst served {worst:,}; one group took {percent(largest)} of all slots."
        if below
        else f"Every group gets its {count(floor, 'exposure')} anyway: floors change nothing here."
        " Try a higher --floor."
    ]
    if below:
        share = best.cost / abs(best.unconstrained_relevance)
        words.append(
            f"To lift them, at least {percent(share)} of the relevance had to be given up, even by somebody"
            " who knew all requests beforehand."
        )
    words += [
        f"{who}: {_outcome(reports[name], best)}"
        for name, who in (
            ("fairsync", "The method of the paper, untuned"),
            ("guaranteed", "The default policy, starting from nothing"),
            ("guaranteed, calibrated", "The default policy, calibrated on past requests"),
        )
    ]
    if below and calibrated.esp == cold.esp == 1 and calibrated.cost is not None and cold.cost:
        saved = 1 - calibrated.cost / cold.cost
        words.append(
            f"Calibration saved {percent(saved)} of the cost."
            if saved > 0
            else f"Calibration did not pay here: it cost {percent(-saved)} more than starting from nothing."
        )
    if below:
        words.append(_accuracy(recalls, plain.k))
    return words


def _accuracy(recalls: dict[str, float], k: int) -> str:
    """Say what floors did to what a recommender is for."""
    before, after = recalls["none"], recalls["guaranteed, calibrated"]
    change = f"{(after - before) * 100:+.2f} points".replace("-", "−")
    return (
        f"Of what a household then put into its basket, the {k} candidates held {before:.2%} without floors and"
        f" {after:.2%} with them ({change}); {recalls['fairsync']:.2%} by the method of the paper."
    )


def _outcome(report: Report, best: Hindsight) -> str:
    """Say what a policy kept, and for how much."""
    missed = len(report.satisfied) - sum(report.satisfied.values())
    kept = (
        f"missed {count(missed, 'floor')} by {count(sum(report.missing.values()), 'exposure')}"
        if missed
        else "kept every floor"
    )
    if report.cost is None or report.cost_ratio is None:
        return f"{kept}."
    cost = f"gave up {percent(report.cost / abs(best.unconstrained_relevance))} of the relevance"
    if not missed and best.cost > 0:
        cost += f", {report.cost_ratio:.2f} times the least possible"
    forced = f"; the guard had to force {count(report.forced, 'slot')}" if report.forced else ""
    return f"{kept} and {cost}{forced}."
