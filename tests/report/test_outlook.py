"""Outlooks: what is certain, expected and will be missed where few requests could show a group."""

import numpy as np
import pytest

import fairsync as fs
from fairsync.catalog.atoms import Membership
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.ledger import Totals
from fairsync.policies import Terms
from fairsync.report import Report
from fairsync.report.outlook import PromiseOutlook, promise_outlooks
from report.made import bars, report


def halfway() -> Report:
    """Of 1,000 requests 1,000, 500, 30 and 30 could show the groups, four items each; another 1,000 are to come."""
    return report(
        [700, 400, 60, 50, 9], [600, 900, 900, 165, 0], requests=1000, horizon=2000,
        able=[1000.0, 500.0, 30.0, 30.0, 1000.0], limited=970, subsidies=[0.0] * 5, given_up=[0.0] * 5,
    )  # fmt: skip


def test_outlooks_of_promises_are_judged_by_what_could_be_shown() -> None:
    made = halfway()
    assert made.outlooks == {
        "g0": PromiseOutlook("certain", 1.0, 0),
        "g1": PromiseOutlook("expected", 0.5, 0),
        "g2": PromiseOutlook("will miss", 0.03, 720),  # 840 are missing, and 1,000 requests show about 120
        "g3": PromiseOutlook("at risk", 0.03, 0),  # 115 are missing
    }
    assert made.limited_requests == 970


def test_json_has_outlook_share_shortfall_and_reason() -> None:
    made = halfway().to_dict()
    assert made["limited_requests"] == 970
    keys = ("outlook", "eligible_share", "expected_shortfall", "reason")
    rows = {row["group"]: tuple(row[key] for key in keys) for row in made["groups"]}
    assert rows["g1"] == ("expected", 0.5, 0, None)
    assert rows["g2"] == (
        "will miss", 0.03, 720, "only 3 % of requests could show it; about 720 exposures will be missing",
    )  # fmt: skip
    assert rows["g4"] == (None, None, None, None)


def test_the_table_says_which_promise_will_miss_and_why() -> None:
    text = str(halfway())
    [row] = [line for line in text.splitlines() if line.lstrip().startswith("g2 ") and "900" in line]
    assert "3.0%" in row
    assert row.endswith("will miss")
    assert "970 requests could not show what floors count on" in text
    assert "g2 will be missed: only 3 % of requests could show it; about 720 exposures will be missing." in text
    assert "g3 is at risk: only 3 % of requests could show it." in text
    assert "could show" not in str(report([20, 9], [20, 30]))


def test_many_reasons_are_counted() -> None:
    made = report([0] * 8, [900] * 8, requests=1000, horizon=2000, able=[30.0] * 8, limited=1000)
    assert str(made).count("will be missed: only 3 %") == 5
    assert "So are 3 more." in str(made)


def test_the_plot_marks_promises_that_will_miss() -> None:
    top = halfway().plot().axes[0]
    assert [bar.get_hatch() is not None for bar in bars(top)] == [False, False, True, False, False]
    legend = top.get_legend()
    assert legend is not None
    assert "will miss: 3.0% of requests could show it" in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "no request could show it"), (0.0004, "only less than 0.1 %"), (0.9999, "only 99.9 %"), (0.25, "only 25 %")],
)
def test_shares_are_worded(share: float, words: str) -> None:
    assert PromiseOutlook("will miss", share, 1).reason.startswith(words)
    assert PromiseOutlook("will miss", share, 1).reason.endswith("; about 1 exposure will be missing")
    assert PromiseOutlook("expected", share, 0).reason == ""


def test_when_the_horizon_is_over_all_is_past() -> None:
    catalog = fs.Catalog(np.random.default_rng(0).normal(size=(40, 4)), ["toys", "books"] * 20)
    promises = [fs.Promise({"group": "toys"}, at_least=0.2)]
    retriever = fs.FairRetriever(catalog, k=4, horizon=100, promises=promises)
    retriever.retrieve(np.ones((100, 4)), where={"group": "books"})
    made = retriever.report()
    assert made.outlooks == {"group=toys": PromiseOutlook("missed", 0.0, 80)}
    assert made.gave_way["group=toys"].exposures == 80  # as many as were missed
    text = " ".join(str(made).split())
    assert "80 exposures in 1 promise were missed. 100 requests could not show what floors count on" in text
    assert text.endswith("floors were not certain in advance. group=toys was missed: no request could show it.")
    assert "cost 0% of relevance" in text
    legend = made.plot().axes[0].get_legend()
    assert legend is not None
    assert "missed: 0% of requests could show it" in [one.get_text() for one in legend.get_texts()]


def with_small_atoms(*, able: float, certain: bool = False) -> PromiseOutlook:
    """Return the outlook of a promise to a small atom, which may be excluded, and to one that requests always show."""
    terms = Terms(
        np.array([900, 4000]), np.array([0, 2]), k=4, horizon=2000, batch_size=1, max_exclude=3,
        membership=Membership.of([(0, 1), (1,)], 2), certain=np.array([certain, True]),
    )  # fmt: skip
    slots = EligibleSlots(1000, 600, np.array([0.0, 1000.0]), np.array([able, 1000.0]), 1000.0)
    found = promise_outlooks(["small", "all"], terms, Totals(np.array([300, 2000]), 1000), slots)
    assert found["all"] == PromiseOutlook("expected", 1.0, 0)  # all requests showed what was counted on
    return found["small"]


def test_items_that_were_not_counted_on_are_no_reason_for_an_alarm() -> None:
    assert with_small_atoms(able=1000.0) == PromiseOutlook("expected", 1.0, 0)
    assert with_small_atoms(able=900.0) == PromiseOutlook("expected", 0.9, 0)
    assert with_small_atoms(able=1000.0, certain=True) == PromiseOutlook("at risk", 1.0, 0)
    assert with_small_atoms(able=160.0) == PromiseOutlook("at risk", 0.16, 0)
    assert with_small_atoms(able=50.0) == PromiseOutlook("will miss", 0.05, 400)  # of 600, at most about 200 to come
    assert with_small_atoms(able=0.0) == PromiseOutlook("will miss", 0.0, 600)


def test_atoms_that_are_planned_at_home_are_judged_there() -> None:
    terms = Terms(
        np.array([900, 1000, 50]), np.array([0, 0, 2]), k=4, horizon=2000, batch_size=1, max_exclude=3,
        membership=Membership.of([(0, 1), (0, 2), (0,)], 3), home=np.array([2, 2, 2]),
    )  # fmt: skip
    slots = EligibleSlots(1000, 600, np.array([0.0, 0.0, 900.0]), np.array([0.0, 0.0, 900.0]), 1000.0)
    found = promise_outlooks(["whole", "part", "rest"], terms, Totals(np.array([300, 200, 0]), 1000), slots)
    assert {name: (one.outlook, one.share) for name, one in found.items()} == {
        "whole": ("expected", 0.9), "part": ("at risk", 0.9), "rest": ("at risk", 0.9),
    }  # fmt: skip


def test_a_promise_that_every_request_could_show_too_little_of_says_so() -> None:
    assert PromiseOutlook("will miss", 1.0, 7).reason == (
        "requests could show too few of its items; about 7 exposures will be missing"
    )
