"""The sentences of the demo follow its numbers."""

from dataclasses import replace

from cli.demo_reports import RECALLS, make
from fairsync.cli.demo_summary import summarize
from fairsync.hindsight import Hindsight


def test_the_sentences_follow_the_numbers() -> None:
    best = Hindsight(199.0, 199.0, 200.0, {}, {}, {}, None)  # type: ignore[arg-type]
    reports = {
        "none": make([30, 10, 0], 0, 0),
        "fairsync": make([20, 12, 8], 3.0, 3.0),
        "guaranteed": make([20, 10, 10], 2.0, 2.0, forced=4),
        "guaranteed, calibrated": make([20, 10, 10], 1.5, 1.5),
    }
    text = "\n".join(summarize(reports, best, RECALLS))
    assert "Without prices, 1 of 3 promises are broken: 1 floor missed by 10 exposures in all." in text
    assert "at least 0.50% of the relevance" in text
    assert "Of all 3 promises they kept: fairsync 2." in text
    assert "1.0% of the relevance, 2.00 times the least possible; the guard had to force 4 slots." in text
    assert "Calibration saved 25% of the cost." in text
    assert "20.00% without promises, 19.25% with them (−0.75 points), and 15.00% by the method of the paper" in text

    certain = "It was certain in advance"
    assert certain not in text
    assert certain in "\n".join(summarize(reports, best, RECALLS, excludes_history=True))
    for changes in ({"limited_requests": 1}, {"uncertain": (1,)}):
        limited = {name: replace(report, **changes) for name, report in reports.items()}
        assert certain not in "\n".join(summarize(limited, best, RECALLS, excludes_history=True))

    reports["guaranteed, calibrated"] = make([20, 10, 10], 3.0, 3.0)
    assert "Calibration did not pay here: it cost 50% more" in "\n".join(summarize(reports, best, RECALLS))

    idle = {name: make([20, 10, 10], 0.0, 1.0) for name in reports}
    nothing = Hindsight(200.0, 200.0, 200.0, {}, {}, {}, None)  # type: ignore[arg-type]
    text = "\n".join(summarize(idle, nothing, RECALLS))
    assert "All 3 promises hold anyway" in text
    assert "times the least possible" not in text
    assert "Calibration" not in text
    assert "Recall@" not in text
