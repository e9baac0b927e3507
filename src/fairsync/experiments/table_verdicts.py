"""Verdicts on claims, computed from the tables of experiments without trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairsync.experiments.claim_verdicts import Verdict

if TYPE_CHECKING:
    from fairsync.experiments.exhibit import ExhibitTable


def correlated(table: ExhibitTable, least: float) -> Verdict:
    """Judge whether the correlation of both stages is at least ``least`` for every K."""
    found = {row["K"]: row["correlation"] for row in _rows(table)}
    if not found or None in found.values():
        return Verdict("not comparable", "one of the stages does not vary")
    figures = ", ".join(f"{value:.2f} at K = {k}" for k, value in found.items())
    return Verdict.of(min(found.values()) >= least, f"correlation {figures}")


def as_in_the_extreme_case(table: ExhibitTable, method: str, recall: float) -> Verdict:
    """Judge whether a method meets all floors with the expected recall, in whole percent."""
    [row] = [row for row in _rows(table) if row["Method"] == method]
    figures = f"recall {row['Recall %']:.1f} %, ESP {row['ESP %']:.0f} %"
    return Verdict.of(round(row["Recall %"]) == round(100 * recall) and row["ESP %"] == 100, figures)


def as_fast(table: ExhibitTable, method: str, beyond: int, within: float) -> Verdict:
    """Judge whether a method takes at most ``within`` times the time of the base for all batch sizes above one."""
    ratios = [row[f"{method} ÷ base"] for row in _rows(table) if row["B"] > beyond]
    if not ratios:
        return Verdict("not comparable", f"no batch size beyond {beyond} was timed")
    figures = f"{min(ratios):.2f} to {max(ratios):.2f} times the base for B > {beyond}"
    return Verdict.of(max(ratios) <= within, figures)


def towards_the_needy(table: ExhibitTable) -> Verdict:
    """Judge whether groups that miss their floor without prices rank higher in the dual space at the end."""
    rows = _rows(table)
    last = [row for row in rows if row["requests"] == max(row["requests"] for row in rows)]
    needy = [row for row in last if row["without floors"] < row["due"]]
    if not needy:
        return Verdict("not comparable", f"none of the {len(last)} groups drawn falls short without floors")
    figures = ", ".join(f"{row['group']}: {row['rank']:,.0f} to {row['rank in dual space']:,.0f}" for row in needy)
    nearer = all(row["rank in dual space"] < row["rank"] for row in needy)
    return Verdict.of(nearer, f"mean rank of the best item of groups that fall short without floors: {figures}")


def _rows(table: ExhibitTable) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
