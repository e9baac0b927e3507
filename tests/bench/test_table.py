"""The table of the scaling benchmark."""

import io

from rich.console import Console

from fairsync.bench import Measurement, MeasurementPoint
from fairsync.bench.table import growth_table


def test_points_left_out_have_a_line() -> None:
    measured = MeasurementPoint("exact", items=1_000, groups=5, k=10)
    figure = Measurement("items", measured, 1.5, 1_000_000, 2_000_000, None, 0.5, 4.0, 2.0, 0.25, 0.75)
    shown = io.StringIO()
    Console(file=shown, width=160).print(
        growth_table("items", [measured, MeasurementPoint("hnsw", items=1_000_000)], [figure])
    )
    header, _, first, second = [line.split() for line in shown.getvalue().splitlines()[2:6]]
    assert first == ["1,000", "exact", "1.5", "2", "2.00", "–", "0.500", "2.00", "4.00", "0.25", "0.750"]
    assert second == ["1,000,000", "hnsw", *"–" * 9]
    assert header[:2] == ["items", "index"]
