import math
from dataclasses import astuple

import numpy as np
import numpy.typing as npt
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.metrics import Accuracy, accuracy_of_each, hit_rate, ndcg, ndcg_of_hits, recall
from fairsync.ragged import Ragged

METRICS = (recall, ndcg, ndcg_of_hits, hit_rate)


def plain_accuracy(shown: list[int], targets: list[int], k: int) -> tuple[float, float, float, float]:
    """Return recall, NDCG, NDCG of hits and hit of one list, straight from the formulas."""
    wanted, seen = set(targets), set()
    hits, gain = 0, 0.0
    for place, item in enumerate(shown[:k], start=1):
        if item in wanted and item not in seen:
            hits += 1
            gain += 1 / math.log2(place + 1)
        seen.add(item)

    def best(number: int) -> float:
        return sum(1 / math.log2(place + 1) for place in range(1, number + 1))

    return hits / len(wanted), gain / best(min(k, len(wanted))), gain / best(hits) if hits else 0.0, float(hits > 0)


@st.composite
def drawn_requests(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], int]:
    n, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    items = st.integers(0, 9)
    lists = draw(st.lists(st.lists(items, min_size=width, max_size=width), min_size=n, max_size=n))
    targets = draw(st.lists(st.lists(items, max_size=8), min_size=n, max_size=n).filter(any))
    return lists, targets, draw(st.integers(1, width))


@given(drawn=drawn_requests())
def test_every_request_agrees_with_a_plain_loop(drawn: tuple[list[list[int]], list[list[int]], int]) -> None:
    lists, targets, k = drawn
    each = accuracy_of_each(lists, targets, k)
    asked = [row for row, wanted in enumerate(targets) if wanted]
    assert each.requests.tolist() == asked
    wanted = np.array([plain_accuracy(lists[row], targets[row], k) for row in asked]).T
    np.testing.assert_allclose(astuple(each)[1:], wanted, rtol=1e-12)
    assert max(values.max() for values in astuple(each)[1:]) <= 1
    for metric, values in zip(METRICS, wanted, strict=True):
        assert metric(lists, targets, k) == pytest.approx(values.mean(), rel=1e-12)


@given(drawn=drawn_requests())
def test_all_kinds_of_input_give_the_same(drawn: tuple[list[list[int]], list[list[int]], int]) -> None:
    lists, targets, k = drawn
    wanted = accuracy_of_each(lists, targets, k)
    items = np.array([item for one in targets for item in one], dtype=np.int32)
    ragged = Ragged(items, np.cumsum([0] + [len(one) for one in targets]))
    names = [[f"item {item}" for item in one] for one in lists]
    for got in (
        accuracy_of_each(np.array(lists, dtype=np.int32), ragged, k),
        accuracy_of_each(np.array(lists)[:, :k], [set(one) for one in targets]),
        accuracy_of_each(names, [{f"item {item}" for item in one} for one in targets], k),
        accuracy_of_each(np.array(names), [[f"item {item}" for item in one] for one in targets], k),
        accuracy_of_each(np.array(names, dtype=object), [[f"item {item}" for item in one] for one in targets], k),
    ):
        for one, other in zip(astuple(got), astuple(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.fixture(scope="module")
def large() -> tuple[npt.NDArray[np.int64], list[list[int]]]:
    """Lists without repeats, more targets than fit in one block of comparisons."""
    rng = np.random.default_rng(0)
    lists = np.argsort(rng.random((3_000, 120)), axis=1)[:, :50]
    return lists, [rng.integers(0, 120, rng.integers(0, 40)).tolist() for _ in lists]


@pytest.mark.parametrize("k", [5, 20, 50])
def test_trec_eval_gives_the_same(large: tuple[npt.NDArray[np.int64], list[list[int]]], k: int) -> None:
    lists, targets = large
    each = accuracy_of_each(lists, targets, k)
    judged = {str(row): {str(item): 1 for item in one} for row, one in enumerate(targets) if one}
    run = {
        str(row): {str(item): float(-place) for place, item in enumerate(one)} for row, one in enumerate(lists.tolist())
    }
    theirs = pytrec_eval.RelevanceEvaluator(judged, {f"recall.{k}", f"ndcg_cut.{k}", f"success.{k}"}).evaluate(run)
    for ours, name in ((each.recall, "recall"), (each.ndcg, "ndcg_cut"), (each.hit_rate, "success")):
        wanted = [theirs[str(row)][f"{name}_{k}"] for row in each.requests]
        np.testing.assert_allclose(ours, wanted, rtol=1e-12)


def test_the_authors_ndcg_is_one_for_a_single_hit_at_the_top() -> None:
    each: Accuracy = accuracy_of_each([[1, 7, 8]], [[1, 2, 3]])
    assert each.ndcg_of_hits.tolist() == [1.0]
    assert each.ndcg[0] == pytest.approx(1 / (1 + 1 / math.log2(3) + 1 / 2))


@pytest.mark.parametrize(
    ("lists", "targets", "k", "says"),
    [
        ([[1, 2], [3]], [[1], [3]], None, r"lists must be \(n, k\)"),
        ([1, 2], [[1], [3]], None, r"lists must be \(n, k\)"),
        (np.zeros((0, 3), dtype=int), [], None, "lists are empty"),
        ([[], []], [[1], [2]], None, "lists are empty"),
        ([[1.0, 2.0]], [[1]], None, "got float"),
        (np.array([[1.0, 2.0]]), [[1]], None, "got float"),
        ([[1, "a"]], [[1]], None, "got int and str"),
        ([[True, False]], [[1]], None, "got bool"),
        ([[1, 2]], [[1]], 3, "k is 3, but the lists have 2"),
        ([[1, 2]], [[1]], 0, "k must be"),
        ([[1, 2]], [[1], [2]], None, "1 lists and 2 targets"),
        ([[1, 2]], [[]], None, "no request has a target"),
        ([[1, 2]], [1], None, r"write \[\[7\], \[5\]\]"),
        ([["a", "b"]], ["a"], None, r"write \[\[7\], \[5\]\]"),
        ([[1, 2]], [["a"]], None, "the same ids in both"),
        ([[1, 2]], [[0.5]], None, "targets must be all int or all str"),
    ],
)
def test_what_cannot_be_compared_is_refused(lists: object, targets: object, k: int | None, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        recall(lists, targets, k)  # type: ignore[arg-type]


def test_padding_among_targets_is_no_target() -> None:
    assert hit_rate(np.array([[3, -1]]), np.array([[5, -1]])) == 0.0
    assert recall(np.array([[3, 1]]), np.array([[1, -1]])) == 1.0
