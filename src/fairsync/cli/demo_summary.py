"""The summary of a demo: sentences that state its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.text import count, percent

if TYPE_CHECKING:
    from fairsync.hindsight import Hindsight
    from fairsync.report import Report


def summarize(
    reports: dict[str, Report], best: Hindsight, recalls: dict[str, float], *, excludes_history: bool = False
) -> list[str]:
    """Return the results of a demo as sentences.

    Parameters
    ----------
    reports
        Reports of the runs on all promises, made with ``best``: ``none``, policies that know the floors of categories
        only, ``guaranteed`` and ``guaranteed, calibrated``.
    best
        The best plan in hindsight.
    recalls
        {name of the run: recall of its candidates}.
    excludes_history
        Whether what a household has bought lately was neither recommended nor counted.
    """
    plain, calibrated, cold = reports["none"], reports["guaranteed, calibrated"], reports["guaranteed"]
    broken = len(plain.promised) - plain.n_kept
    sentences = [
        f"Without prices, {broken:,} of {count(len(plain.promised), 'promise')} are broken: {_misses(plain)}."
        if broken
        else f"All {count(len(plain.promised), 'promise')} hold anyway. Try a higher --floor."
    ]
    if broken:
        share = best.cost / abs(best.unconstrained_relevance)
        sentences.append(
            f"Keeping all of them costs at least {percent(share)} of the relevance, even with all requests known in"
            " advance."
        )
    others = [name for name in reports if name not in ("none", "guaranteed", "guaranteed, calibrated")]
    if others:
        kept = ", ".join(f"{name} {reports[name].n_kept:,}" for name in others)
        sentences.append(
            "The methods of the paper know floors of one attribute, here those of the categories. Of all"
            f" {count(len(plain.promised), 'promise')} they kept: {kept}."
        )
    sentences += [
        f"{policy}: {_outcome(reports[name], best)}"
        for name, policy in (
            ("guaranteed", "The default policy, not calibrated"),
            ("guaranteed, calibrated", "The default policy, calibrated on past requests"),
        )
    ]
    if broken and calibrated.esp == cold.esp == 1 and calibrated.cost is not None and cold.cost:
        saved = 1 - calibrated.cost / cold.cost
        sentences.append(
            f"Calibration saved {percent(saved)} of the cost."
            if saved > 0
            else f"Calibration did not pay here: it cost {percent(-saved)} more than no calibration."
        )
    if excludes_history and not calibrated.uncertain and not calibrated.limited_requests:
        sentences.append(
            "It was certain in advance that this policy would keep every promise, although each request leaves out"
            " what the household has bought lately."
        )
    if broken:
        sentences.append(_accuracy(recalls, plain.k, "new purchases" if excludes_history else "purchases"))
    return sentences


def _accuracy(recalls: dict[str, float], k: int, purchases: str) -> str:
    """Return the effect of the promises on recall."""
    before, after = recalls["none"], recalls["guaranteed, calibrated"]
    change = f"{(after - before) * 100:+.2f} points".replace("-", "−")
    return (
        f"Recall@{k}, the share of a household's {purchases} among its candidates, is {before:.2%} without promises,"
        f" {after:.2%} with them ({change}), and {recalls['fairsync']:.2%} by the method of the paper."
    )


def _misses(report: Report) -> str:
    """Return what is missing to floors, and which caps are exceeded."""
    short = [missing for missing in report.missing.values() if missing]
    words = [f"{count(len(short), 'floor')} missed by {count(sum(short), 'exposure')} in all"] if short else []
    for name, cap in (report.caps or {}).items():
        if report.exposures[name] > cap:
            words.append(f"{name} got {report.exposures[name]:,} exposures, and its cap is {cap:,}")
    return "; ".join(words)


def _outcome(report: Report, best: Hindsight) -> str:
    """Return how many promises a policy kept, and at which cost."""
    broken = len(report.promised) - report.n_kept
    kept = f"broke {count(broken, 'promise')} ({_misses(report)})" if broken else "kept every promise"
    if report.cost is None or report.cost_ratio is None:
        return f"{kept}."
    cost = f"gave up {percent(report.cost / abs(best.unconstrained_relevance))} of the relevance"
    if not broken and best.cost > 0:
        cost += f", {report.cost_ratio:.2f} times the least possible"
    forced = f"; the guard had to force {count(report.forced, 'slot')}" if report.forced else ""
    return f"{kept} and {cost}{forced}."
