"""The table of a demo: one row for each policy, and the best plan in hindsight below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from fairsync.report.columns import Column, fitting

if TYPE_CHECKING:
    from fairsync.hindsight import Hindsight
    from fairsync.report import Report


def comparison(reports: dict[str, Report], best: Hindsight, recalls: dict[str, float], width: int) -> Table:
    """Return a table that compares the runs of a demo.

    Parameters
    ----------
    reports
        {name of the run: its report}, made with ``best``.
    best
        The best plan in hindsight.
    recalls
        {name of the run: recall}, with an entry for ``hindsight``.
    width
        Width of the terminal.
    """
    runs, whole = list(reports.values()), best.unconstrained_relevance
    columns = [
        Column("policy", [*reports, "hindsight"], is_number=False),
        Column("promises kept", [*map(_kept, runs), "all"]),
        Column(f"Recall@{best.rows.shape[1]}", [f"{recalls[name]:.4f}" for name in (*reports, "hindsight")]),
    ]
    if whole > 0:  # a share needs a positive total
        shares = [f"{one / whole:.3%}" for one in (*(run.relevance for run in runs), best.feasible_relevance)]
        columns.append(Column("relevance", shares))
    columns += [
        Column("÷ hindsight", [*map(_ratio, runs), f"{1:.2f}"]),
        Column("forced", [*(f"{run.forced:,}" for run in runs), ""], dispensable=1),
    ]
    columns = fitting(columns, width)
    title = "The same requests under each policy"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.heading, justify="right" if column.is_number else "left", no_wrap=True)
    *rows, last = zip(*(column.cells for column in columns), strict=True)
    for cells in rows:
        table.add_row(*cells)
    table.add_section()
    table.add_row(*last, style="dim")
    if any(run.esp < 1 for run in runs):
        table.caption = "–  promises were broken, so the cost is not that of keeping them"
        table.caption_justify = "left"
    return table


def _kept(run: Report) -> Text:
    return Text(f"{run.n_kept:,} of {len(run.promised):,}", style="red" if run.esp < 1 else "green")


def _ratio(run: Report) -> str:
    return "–" if run.cost_ratio is None or run.esp < 1 else f"{run.cost_ratio:.2f}"
