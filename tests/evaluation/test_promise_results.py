"""Evaluation under promises that may overlap: each is counted item by item, and kept by `guaranteed`."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from fairsync import Catalog, FairRetriever, InfeasibleFloorsError, InvalidInputError, Promise, each
from fairsync.evaluation import evaluate, measure_promises
from fairsync.evaluation.table import render_promises

RNG = np.random.default_rng(8)
N, REQUESTS = 120, 60
ATTRIBUTES: dict[str, Any] = {
    "category": [f"c{n % 3}" for n in range(N)],
    "provider": [int(n) for n in RNG.integers(0, 6, N)],
    "new": [n % 10 == 0 for n in range(N)],
    "tags": [["sale"] * (n % 4 == 0) + ["eco"] * (n % 5 == 0) for n in range(N)],
}
CATALOG = Catalog(RNG.normal(size=(N, 6)) + np.arange(N)[:, None] % 3 * 0.5, ATTRIBUTES, [f"i{n}" for n in range(N)])
USERS = RNG.normal(0.5, 1, (REQUESTS, 6))
PROMISES = [
    *each(CATALOG, "provider", at_least=30),
    Promise({"category": "c2"}, at_most=0.4),
    Promise({"new": True, "category": "c0"}, at_least=0.05),
    Promise({"tags": "sale"}, at_most_per_list=2, name="sale"),
]


def meets(n: int, where: dict[str, Any]) -> bool:
    return all(value in one if isinstance(one := ATTRIBUTES[name][n], list) else one == value
               for name, value in where.items())  # fmt: skip


def test_promises_are_counted_item_by_item_and_kept() -> None:
    found = evaluate(CATALOG, USERS, ks=[9, 4], promises=PROMISES, policies=["none", "guaranteed"], batch_size=8)
    for one in found.results:
        retriever = FairRetriever(
            CATALOG, k=one.k, horizon=REQUESTS, promises=PROMISES, policy=one.policy, batch_size=8
        )
        lists = retriever.retrieve(USERS).rows.tolist()
        for promise, result in zip(PROMISES, one.promises, strict=True):
            counts = [sum(meets(n, dict(promise.where)) for n in row) for row in lists]
            slots = one.k * REQUESTS
            low, high = promise.at_least, promise.at_most
            assert (result.name, result.exposures) == (promise.name, sum(counts))
            assert result.at_least == (None if low is None else low if isinstance(low, int) else -(-slots // 20))
            assert result.at_most == (None if high is None else slots * 4 // 10)
            assert result.most_per_list == (None if promise.at_most_per_list is None else max(counts))
            assert result.kept == (
                sum(counts) >= (result.at_least or 0)
                and sum(counts) <= (slots if result.at_most is None else result.at_most)
                and max(counts) <= (promise.at_most_per_list or one.k)
            )
        assert one.metrics.esp == sum(result.kept for result in one.promises) / len(PROMISES)
        assert (one.metrics.esp == 1) == (one.policy == "guaranteed")
    document = found.to_dict()["results"][0]
    assert document["promises"] == [asdict(one) for one in found.results[0].promises]
    assert len(render_promises(found)) == 2
    assert render_promises(found, most=3)[0].row_count == 4


def test_short_lists_count_what_they_have() -> None:
    rows = np.array([[0, 4, -1], [8, -1, -1]])
    [result] = measure_promises(CATALOG, [Promise({"tags": "sale"}, at_least=4, at_most_per_list=1)], rows)
    assert (result.exposures, result.most_per_list, result.kept) == (3, 2, False)


def test_exclusions_are_respected() -> None:
    exclude = [[f"i{n}" for n in RNG.choice(N, 5, replace=False)] for _ in range(REQUESTS)]
    found = evaluate(CATALOG, USERS, ks=[5], promises=PROMISES[:6], policies=["guaranteed"], exclude=exclude)
    assert found.results[0].metrics.esp == 1


def test_an_index_is_built_once() -> None:
    built: list[Catalog] = []

    def build(catalog: Catalog) -> Any:
        from fairsync.search import ExactIndex

        built.append(catalog)
        return ExactIndex(catalog)

    evaluate(CATALOG, USERS, ks=[4, 6], promises=PROMISES, policies=["none", "guaranteed"], index=build)
    assert len(built) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"promises": PROMISES, "floors": 5}, "give floors or promises, not both"),
        ({"promises": [Promise({"category": "c9"}, at_least=5)]}, "no item has 'c9'"),
        ({"promises": []}, "promises are empty"),
        ({"promises": PROMISES, "policies": ["fairsync"]}, "fairsync"),
    ],
)
def test_what_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        evaluate(CATALOG, USERS, ks=[4], **{"policies": ["guaranteed"], **given})


def test_promises_that_cannot_hold_are_refused_before_the_work() -> None:
    with pytest.raises(InfeasibleFloorsError):
        evaluate(
            CATALOG,
            USERS,
            ks=[4],
            policies=["guaranteed"],
            promises=[Promise({"category": "c0"}, at_least=0.7), Promise({"category": "c1"}, at_least=0.7)],
            watch=lambda *_: pytest.fail("a request was answered"),
        )


def test_promises_give_way_by_priority_and_to_the_budget() -> None:
    catalog = Catalog(np.eye(8), {"kind": ["a"] * 4 + ["b"] * 4})
    promises = [Promise({"kind": "a"}, at_least=0.7), Promise({"kind": "b"}, at_least=0.7, priority=2)]
    given: dict[str, Any] = {"ks": [2], "promises": promises, "policies": ["none", "guaranteed"]}
    users = np.tile(np.arange(8.0), (50, 1))  # all prefer b
    with pytest.raises(InfeasibleFloorsError):
        evaluate(catalog, users, **given)
    plain, forced = evaluate(catalog, users, if_infeasible="give way", **given).results
    assert [(one.priority, one.kept, one.gave_way) for one in plain.promises] == [(1, False, None), (2, True, None)]
    assert [one.exposures for one in forced.promises] == [70, 30]
    assert [(one.priority, one.kept, one.gave_way) for one in forced.promises] == [
        (1, True, None),
        (2, False, "capacity"),
    ]
    _, cheap = evaluate(catalog, users, **{**given, "promises": promises[:1]}, budget=0.01).results
    assert cheap.promises[0].gave_way == "budget"
