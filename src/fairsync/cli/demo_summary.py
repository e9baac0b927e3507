"""The summary of a demo: sentences that state its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.text import count, percent

if TYPE_CHECKING:
    from fairsync.hindsight import Hindsight
    from fairsync.report import Report


def summarize(
    reports: dict[str, Report],
    best: Hindsight,
    recalls: dict[str, float],
    floor: int,
    *,
    excludes_history: bool = False,
) -> list[str]:
    """Return the results of a demo as sentences.

    Parameters
    ----------
    reports
        Reports of the runs ``none``, ``fairsync``, ``guaranteed`` and ``guaranteed, calibrated``, made with ``best``.
    best
        The best plan in hindsight.
    recalls
        {name of the run: recall of its candidates}.
    floor
        The floor of every group.
    excludes_history
        Whether what a household has bought lately was neither recommended nor counted.
    """
    plain, calibrated, cold = reports["none"], reports["guaranteed, calibrated"], reports["guaranteed"]
    groups = len(plain.floors)
    below = len(plain.promised) - plain.n_kept
    worst = min(plain.exposures.values())
    largest = max(plain.exposures.values()) / max(sum(plain.exposures.values()), 1)
    sentences = [
        f"Without floors, {below:,} of {count(groups, 'group')} got less than {count(floor, 'exposure')}, the"
        f" worst served {worst:,}; one group took {percent(largest)} of all slots."
        if below
        else f"Every group gets its {count(floor, 'exposure')} anyway: floors change nothing here."
        " Try a higher --floor."
    ]
    if below:
        share = best.cost / abs(best.unconstrained_relevance)
        sentences.append(
            f"Meeting all floors costs at least {percent(share)} of the relevance, even with all requests known in"
            " advance."
        )
    sentences += [
        f"{policy}: {_outcome(reports[name], best)}"
        for name, policy in (
            ("fairsync", "The method of the paper, untuned"),
            ("guaranteed", "The default policy, not calibrated"),
            ("guaranteed, calibrated", "The default policy, calibrated on past requests"),
        )
    ]
    if below and calibrated.esp == cold.esp == 1 and calibrated.cost is not None and cold.cost:
        saved = 1 - calibrated.cost / cold.cost
        sentences.append(
            f"Calibration saved {percent(saved)} of the cost."
            if saved > 0
            else f"Calibration did not pay here: it cost {percent(-saved)} more than no calibration."
        )
    if below:
        sentences.append(_accuracy(recalls, plain.k, "new purchases" if excludes_history else "purchases"))
    return sentences


def _accuracy(recalls: dict[str, float], k: int, purchases: str) -> str:
    """Return the effect of floors on recall."""
    before, after = recalls["none"], recalls["guaranteed, calibrated"]
    change = f"{(after - before) * 100:+.2f} points".replace("-", "−")
    return (
        f"Recall@{k}, the share of a household's {purchases} among its candidates, is {before:.2%} without floors,"
        f" {after:.2%} with floors ({change}), and {recalls['fairsync']:.2%} by the method of the paper."
    )


def _outcome(report: Report, best: Hindsight) -> str:
    """Return how many floors a policy kept, and at which cost."""
    missed = len(report.promised) - report.n_kept
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
