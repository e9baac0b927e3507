"""The table of a demo: one row for each policy, and the best plan in hindsight below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fairsync.hindsight import Hindsight
    from fairsync.report import Report


def comparison(reports: dict[str, Report], best: Hindsight, recalls: dict[str, float]) -> Table:
    """Return a table that compares the runs of a demo.

    Parameters
    ----------
    reports
        {name of the run: its report}, made with ``best``.
    best
        The best plan in hindsight.
    recalls
        {name of the run: recall}, with an entry for ``hindsight``.
    """
    title = "The same requests under each policy"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    k = best.rows.shape[1]
    whole = best.unconstrained_relevance

    def kept(relevance: float) -> list[str]:
        return [f"{relevance / whole:.3%}"] if whole > 0 else []  # a share needs a positive total

    heading = ["relevance kept"] if whole > 0 else []
    for column in ("promises kept", f"Recall@{k}", *heading, "÷ hindsight", "forced"):
        table.add_column(column, justify="right", no_wrap=column == "promises kept")
    for name, report in reports.items():
        ratio = "–" if report.cost_ratio is None or report.esp < 1 else f"{report.cost_ratio:.2f}"
        table.add_row(
            name,
            Text(f"{report.n_kept:,} of {len(report.promised):,}", style="red" if report.esp < 1 else "green"),
            f"{recalls[name]:.4f}",
            *kept(report.relevance),
            ratio,
            f"{report.forced:,}",
        )
    table.add_section()
    cells = ("all", f"{recalls['hindsight']:.4f}", *kept(best.feasible_relevance), f"{1:.2f}", "")
    table.add_row("hindsight", *cells, style="dim")
    if any(report.esp < 1 for report in reports.values()):
        table.caption = "–  promises were broken, so the cost is not that of keeping them"
        table.caption_justify = "left"
    return table
