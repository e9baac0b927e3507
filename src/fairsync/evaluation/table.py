"""An evaluation as a table for the terminal, with a column for each policy and a section for each k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.evaluation.evaluate import Evaluation, PolicyResult

_KEPT = "relevance kept"


def render(found: Evaluation) -> Table:
    """Return the table. Metrics that were not measured have no row."""
    policies = list(dict.fromkeys(one.policy for one in found.results))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for policy in policies:
        table.add_column(policy, justify="right")
    for k in dict.fromkeys(one.k for one in found.results):
        results = [one for one in found.results if one.k == k]
        table.add_row(Text(f"K = {k}", style="bold"))
        for name, value in _ROWS.items():
            values = [value(one) for one in results]
            if any(values) and not (name == _KEPT and len(policies) == 1):  # nothing to compare
                table.add_row(f"  {name}", *(one or "–" for one in values))
        table.add_section()
    return table


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


_ROWS: dict[str, Callable[[PolicyResult], str]] = {
    "Recall": lambda one: _small(one.metrics.recall),
    "NDCG": lambda one: _small(one.metrics.ndcg),
    "NDCG as in the authors' program": lambda one: _small(one.metrics.ndcg_of_hits),
    "hit rate": lambda one: _small(one.metrics.hit_rate),
    "ESP": lambda one: _share(one.metrics.esp),
    _KEPT: lambda one: "" if one.relevance_kept is None else f"{one.relevance_kept:.3%}",
    "Gini of exposures": lambda one: _small(one.metrics.gini),
    "exposures of the least shown group": lambda one: f"{one.metrics.least_exposures:,}",
    "groups shown": lambda one: _share(one.metrics.group_coverage),
    "items shown": lambda one: _share(one.metrics.item_coverage),
    "category diversity": lambda one: _small(one.metrics.category_diversity),
}
