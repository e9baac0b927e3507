"""Requests with their own rules: no answer breaks them, and floors hold as far as was declared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from effort import effort
from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.policies import Terms
from fairsync.promises.floors import can_be_met
from fairsync.retriever import FairRetriever
from worlds import floors_at_the_edge, make_world

Ints = npt.NDArray[np.int64]


def cannot_show(catalog: Catalog, terms: Terms, mask: npt.NDArray[np.bool_]) -> bool:
    """Whether a request with these eligible items lacks some of what every request is assumed to show."""
    there = np.bincount(catalog.group_of[mask], minlength=catalog.n_groups)
    return any(floor > 0 and own < c for floor, own, c in zip(terms.floors, there, terms.capacities, strict=True))


def against_the_neediest(retriever: FairRetriever, scores: npt.NDArray[np.float64], e: int, rng: Any) -> list[int]:
    """Exclude e items of the group whose floor misses most, the best first."""
    catalog = retriever.catalog
    missing = retriever.terms.floors - np.array([*retriever.report().exposures.values()])
    neediest = int(np.argmax(missing / np.maximum(retriever.terms.capacities, 1)))
    order = np.lexsort((-scores, catalog.group_of != neediest))
    return [int(row) for row in order[:e]]


def against_the_best(retriever: FairRetriever, scores: npt.NDArray[np.float64], e: int, rng: Any) -> list[int]:
    return [int(row) for row in np.argsort(-scores)[:e]]


def against_anything(retriever: FairRetriever, scores: npt.NDArray[np.float64], e: int, rng: Any) -> list[int]:
    return [int(row) for row in rng.permutation(len(scores))[: rng.integers(e + 1)]]


@given(
    seed=st.integers(0, 10**6),
    e=st.integers(0, 6),
    batch=st.sampled_from([1, 4, 16]),
    hostile=st.sampled_from([against_the_neediest, against_the_best, against_anything]),
    k=st.integers(1, 5),
    policy=st.sampled_from(["guaranteed", "guaranteed", "none"]),
)
@effort(examples=60, seconds_each=0.3)
def test_floors_hold_at_the_very_edge_whatever_up_to_e_items_are_excluded(
    seed: int, e: int, batch: int, hostile: Callable[..., list[int]], k: int, policy: str
) -> None:
    rng = np.random.default_rng(seed)
    horizon = 40
    world = make_world(
        seed, groups=int(rng.integers(1, 5)), items=int(rng.integers(k + e + 1, 30)), horizon=horizon, k=k
    )
    catalog = world.catalog
    capacities = np.minimum(np.maximum(catalog.group_sizes - e, 0), k)
    floors = floors_at_the_edge(rng, capacities, k, horizon)
    retriever = FairRetriever(
        catalog, k=k, floors=floors, horizon=horizon, batch_size=batch, max_exclude=e, policy=policy
    )
    assert retriever.terms.capacities.tolist() == capacities.tolist()
    for user in world.users:
        excluded = hostile(retriever, catalog.embeddings @ user, e, rng)
        found = retriever.retrieve(user[None], exclude=[excluded])
        assert not set(found.rows[0].tolist()) & set(excluded)
        assert len(set(found.rows[0].tolist())) == k
        assert not found.short.any()
    assert retriever.limited_requests == 0
    if policy == "guaranteed":
        assert retriever.report().esp == 1


@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 4, 16]), k=st.integers(1, 5), best=st.booleans())
@effort(examples=60, seconds_each=0.3)
def test_floors_hold_at_the_very_edge_if_undeclared_exclusions_leave_what_they_need(
    seed: int, batch: int, k: int, best: bool
) -> None:
    """Nothing was declared. Every request excludes all but min(k, items) of each group, and it is not limited."""
    rng = np.random.default_rng(seed)
    horizon = 40
    world = make_world(seed, groups=int(rng.integers(1, 5)), items=int(rng.integers(k + 1, 40)), horizon=horizon, k=k)
    catalog = world.catalog
    capacities = np.minimum(catalog.group_sizes, k)
    floors = floors_at_the_edge(rng, capacities, k, horizon)
    retriever = FairRetriever(catalog, k=k, floors=floors, horizon=horizon, batch_size=batch)
    for user in world.users:
        scores = catalog.embeddings @ user if best else rng.random(len(catalog))
        excluded: list[int] = []
        for group, capacity in enumerate(capacities.tolist()):
            rows = np.flatnonzero(catalog.group_of == group)
            excluded += rows[np.argsort(-scores[rows])][: len(rows) - capacity].tolist()
        found = retriever.retrieve(user[None], exclude=[excluded])
        assert not set(found.rows[0].tolist()) & set(excluded)
    assert (retriever.limited_requests, retriever.report().esp) == (0, 1)


@given(seed=st.integers(0, 10**6), e=st.integers(1, 5), batch=st.sampled_from([1, 7]))
@settings(max_examples=40, deadline=None)
def test_a_batch_with_exclusions_holds_floors_as_single_requests_do(seed: int, e: int, batch: int) -> None:
    rng = np.random.default_rng(seed)
    world = make_world(seed, items=25, horizon=30, k=3)
    capacities = np.minimum(np.maximum(world.catalog.group_sizes - e, 0), 3)
    floors = floors_at_the_edge(rng, capacities, 3, 30)
    retriever = FairRetriever(world.catalog, k=3, floors=floors, horizon=30, batch_size=batch, max_exclude=e)
    scores = world.users @ world.catalog.embeddings.T
    excluded = [np.argsort(-row)[:e] for row in scores]
    found = retriever.retrieve(world.users, exclude=excluded)
    for rows, gone in zip(found.rows, excluded, strict=True):
        assert not set(rows.tolist()) & set(gone.tolist())
    assert retriever.report().esp == 1


@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 5, 16]), tightness=st.sampled_from([0.3, 0.9]))
@settings(max_examples=40, deadline=None)
def test_requests_beyond_what_was_declared_are_answered_all_the_same(seed: int, batch: int, tightness: float) -> None:
    """Floors that can still be met when the last such request has come are met."""
    rng = np.random.default_rng(seed)
    world = make_world(seed, items=24, horizon=50, tightness=tightness)
    attributes = {"group": world.catalog.group_of, "number": rng.integers(6, size=24)}
    catalog = Catalog(world.catalog.embeddings, attributes)
    retriever = FairRetriever(catalog, k=world.k, floors=world.floors, horizon=50, batch_size=batch)
    returned, limited = np.zeros(catalog.n_groups, dtype=np.int64), 0
    free_from = int(rng.integers(50))
    for number, user in enumerate(world.users):
        if number == free_from:
            certain = can_be_met(np.maximum(retriever.terms.floors - returned, 0), 50 - number, retriever.terms)
        where: Any = {"number": {"at_least": int(rng.integers(5))}} if rng.random() < 0.5 else None
        exclude = rng.permutation(24)[: rng.integers(25)].tolist()
        if number >= free_from:
            where, exclude = None, []
        try:
            eligible, _ = make_eligibility([exclude], where, catalog, 1)
        except InvalidInputError:
            continue  # no item has such a number: not a request
        mask = np.ones(24, dtype=bool) if eligible is None else eligible.mask(0)
        limited += cannot_show(catalog, retriever.terms, mask)
        found = retriever.retrieve(user[None], exclude=[exclude], where=where)
        rows = found.rows[0][found.rows[0] >= 0]
        assert mask[rows].all()
        assert len(set(rows.tolist())) == len(rows) == min(world.k, int(mask.sum()))
        assert found.short.tolist() == [mask.sum() < world.k]
        returned += np.bincount(catalog.group_of[rows], minlength=catalog.n_groups)
    assert [*retriever.report().exposures.values()] == returned.tolist()
    assert retriever.limited_requests == limited
    assert retriever.report().esp == 1 or not certain


@pytest.mark.parametrize(
    "policy", ["guaranteed", "fairsync", "none", "k-neighbor", "ipw", "regularized-fair", "uncalibrated"]
)
def test_every_policy_answers_with_eligible_items_only(policy: str) -> None:
    """Also one that masks groups: a list is short only if too few items are eligible."""
    rng = np.random.default_rng(3)
    world = make_world(5, items=40, horizon=80, tightness=0.4)
    catalog = Catalog(world.catalog.embeddings, {"group": world.catalog.group_of, "new": rng.random(40) < 0.2})
    retriever = FairRetriever(catalog, k=world.k, floors=world.floors, horizon=80, policy=policy)
    where: list[Any] = [None, {"new": True}, {"new": True, "group": 0}, {"group": {"not": [0, 1]}}] * 20
    found = retriever.retrieve(world.users, where=where)
    eligible, _ = make_eligibility(None, where, catalog, 80)
    assert eligible is not None
    assert ((found.rows >= 0).sum(axis=1) == np.minimum(eligible.counts, world.k)).all()
    there = found.rows >= 0
    assert eligible.allows(np.nonzero(there)[0], found.rows[there]).all()
    assert retriever.limited_requests == 60


def test_a_short_list_has_fillers_and_says_so() -> None:
    embeddings = np.array([[3.0], [2.0], [1.0]])
    for ids, filler in ((["x", "y", "z"], ""), ([7, 8, 9], -1), (None, -1)):
        catalog = Catalog(embeddings, ["a", "b", "b"], ids)
        names = catalog.ids.tolist()
        found = FairRetriever(catalog, k=2).retrieve(np.ones((2, 1)), exclude=[names[:2], []])
        assert found.ids.tolist() == [[names[2], filler], names[:2]]
        assert found.groups.tolist() == [["b", ""], ["a", "b"]]
        assert found.relevance.tolist() == [[1.0, -np.inf], [3.0, 2.0]]
        assert found.short.tolist() == [True, False]
        assert found.to_polars().height == 3
        assert "1 with fewer than k" in repr(found)
        again = type(found).load(found.dump(0))
        assert (again.ids.tolist(), again.short.tolist()) == ([[names[2], filler]], [True])
    nothing = FairRetriever(catalog, k=2).retrieve(np.ones((1, 1)), exclude=[[0, 1, 2]])
    assert nothing.rows.tolist() == [[-1, -1]]


def test_unknown_ids_are_ignored_and_counted() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "b"], ["x", "y", "z"])
    found = FairRetriever(catalog, k=2).retrieve(np.ones((3, 3)), exclude=[["x", "q", "r", "x"], [], ["long" * 50]])
    assert found.unknown_excluded.tolist() == [2, 0, 1]
    assert found.ids.tolist() == [["y", "z"], ["x", "y"], ["x", "y"]]
    assert found.take(slice(0, 1)).unknown_excluded.tolist() == [2]


def test_ids_may_come_as_lists_tuples_sets_arrays_or_a_matrix() -> None:
    catalog = Catalog(np.eye(4), ["a", "b", "b", "a"])
    matrix = csr_matrix(np.array([[1, 0, 0, 2], [0, 0, 0, 0]]))
    for lists in ([[0, 3], []], ((0, 3), None), [{0, 3}, set()], [np.array([3, 0]), np.array([], dtype=int)], matrix):
        eligible, unknown = make_eligibility(lists, None, catalog, 2)
        assert eligible is not None
        assert eligible.mask(0).tolist() == [False, True, True, False]
        assert (eligible.counts.tolist(), unknown.tolist()) == ([2, 4], [0, 0])
    assert make_eligibility([[], [9]], [None, {}], catalog, 2)[0] is None


@pytest.mark.parametrize(
    ("exclude", "where", "message"),
    [
        ([["x"]], None, "2 requests, and exclude has 1"),
        (["x", "y"], None, "list of ids for each request, .*got 'x' for request 0"),
        ("xy", None, "list of ids for each request"),
        ([["x"], 3], None, "for request 1"),
        ([[1], [2]], None, "words"),
        ([["x", 1], []], None, "mix str"),
        ([[None], []], None, "NoneType"),
        ([[1.5], []], None, "float"),
        (csr_matrix((2, 2)), None, r"\(2, 3\)"),
        (None, [{}], "2 requests, and 1 conditions"),
        (None, "toys", "must be a dict"),
        (None, [None, {"regoin": "DE"}], "request 1: .*Did you mean 'region'"),
        (None, [None, {"region": "FR"}], "request 1: no item meets"),
        (None, {"region": "FR"}, "no item meets"),
    ],
)
def test_what_has_no_meaning_is_refused_and_counts_nothing(exclude: Any, where: Any, message: str) -> None:
    catalog = Catalog(np.eye(3), {"region": ["DE", "AT", "DE"]}, ids=["x", "y", "z"])
    retriever = FairRetriever(catalog, k=2)
    with pytest.raises(InvalidInputError, match=message):
        retriever.retrieve(np.ones((2, 3)), exclude=exclude, where=where)
    assert sum(retriever.report().exposures.values()) == 0


def test_half_a_million_excluded_ids() -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(1000, 4)), np.arange(1000) % 3)
    found = FairRetriever(catalog, k=2).retrieve(np.ones((1, 4)), exclude=[list(range(10, 500_010))])
    assert (found.rows < 10).all()
    assert found.unknown_excluded.tolist() == [499_010]


def test_floors_that_exclusions_make_impossible_are_named() -> None:
    catalog = Catalog(np.ones((12, 2)), ["small"] * 3 + ["big"] * 9)
    FairRetriever(catalog, k=2, floors={"small": 10}, horizon=10, max_exclude=2)
    with pytest.raises(
        InfeasibleFloorsError, match=r"'small' is 11.*3 items, of which a request may exclude 2"
    ) as error:
        FairRetriever(catalog, k=2, floors={"small": 11}, horizon=10, max_exclude=2)
    assert "at most 1 × 10" in str(error.value)
    with pytest.raises(InvalidInputError, match="fewer than k = 2"):
        FairRetriever(catalog, k=2, max_exclude=11)
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(InvalidInputError, match="max_exclude must be"):
            FairRetriever(catalog, k=2, max_exclude=wrong)  # type: ignore[arg-type]
    retriever = FairRetriever(catalog, k=2, floors={"small": 10}, horizon=10, max_exclude=2)
    with pytest.raises(InfeasibleFloorsError):
        retriever.promise({"small": 11})
    with pytest.raises(InfeasibleFloorsError):
        retriever.remove([0])


def test_what_is_sold_out_is_not_shown_from_the_next_request_on() -> None:
    catalog = Catalog(
        np.array([[3.0], [2.0], [1.0]]), {"group": ["a", "b", "b"], "in_stock": [True] * 3}, ["x", "y", "z"]
    )
    retriever = FairRetriever(catalog, k=1)
    user, there = np.ones((1, 1)), {"in_stock": True}
    index = retriever.index
    assert retriever.retrieve(user, where=there).ids.tolist() == [["x"]]
    retriever.upsert(None, {"in_stock": [False]}, ["x"])
    assert retriever.retrieve(user, where=there).ids.tolist() == [["y"]]
    assert retriever.retrieve(user).ids.tolist() == [["x"]]
    assert retriever.index is index


def test_max_exclude_is_saved_with_the_retriever(tmp_path: Any) -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(12, 2)), ["small"] * 3 + ["big"] * 9)
    retriever = FairRetriever(catalog, k=2, floors={"small": 10}, horizon=10, max_exclude=2)
    retriever.retrieve(np.ones((3, 2)), exclude=[[0, 1]] * 3)
    retriever.save(tmp_path / "saved")
    loaded = FairRetriever.load(tmp_path / "saved")
    assert loaded.terms.max_exclude == 2
    assert loaded.terms.capacities.tolist() == retriever.terms.capacities.tolist()


def test_a_long_call_is_the_same_as_single_requests() -> None:
    """Rules are evaluated batch by batch: a condition that no item meets late in the call counts nothing at all."""
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(60, 4)), {"group": rng.integers(3, size=60), "price": rng.random(60)})
    users = rng.normal(size=(50, 4))
    where = [{"price": {"at_most": float(limit)}} for limit in rng.uniform(0.2, 1, size=50)]
    exclude = [rng.integers(60, size=rng.integers(8)).tolist() for _ in range(50)]
    floors = {0: 20, 1: 30}
    one, other = (FairRetriever(catalog, k=3, floors=floors, horizon=50, batch_size=8) for _ in range(2))
    found = one.retrieve(users, exclude, where)
    singles = [other.retrieve(users[i : i + 1], exclude[i : i + 1], where[i : i + 1]) for i in range(50)]
    assert found.ids.tolist() == [single.ids[0].tolist() for single in singles]
    assert one.report().exposures == other.report().exposures
    assert one.report().prices == other.report().prices
    before = one.report()
    with pytest.raises(InvalidInputError, match="request 45: no item meets"):
        one.retrieve(users, exclude, [*where[:45], {"price": 7.0}, *where[46:]])
    assert one.report() == before
    rules, _ = make_eligibility(exclude, where, catalog, 50)
    assert rules is not None
    assert one.limited_requests == sum(cannot_show(catalog, one.terms, rules.mask(i)) for i in range(50)) > 0
