"""The table of the demo."""

import numpy as np

from cli.demo_reports import RECALLS, make
from fairsync.cli.demo_table import comparison
from fairsync.hindsight import Hindsight


def test_no_share_of_a_relevance_that_is_not_positive() -> None:
    reports = {"none": make([30, 10, 0], 0, 0)}
    for whole, columns in ((200.0, 6), (-200.0, 5), (0.0, 5)):
        best = Hindsight(whole - 1, whole - 1, whole, {}, {}, {}, np.zeros((5, 8), dtype=np.int64))
        table = comparison(reports, best, RECALLS, 120)
        assert len(table.columns) == columns
        assert ("relevance" in [column.header for column in table.columns]) is (whole > 0)
        assert {len(list(column.cells)) for column in table.columns} == {2}
