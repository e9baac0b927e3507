"""Explanations as values: JSON and back, and how they read."""

import json
import math

import pytest

from fairsync.errors import FairSyncError
from fairsync.explain import ExplainedCandidate, Explanation, StoredExplanation, WhyNot

BOOK = ExplainedCandidate("b1", "books", 0.75, {}, 1, "relevance")
TOY = ExplainedCandidate("t1", "toys", 0.5, {"toys ≥ 500": -0.25}, None, "forced: toys ≥ 500", "b2")
MASKED = ExplainedCandidate("m", "masked", 0.5, {"masked (no promise)": math.inf}, 3, "price", "b2")


def test_an_explanation_survives_json() -> None:
    explanation = Explanation((BOOK, TOY, MASKED), None, 40)
    text = json.dumps(explanation.to_dict(), allow_nan=False)
    assert Explanation.from_dict(json.loads(text)) == explanation
    assert StoredExplanation({"explanation": json.loads(text)}).explanation() == explanation


@pytest.mark.parametrize(
    "why",
    [
        WhyNot(7, "a", "relevance", 0.25, -0.5, 0.5, -0.25),
        WhyNot("x", "a", "price", 0.25, math.inf, 0.5, math.inf),
        WhyNot("x", "a", "price", 0.25, math.inf, None, None),
        WhyNot("x", "a", "excluded", 0.25, 0.0, None, None),
    ],
    ids=str,
)
def test_why_not_survives_json(why: WhyNot) -> None:
    assert WhyNot.from_dict(json.loads(json.dumps(why.to_dict(), allow_nan=False))) == why


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (WhyNot("x", "a", "excluded", 0.2, 0.0, 0.5, 0.3), "the request excluded it."),
        (WhyNot("x", "a", "condition", 0.2, 0.0, 0.5, 0.3), "it does not meet the condition of the request."),
        (WhyNot("x", "a", "relevance", 0.5, 0.0, 0.5, 0.0), "its score 0.5 is at the cut, a tie that ids decide."),
        (WhyNot("x", "a", "forced", 0.5, 0.0, None, None), "a forced slot took its place; no slot was open to prices."),
        (WhyNot("x", "a", "price", 0.5, 0.25, 0.5, 0.25), "its score 0.25 is 0.25 below the cut at 0.5."),
    ],
)
def test_why_not_reads_as_a_sentence(why: WhyNot, words: str) -> None:
    assert str(why).startswith("'x' is not there: ")
    assert str(why).endswith(words)


def test_the_table_has_a_line_for_every_candidate() -> None:
    lines = str(Explanation((BOOK, TOY, MASKED), 0.25, 40)).splitlines()
    assert lines[0].split()[:3] == ["id", "group", "relevance"]
    assert lines[3].split() == [
        "t1",
        "toys",
        "0.5000",
        "−0.2500",
        "0.75",
        ">",
        "40",
        "forced:",
        "toys",
        "≥",
        "500",
        "b2",
    ]
    assert lines[4].split()[:5] == ["m", "masked", "0.5000", "masked", "−inf"]
    assert lines[-1] == "cut at 0.25 · 1 by relevance · 1 forced · 1 by other prices"


def test_a_received_explanation_has_no_items() -> None:
    with pytest.raises(FairSyncError, match=r"client\.why_not"):
        Explanation((BOOK,), None, None).why_not("x")
