"""Cold requests: marked, answered by the fallback, and floors hold with any mix of cold and other requests."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import effort
from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.cold_start.cold_start import WINDOW, ColdStart
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from worlds import make_world

Floats = npt.NDArray[np.float64]


def edge_floors(catalog: Catalog, k: int, horizon: int, e: int, rng: np.random.Generator) -> dict[int, int]:
    """Floors that promise every slot, or all that the groups can show."""
    capacities, left, floors = np.minimum(np.maximum(catalog.group_sizes - e, 0), k), horizon * k, {}
    for group in rng.permutation(catalog.n_groups).tolist():
        floors[group] = min(left, horizon * int(capacities[group]))
        left -= floors[group]
    return floors


def some_fallback(kind: str, catalog: Catalog, rng: np.random.Generator) -> Any:
    some = rng.permutation(len(catalog))[: rng.integers(1, len(catalog) + 1)]
    return {"mean": "mean", "vector": rng.normal(size=catalog.dim), "ids": some.tolist()}[kind]


def best_rows(catalog: Catalog, vector: Floats, k: int) -> list[int]:
    scores = catalog.embeddings @ vector
    return [int(row) for row in np.lexsort((np.arange(len(scores)), -scores))[:k]]


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["mean", "vector", "ids"]),
    share=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    e=st.integers(0, 3),
    batch=st.sampled_from([1, 4, 16]),
    call=st.sampled_from([1, 7, 40]),
    count=st.booleans(),
)
@effort(examples=60, seconds_each=0.3)
def test_floors_at_the_edge_hold_with_any_mix_of_cold_requests(
    seed: int, kind: str, share: float, e: int, batch: int, call: int, count: bool
) -> None:
    rng, horizon, k = np.random.default_rng(seed), 40, 3
    world = make_world(seed, items=20, horizon=200, k=k)
    catalog = world.catalog
    floors = edge_floors(catalog, k, horizon, e, rng)
    cold = rng.random(200) < share
    if not count:  # enough of the others that the horizon ends
        cold[:horizon] = rng.random(horizon) < 0.5
        cold[150:] = False
    users = np.where(cold[:, None], 0.0, world.users)
    retriever = FairRetriever(
        catalog, k=k, floors=floors, horizon=horizon, batch_size=batch, max_exclude=e,
        cold=some_fallback(kind, catalog, rng), count_cold=count,
    )  # fmt: skip
    counts, counted, start = np.zeros(catalog.n_groups, dtype=int), 0, 0
    while counted < horizon:
        n = min(call, horizon - counted)
        here = slice(start, start + n)
        excluded = [rng.permutation(len(catalog))[:e] for _ in range(n)]
        found = retriever.retrieve(users[here], exclude=excluded)
        assert found.cold.tolist() == cold[here].tolist()
        for rows, gone in zip(found.rows.tolist(), excluded, strict=True):
            assert len(set(rows)) == k
            assert not set(rows) & set(gone.tolist())
        which = np.ones(n, dtype=bool) if count else ~cold[here]
        counts += np.bincount(catalog.group_of[found.rows[which]].ravel(), minlength=catalog.n_groups)
        counted, start = counted + int(which.sum()), start + n
    report = retriever.report()
    assert (report.requests, report.esp, retriever.limited_requests) == (horizon, 1, 0)
    assert list(report.exposures.values()) == counts.tolist()


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["mean", "vector", "ids"]),
    batch=st.sampled_from([1, 5, 16]),
    policy=st.sampled_from(["guaranteed", "fairsync"]),
)
@settings(max_examples=30, deadline=None)
def test_requests_that_do_not_count_change_nothing_for_the_others(
    seed: int, kind: str, batch: int, policy: str
) -> None:
    """Answers, counts, prices and the progress of the horizon are those without the cold requests, bit for bit."""
    rng = np.random.default_rng(seed)
    world = make_world(seed, items=24, horizon=60, tightness=0.8)
    catalog, fallback = world.catalog, some_fallback(kind, world.catalog, rng)
    given_terms: dict[str, Any] = {"k": 4, "floors": world.floors, "horizon": 60, "batch_size": batch, "policy": policy}
    mixed = FairRetriever(catalog, cold=fallback, count_cold=False, **given_terms)
    plain = FairRetriever(catalog, **given_terms)
    users = np.insert(world.users, np.sort(rng.integers(60, size=30)), 0.0, axis=0)
    cold = ~users.any(axis=1)
    found = Candidates.join([mixed.retrieve(part) for part in np.array_split(users, 4)])
    alone = plain.retrieve(world.users)
    assert found.cold.tolist() == cold.tolist()
    assert found.rows[~cold].tolist() == alone.rows.tolist()
    assert found.relevance[~cold].tolist() == alone.relevance.tolist()
    ours, theirs = mixed.report(), plain.report()
    assert (ours.exposures, ours.prices, ours.requests) == (theirs.exposures, theirs.prices, theirs.requests)
    if kind == "vector":  # and theirs are made without prices
        assert all(sorted(rows) == sorted(best_rows(catalog, fallback, 4)) for rows in found.rows[cold].tolist())


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["mean", "ids"]),
    interests=st.sampled_from([1, 3]),
    count=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_the_division_into_calls_makes_no_difference(seed: int, kind: str, interests: int, count: bool) -> None:
    rng = np.random.default_rng(seed)
    world = make_world(seed, items=24, horizon=300, tightness=0.5, interests=interests)
    users = world.users.copy()
    users[rng.random(300) < 0.3] = 0
    fallback = some_fallback(kind, world.catalog, rng)

    def made() -> FairRetriever:
        return FairRetriever(
            world.catalog, k=4, floors=world.floors, horizon=300, cold=fallback, count_cold=count, batch_size=8
        )

    one, several = made(), made()
    whole = one.retrieve(users)
    parts = np.split(users, np.sort(rng.integers(300, size=12)))
    joined = Candidates.join([several.retrieve(part) for part in parts if len(part)])
    assert whole.rows.tolist() == joined.rows.tolist()
    assert whole.relevance.tolist() == joined.relevance.tolist()
    assert one.report().exposures == several.report().exposures


def test_the_mean_is_that_of_the_latest_requests_and_before_them_that_of_the_items() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(50, 6)), np.arange(50) % 3)
    retriever, seen = FairRetriever(catalog, k=5), list[Floats]()
    for user in np.where(rng.random((2 * WINDOW, 1)) < 0.3, 0.0, rng.normal(size=(2 * WINDOW, 6)) + 1):
        found = retriever.retrieve(user[None])
        vector = user
        if not user.any():
            vector = np.mean(seen[-WINDOW:], axis=0) if seen else catalog.embeddings.mean(axis=0)
        else:
            seen.append(user)
        assert found.cold.tolist() == [not user.any()]
        assert found.rows[0].tolist() == best_rows(catalog, vector, 5)
        np.testing.assert_allclose(found.relevance[0], catalog.embeddings[found.rows[0]] @ vector)
    assert len(seen) > WINDOW


def test_past_users_are_the_first_of_the_mean() -> None:
    world = make_world(3, items=30, horizon=50)
    retriever = FairRetriever(world.catalog, k=4).calibrate(np.vstack([world.users[:20], np.zeros((3, 5))]))
    found = retriever.retrieve(np.zeros((1, 5)))
    scores = world.catalog.embeddings @ world.users[:20].mean(axis=0)
    np.testing.assert_allclose(found.relevance[0], np.sort(scores)[::-1][:4])


def test_a_request_is_cold_only_if_all_its_interests_are_zero() -> None:
    catalog = Catalog(np.eye(4)[:, :3] + 0.1, [0, 1, 2, 3])
    users = np.zeros((3, 2, 3))
    users[0, 1, 2], users[2, 0, 1] = 1.0, -0.0
    found = FairRetriever(catalog, k=2).retrieve(users)
    assert found.cold.tolist() == [False, True, True]
    assert found.relevance[1].tolist() == (catalog.embeddings @ users[0].mean(axis=0))[found.rows[1]].tolist()


def test_never_the_order_of_ids() -> None:
    """Not even if users, and items, cancel each other out."""
    rng = np.random.default_rng(1)
    half = rng.normal(size=(50, 4)).round(2)
    catalog = Catalog(np.vstack([half, -half]), np.arange(100) % 2)
    retriever = FairRetriever(catalog, k=5)
    first = retriever.retrieve(np.zeros((1, 4)))
    retriever.retrieve(np.vstack([half[:1], -half[:1]]))
    second = retriever.retrieve(np.zeros((1, 4)))
    for found in (first, second):
        assert sorted(found.rows[0].tolist()) != [0, 1, 2, 3, 4]
        assert len(set(found.relevance[0].tolist())) == 5


@pytest.mark.parametrize("scale", [1e9, 1e-12])
def test_a_fallback_that_half_precision_cannot_hold(scale: float) -> None:
    rng = np.random.default_rng(2)
    catalog = Catalog(rng.normal(size=(30, 4)) * scale + scale, np.arange(30) % 2)
    users = np.zeros((2, 4), dtype=np.float16)
    users[1] = 1
    found = FairRetriever(catalog, k=3).retrieve(users)
    assert found.cold.tolist() == [True, False]
    assert np.isfinite(found.relevance).all()
    assert found.rows[0].tolist() == best_rows(catalog, catalog.embeddings.mean(axis=0), 3)


@pytest.mark.parametrize("count", [True, False])
def test_given_ids_come_first_in_their_order_and_obey_the_rules_of_the_request(count: bool) -> None:
    rng = np.random.default_rng(4)
    names = np.array([f"item {i}" for i in range(40)])
    catalog = Catalog(rng.normal(size=(40, 5)), {"group": np.arange(40) % 4, "new": np.arange(40) % 2 == 0}, names)
    order = [7, 30, 2, 9]
    retriever = FairRetriever(catalog, k=6, cold=names[order].tolist(), count_cold=count)
    warm = rng.normal(size=(3, 5))
    users = np.vstack([warm, np.zeros((3, 5))])
    found = retriever.retrieve(
        users, exclude=[[], [], [], [], ["item 30", "item 1"], []], where=[None] * 5 + [{"new": True}]
    )
    best = best_rows(catalog, warm.mean(axis=0), 40)
    for i, (listed, barred) in enumerate([(order, set()), ([7, 2, 9], {30, 1}), ([30, 2], set(range(1, 40, 2)))]):
        rest = [row for row in best if row not in barred and row not in listed]
        assert found.rows[3 + i].tolist() == [*listed, *rest][:6]
        assert found.ids[3 + i].tolist() == names[found.rows[3 + i]].tolist()
        np.testing.assert_allclose(
            found.relevance[3 + i], catalog.embeddings[found.rows[3 + i]] @ warm.mean(axis=0), atol=1e-12
        )
    assert retriever.report().requests == (6 if count else 3)
    assert retriever.report().cost == 0
    retriever.remove(["item 7"])
    assert retriever.retrieve(np.zeros((1, 5))).ids[0, :3].tolist() == ["item 30", "item 2", "item 9"]


def test_a_call_that_fails_leaves_no_trace_in_the_mean() -> None:
    class Failing(ExactIndex):
        fails = False

        def search(self, *args: Any) -> Any:
            if self.fails:
                raise FairSyncError("it fails.")
            return super().search(*args)

    world = make_world(5, items=20, horizon=40)
    index = Failing(world.catalog)
    retriever, other = (FairRetriever(world.catalog, k=3, index=one) for one in (index, "exact"))
    retriever.retrieve(world.users[:3])
    index.fails = True
    with pytest.raises(FairSyncError, match="it fails"):
        retriever.retrieve(world.users[3:9])
    index.fails = False
    other.retrieve(world.users[:3])
    answers = [one.retrieve(np.zeros((1, 5))) for one in (retriever, other)]
    assert answers[0].relevance.tolist() == answers[1].relevance.tolist()


@pytest.mark.parametrize("kind", ["mean", "vector", "ids"])
def test_a_saved_retriever_continues_with_the_mean(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    world = make_world(6, items=20, horizon=WINDOW + 40)
    fallback = some_fallback(kind, world.catalog, rng)
    retriever = FairRetriever(world.catalog, k=3, floors=5, horizon=500, cold=fallback, count_cold=False)
    retriever.retrieve(world.users)
    if kind == "ids":
        retriever.remove(fallback[:1])  # a list may name items that are no longer there
    retriever.save(tmp_path / "saved")
    loaded = FairRetriever.load(tmp_path / "saved")
    asked = np.vstack([np.zeros((2, 5)), world.users[:1], np.zeros((1, 5))])
    ours, theirs = retriever.retrieve(asked), loaded.retrieve(asked)
    assert ours.cold.tolist() == theirs.cold.tolist() == [True, True, False, True]
    assert ours.relevance.tolist() == theirs.relevance.tolist()
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert loaded.report() == retriever.report()
    assert loaded.report().requests == WINDOW + 41


def test_another_model_has_another_mean() -> None:
    rng = np.random.default_rng(7)
    groups = np.arange(20) % 2
    retriever = FairRetriever(Catalog(rng.normal(size=(20, 4)), groups), k=3, cold=rng.normal(size=4))
    retriever.retrieve(rng.normal(size=(5, 4)))
    other = Catalog(rng.normal(size=(20, 6)), groups)
    with pytest.raises(InvalidInputError, match="4 dimensions, but the items have 6"):
        retriever.replace(other)
    retriever.replace(other, cold="mean")
    found = retriever.retrieve(np.zeros((1, 6)))
    assert found.rows[0].tolist() == best_rows(other, other.embeddings.mean(axis=0), 3)


@pytest.mark.parametrize(
    ("cold", "message"),
    [
        ("median", 'must be "mean", a vector of floats, or a list of ids'),
        (3, "must be"),
        ([], "empty"),
        ([0.0, 0.0], "zero vector"),
        ([1.0], "1 dimensions, but the items have 2"),
        ([1.0, float("nan")], "NaN"),
        ([0.5, "x"], "mixes"),
        ([[1.0, 2.0]], "one vector of 2 numbers"),
        (["x", "gone", "lost"], "2 of 3 ids that the catalog does not hold, such as 'gone'"),
        ([1, 2], "the catalog's ids are words, and these are numbers"),
        ({"x": 1}, "must be"),
    ],
)
def test_a_fallback_that_cannot_be_is_refused(cold: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        FairRetriever(Catalog(np.eye(2), ["a", "b"], ["x", "y"]), k=1, cold=cold)


def test_without_cold_requests_the_same_array_is_searched() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "c"])
    users = np.array([[[1.0, 0.0, 0.0]], [[0.0, 0.0, 2.0]]])
    vectors, cold = ColdStart(catalog).fill(users, catalog)
    assert vectors is users
    assert cold is None
    assert FairRetriever(catalog, k=1).retrieve(users[:0]).cold.tolist() == []


def test_answers_keep_the_mark() -> None:
    catalog = Catalog(np.eye(3) + 0.1, ["a", "b", "c"])
    found = FairRetriever(catalog, k=1).retrieve(np.array([[0.0] * 3, [1.0, 0.0, 0.0]]))
    assert [Candidates.load(found.dump(i)).cold.tolist() for i in range(2)] == [[True], [False]]
    assert found.take(slice(0, 1)).cold.tolist() == [True]
    assert Candidates.join([found, found]).cold.tolist() == [True, False] * 2
    assert "1 cold" in repr(found)
    assert Candidates.load(b'[["x"], ["a"], [0.5], 1.0]').cold.tolist() == [False]  # as earlier versions saved it


def test_the_mark_is_no_explanation() -> None:
    catalog = Catalog(np.eye(3) + 0.1, ["a", "b", "c"])
    retriever, users = FairRetriever(catalog, k=1), np.array([[0.0] * 3, [1.0, 0.0, 0.0]])
    plain, explained = retriever.retrieve(users), retriever.retrieve(users, explain=True)
    for i in range(2):
        assert Candidates.load(plain.dump(i)).explained == ()
        loaded = Candidates.load(explained.dump(i))
        assert loaded.cold.tolist() == [i == 0]
        assert loaded.explain() == explained.explain(i)
