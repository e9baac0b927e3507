"""Table of the scaling benchmark: one line for each point, including those that were left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.bench.measurement_points import MeasurementPoint
    from fairsync.bench.run import Measurement

_COLUMNS = (
    "index",
    "build s",
    "memory MB",
    "× vectors",
    "peak MB",
    "ms, 64 at once",
    "× exact",
    "ms, alone",
    "× exact",
    "recall",
)
_NOTHING = "–"


def growth_table(thing: str, points: Sequence[MeasurementPoint], figures: Sequence[Measurement]) -> Table:
    """Return the table of one series. Points that were left out have a line too, without numbers.

    Parameters
    ----------
    thing
        The scaled variable.
    points
        All points of the series, including those that were left out.
    figures
        The measurements. Those of other series are ignored.
    """
    table = Table(title=f"As {thing} grow", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (thing, *_COLUMNS):
        table.add_column(name, justify="left" if name == "index" else "right", no_wrap=True)
    measured = {one.point: one for one in figures if one.growing == thing}
    for point in points:
        cells = _cells(measured[point]) if point in measured else [_NOTHING] * (len(_COLUMNS) - 1)
        table.add_row(f"{getattr(point, thing):,}", point.index, *cells, style="" if point in measured else "dim")
    return table


def reasons(points: Sequence[MeasurementPoint]) -> list[str]:
    """Return the distinct reasons why points were left out.

    Examples
    --------
    >>> from fairsync.bench.measurement_points import MeasurementPoint
    >>> points = [MeasurementPoint("exact"), *(MeasurementPoint("hnsw", items=n) for n in (10**6, 10**7))]
    >>> reasons(points)
    ['hnsw: graphs are built up to 100,000 items here']
    """
    return list(dict.fromkeys(f"{point.index}: {point.left_out}" for point in points if point.left_out))


def _cells(one: Measurement) -> list[str]:
    return [
        f"{one.build_seconds:,.1f}",
        _megabytes(one.memory_bytes),
        _NOTHING if one.memory_ratio is None else f"{one.memory_ratio:.2f}",
        _megabytes(one.peak_bytes),
        f"{one.ms_batch:.3f}",
        f"{one.times_exact_batch:.2f}",
        f"{one.ms_single:.2f}",
        f"{one.times_exact_single:.2f}",
        f"{one.recall:.3f}",
    ]


def _megabytes(value: int | None) -> str:
    return _NOTHING if value is None else f"{value / 1e6:,.0f}"
