"""Explanations under promises that overlap, with floors, caps and limits per list, against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairsync as fs


def random_retriever(seed: int) -> tuple[fs.FairRetriever, np.random.Generator]:
    """Return a retriever with floors, a cap and limits per list that are often reached."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(12, 25)), int(rng.integers(2, 6))
    catalog = fs.Catalog(
        rng.normal(size=(n, 3)),
        {
            "kind": rng.integers(3, size=n).tolist(),
            "maker": [f"m{code}" for code in rng.integers(4, size=n)],
            "new": (rng.random(n) < 0.5).tolist(),
        },
    )
    promises = [
        fs.Promise({"kind": 0}, at_least=0.2, at_most_per_list=k - 1),
        fs.Promise({"maker": "m0"}, at_least=0.15),
        fs.Promise({"new": True}, at_least=0.3),
        fs.Promise({"maker": "m1"}, at_most=0.2),
        fs.Promise({"kind": 1}, at_most_per_list=1),
    ]
    terms: dict[str, Any] = {"k": k, "horizon": 40, "batch_size": 4, "if_infeasible": "give way"}
    return fs.FairRetriever(catalog, promises=promises, **terms), rng


@pytest.mark.parametrize("seed", range(30))
def test_every_statement_is_true(seed: int) -> None:
    retriever, rng = random_retriever(seed)
    catalog = retriever.catalog
    users = rng.normal(size=(60, 3)) + 0.5
    found = retriever.retrieve(users, explain=True)
    relevance = users @ catalog.embeddings.T
    rank = (-relevance).argsort(axis=1, kind="stable").argsort(axis=1) + 1
    for i in range(len(users)):
        explanation = found.explain(i)
        chosen = {candidate.id for candidate in explanation.candidates}
        assert [candidate.plain_rank for candidate in explanation.candidates] == [rank[i, id_] for id_ in found.ids[i]]
        for candidate in explanation.candidates:
            if explanation.cut is not None and not candidate.reason.startswith("forced"):
                assert candidate.score >= explanation.cut
            is_plain = rank[i, int(candidate.id)] <= retriever.terms.k
            assert (candidate.displaced is None) == is_plain
        for item in sorted(set(range(len(catalog))) - chosen):
            why = explanation.why_not(item)
            assert why.reason in ("price", "forced", "relevance")
            if why.reason == "price":
                assert rank[i, item] <= retriever.terms.k or why.price == np.inf
            elif why.reason == "relevance" and why.cut is not None:
                assert why.below is not None
                assert why.below >= -1e-12


def test_a_limit_per_list_is_named() -> None:
    catalog = fs.Catalog(np.array([[4.0], [3.0], [2.0], [1.0]]), {"kind": ["a", "a", "b", "b"]})
    retriever = fs.FairRetriever(catalog, k=2, horizon=10, promises=[fs.Promise({"kind": "a"}, at_most_per_list=1)])
    explanation = retriever.retrieve([[1.0]], explain=True).explain()
    assert [(one.id, one.plain_rank, one.reason, one.displaced) for one in explanation.candidates] == [
        (0, 1, "relevance", None),
        (2, 3, "price", 1),
    ]
    assert str(explanation.why_not(1)) == "1 is not there: its group is masked, or a limit per list is used up."
    assert explanation.why_not(3).reason == "relevance"
