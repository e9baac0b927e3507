"""An evaluation as a table for the terminal, with a column for each policy and a section for each k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fairsync.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.evaluation.evaluate import Evaluation, PolicyResult
    from fairsync.evaluation.promise_results import PromiseResult

_KEPT = "relevance kept"
_NAME = 36  # letters of a promise's name
_BETWEEN = 3  # columns of the terminal between two values


def render(found: Evaluation, width: int = 80) -> Group:
    """Return the table, in parts of as many policies as fit into a width. Metrics that were not measured have no row.

    Parameters
    ----------
    found
        The evaluation.
    width
        Columns of the terminal. A part has one policy at least.
    """
    room, parts = 0, list[list[str]]()
    for policy in dict.fromkeys(one.policy for one in found.results):
        cells = [value(one) for one in found.results if one.policy == policy for value in _ROWS.values()]
        column = _BETWEEN + max(map(len, [policy, *cells]))
        if column > room:
            parts.append([])
            room = width - max(len(f"  {name}") for name in _ROWS)
        parts[-1].append(policy)
        room -= column
    return Group(*(_part(found, part) for part in parts))


def _part(found: Evaluation, policies: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for policy in policies:
        table.add_column(policy, justify="right", no_wrap=True)
    n_policies = len({one.policy for one in found.results})
    for k in dict.fromkeys(one.k for one in found.results):
        results = [one for one in found.results if one.k == k]
        table.add_row(Text(f"K = {k}", style="bold"))
        for name, value in _ROWS.items():
            values = {one.policy: value(one) for one in results}
            if any(values.values()) and not (name == _KEPT and n_policies == 1):  # nothing to compare
                table.add_row(f"  {name}", *(values[policy] or "–" for policy in policies))
        table.add_section()
    return table


def render_promises(found: Evaluation, most: int = 40) -> list[Table]:
    """Return a table for each k with the exposures of every promise under each policy, those not kept first.

    Parameters
    ----------
    found
        An evaluation with promises.
    most
        The most rows of a table.
    """
    tables = []
    for k in dict.fromkeys(one.k for one in found.results if one.promises):
        results = [one for one in found.results if one.k == k]
        table = Table(title=f"Promises at K = {k}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("promise")
        for name in ("at least", "at most", *(one.policy for one in results)):
            table.add_column(name, justify="right", no_wrap=True)
        lines = list(zip(*(one.promises for one in results), strict=True))
        lines.sort(key=lambda line: sum(one.kept for one in line))  # stable
        for line in lines[:most]:
            bounds = [_bound(line[0].at_least), _most(line[0])]
            table.add_row(
                Text(shortened(line[0].name, _NAME)),
                *bounds,
                *(Text(_exposures(one), style="green" if one.kept else "bold red") for one in line),
            )
        if len(lines) > most:
            table.add_row(Text(f"and {len(lines) - most:,} more", style="dim"))
        tables.append(table)
    return tables


def _bound(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _most(promise: PromiseResult) -> str:
    limit = "" if promise.at_most_per_list is None else f"{promise.at_most_per_list:,} a list"
    return ", ".join(filter(None, (_bound(promise.at_most), limit)))


def _exposures(promise: PromiseResult) -> str:
    most = "" if promise.most_per_list is None else f" ({promise.most_per_list:,} a list)"
    return f"{promise.exposures:,}{most}" + (f", gave way ({promise.gave_way})" if promise.gave_way else "")


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
    "promises kept": lambda one: (
        f"{sum(promise.kept for promise in one.promises):,} of {len(one.promises):,}" if one.promises else ""
    ),
    _KEPT: lambda one: "" if one.relevance_kept is None else f"{one.relevance_kept:.3%}",
    "Gini of exposures": lambda one: _small(one.metrics.gini),
    "exposures of the least shown group": lambda one: f"{one.metrics.least_exposures:,}",
    "groups shown": lambda one: _share(one.metrics.group_coverage),
    "items shown": lambda one: _share(one.metrics.item_coverage),
    "category diversity": lambda one: _small(one.metrics.category_diversity),
}
