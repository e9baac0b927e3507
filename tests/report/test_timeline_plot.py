"""The plot of exposures over time."""

import numpy as np

from fairsync.report.timeline_plot import plot_timeline
from report.made import bars


def test_exposures_and_traffic_over_time() -> None:
    times, course = np.array([0, 90, 100, 86_400, 500_000]), np.array([[0, 0], [2, 1], [5, 9]])
    courses = {"none": course // 2, "guaranteed": course}
    figure = plot_timeline(times, np.array([0, 2, 5]), courses, ["a", "$5 to $10"], [5, 8])
    *panels, traffic = figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["a", "$5 to $10"]
    lines = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in panels[1].lines}
    assert lines == {"pace of the requests": [0, 3.2, 8], "floor": [8, 8], "none": [0, 0, 4], "guaranteed": [0, 1, 9]}
    assert [bar.get_height() for bar in bars(traffic)] == [3, 1, 0, 0, 0, 1]  # requests of each day
    assert traffic.get_ylabel() == "requests\na day"
