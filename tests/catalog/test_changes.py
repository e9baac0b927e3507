"""Items come, go and move while requests arrive: answers stay exact, counts and floors stay right."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.catalog.changes import remove_items, upsert_items
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError
from fairsync.policies import POLICIES
from fairsync.retriever import FairRetriever
from fairsync.search import ShardedIndex
from worlds import make_world

DIM = 4


def test_a_change_says_what_is_the_same() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "b"])  # ids are row numbers
    change = remove_items(catalog, [0])
    assert change.catalog.ids.tolist() == [1, 2]
    back = upsert_items(change.catalog, [[9.0, 9.0, 9.0]], ["a"], [0])
    assert back.catalog.ids.tolist() == [1, 2, 0]
    assert back.catalog.labels == ["a", "b"]
    assert back.rows.tolist() == [0, 1]
    assert catalog.ids.tolist() == [0, 1, 2]  # the one before is as it was


def shown(counts: Counter[object], groups: npt.NDArray[np.str_]) -> None:
    counts.update(groups.ravel().tolist())


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("index", ["exact", "one-hot"])
def test_counts_are_what_was_shown_when_it_was_shown(policy: str, index: str) -> None:
    """A moved item counts for its old group until it moves, and for the new one from then on."""
    rng = np.random.default_rng(5)
    catalog = Catalog(
        rng.normal(size=(40, DIM)), [f"g{g}" for g in np.arange(40) % 4], ids=[f"i{i}" for i in range(40)]
    )
    retriever = FairRetriever(catalog, k=5, floors=30, horizon=120, policy=policy, batch_size=8, index=index)
    counts: Counter[object] = Counter()
    for part in range(6):
        shown(counts, retriever.retrieve(rng.normal(size=(20, DIM)) + 0.5).groups)
        if part == 1:
            retriever.upsert(rng.normal(size=(3, DIM)), ["g3", "g3", "late"], ["i0", "i1", "new"])
        if part == 3:
            retriever.remove(["i2", "i3"])
    assert retriever.report().exposures == {label: counts[label] for label in ["g0", "g1", "g2", "g3", "late"]}
    assert sum(counts.values()) == 600
    if policy == "guaranteed":
        assert retriever.report().esp == 1


@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 4, 16]), kind=st.sampled_from(["exact", "one-hot"]))
@settings(max_examples=40, deadline=None)
def test_floors_hold_through_every_change_that_is_accepted(seed: int, batch: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    world = make_world(seed, tightness=float(rng.uniform(0.2, 0.99)), horizon=40, even=bool(rng.random() < 0.5))
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=40, batch_size=batch, index=kind)
    next_id, refused = 1000, 0
    for start in range(0, 40, 5):
        retriever.retrieve(world.users[start : start + 5])
        before = retriever.catalog
        ids = before.ids.tolist()
        try:
            if rng.random() < 0.5:
                retriever.remove(rng.choice(ids, size=rng.integers(1, 6), replace=False).tolist())
            else:
                names = [int(rng.choice(ids)), next_id]
                next_id += 1
                retriever.upsert(rng.normal(size=(2, 5)), rng.integers(6, size=2), names)
        except FairSyncError:
            refused += 1
            assert retriever.catalog is before  # nothing was changed
    report = retriever.report()
    assert report.requests == 40
    assert report.esp == 1
    assert {label: report.floors[label] for label in world.floors} == world.floors


def test_a_group_that_disappears_must_be_released() -> None:
    catalog = Catalog(np.eye(6), ["a", "a", "a", "b", "b", "c"])
    retriever = FairRetriever(catalog, k=2, floors={"a": 4, "b": 5, "c": 3}, horizon=10, batch_size=2)
    retriever.retrieve(np.ones((4, 6)))
    had = retriever.report().exposures["c"]
    with pytest.raises(InfeasibleFloorsError, match="'c'"):
        retriever.remove([5])
    assert len(retriever.catalog) == 6
    retriever.remove([5], floors={"a": 4, "b": 5})
    retriever.retrieve(np.ones((6, 6)))
    report = retriever.report()
    assert report.exposures["c"] == had
    assert report.floors == {"a": 4, "b": 5, "c": 0}
    assert report.esp == 1
    retriever.upsert(np.eye(6)[5:], ["c"], [5])  # and it may come back
    retriever.promise({"c": 10})
    retriever.retrieve(np.ones((10, 6)))
    assert retriever.report().exposures["c"] >= 10


def test_a_group_that_appears_can_be_promised_exposure_at_once() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(50, DIM)) + 1, rng.integers(3, size=50))
    retriever = FairRetriever(catalog, k=5, floors=20, horizon=100)
    retriever.retrieve(rng.normal(size=(50, DIM)) + 1)
    retriever.upsert(rng.normal(size=(2, DIM)) - 5, [9, 9], [100, 101], floors={0: 20, 1: 20, 2: 20, 9: 60})
    retriever.retrieve(rng.normal(size=(50, DIM)) + 1)
    report = retriever.report()
    assert report.exposures[9] >= 60  # two items in fifty requests: at most 100
    assert report.esp == 1
    retriever.retrieve(rng.normal(size=(100, DIM)) + 1)
    assert retriever.report().esp == 1  # in the next horizon too
    late = FairRetriever(catalog, k=5, floors=0, horizon=100)
    late.retrieve(rng.normal(size=(90, DIM)))
    with pytest.raises(InvalidInputError, match="cannot be met"):
        late.upsert(rng.normal(size=(2, DIM)), [9, 9], [100, 101], floors={9: 60})


def test_another_model_takes_over_with_the_counts_so_far() -> None:
    rng = np.random.default_rng(1)
    labels = [f"g{g}" for g in rng.integers(4, size=80)]
    retriever = FairRetriever(Catalog(rng.normal(size=(80, 6)), labels), k=5, floors=60, horizon=200, batch_size=8)
    counts: Counter[object] = Counter()
    shown(counts, retriever.retrieve(rng.normal(size=(120, 6))).groups)
    newer = Catalog(rng.normal(size=(70, 3)) * 100, [f"g{g}" for g in np.arange(70) % 5 + 0])
    retriever.replace(newer, index=lambda catalog: ShardedIndex(catalog, shards=2))
    retriever.calibrate(rng.normal(size=(50, 3)))
    shown(counts, retriever.retrieve(rng.normal(size=(80, 3))).groups)
    report = retriever.report()
    assert report.exposures == {f"g{g}": counts[f"g{g}"] for g in range(5)}
    assert report.floors == {"g0": 60, "g1": 60, "g2": 60, "g3": 60, "g4": 0}
    assert report.esp == 1
    with pytest.raises(InvalidInputError, match="dimension"):
        retriever.retrieve(np.ones((1, 6)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: r.upsert([[1.0, np.nan]], ["a"], ["n"]), "nan"),
        (lambda r: r.upsert([[1.0, 2.0, 3.0]], ["a"], ["n"]), "3 dimensions"),
        (lambda r: r.upsert([[1.0, 2.0]], ["a"], [5]), "words"),
        (lambda r: r.upsert([[1.0, 2.0]], [5], ["n"]), "words"),
        (lambda r: r.upsert([[1.0, 2.0]] * 2, ["a", "a"], ["n", "n"]), "distinct"),
        (lambda r: r.upsert([[1.0, 2.0]], ["a"], ["n"], floors={"zzz": 1}), "zzz"),
        (lambda r: r.remove(["x", "nobody"]), "no item 'nobody'"),
        (lambda r: r.remove(["x", "y", "z"]), "at least one"),
        (lambda r: r.remove(["x", "y"]), "k"),
        (lambda r: r.promise(10**6), "cannot be met"),
    ],
)
def test_a_bad_change_is_refused_and_nothing_is_changed(change: Callable[[FairRetriever], None], why: str) -> None:
    catalog = Catalog(np.eye(3, 2), ["a", "b", "b"], ids=["x", "y", "z"])
    retriever = FairRetriever(catalog, k=2, floors={"a": 1}, horizon=10)
    before = (retriever.catalog, retriever.index, retriever.terms)
    with pytest.raises(FairSyncError, match=why):
        change(retriever)
    assert (retriever.catalog, retriever.index, retriever.terms) == before
    retriever.retrieve(np.ones((10, 2)))
    assert retriever.report().esp == 1


def test_changes_may_come_while_others_retrieve() -> None:
    rng = np.random.default_rng(3)
    catalog = Catalog(rng.normal(size=(200, DIM)), rng.integers(4, size=200))
    retriever = FairRetriever(catalog, k=5, floors=100, horizon=800, batch_size=8, index="one-hot")
    counts: list[Counter[object]] = [Counter() for _ in range(4)]

    def serve(mine: int) -> None:
        own = np.random.default_rng(mine)
        for _ in range(20):
            shown(counts[mine], retriever.retrieve(own.normal(size=(10, DIM))).groups)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(40):
        retriever.upsert(rng.normal(size=(2, DIM)), [number % 4, 4], [number, 1000 + number])
    for thread in threads:
        thread.join()
    total = sum(counts, Counter())
    report = retriever.report()
    assert report.exposures == {label: total[label] for label in range(5)}
    assert report.requests == 800
    assert report.esp == 1


@pytest.mark.parametrize(
    ("ids", "says"), [([], "no ids"), (np.array([], dtype=str), "no ids"), (5, "ids must be"), (None, "ids must be")]
)
def test_nothing_to_remove_is_refused(ids: Any, says: str) -> None:
    retriever = FairRetriever(Catalog(np.eye(2), ["a", "b"]), k=1)
    with pytest.raises(InvalidInputError, match=says):
        retriever.remove(ids)


def test_ids_to_remove_may_come_from_anywhere() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "b"])
    assert remove_items(catalog, (i for i in (0, 2))).catalog.ids.tolist() == [1]  # type: ignore[arg-type]


@pytest.mark.parametrize("embeddings", [[[1.0], [1.0, 2.0]], "abc", [["x", "y"]], [[None, {}]]])
def test_embeddings_that_are_none_are_refused(embeddings: Any) -> None:
    with pytest.raises(InvalidInputError, match="embeddings must be"):
        upsert_items(Catalog(np.eye(2), ["a", "b"]), embeddings, ["a"], [0])


def test_labels_of_another_kind_are_refused() -> None:
    retriever = FairRetriever(Catalog(np.eye(2), ["1", "2"]), k=1, floors={"1": 2}, horizon=4)
    coordinator = Coordinator(retriever.catalog, k=1)
    front = FrontEnd(retriever.catalog, coordinator)
    other = Catalog(np.eye(2), [1, 2])
    changes: list[Callable[[], None]] = [
        lambda: retriever.replace(other),
        lambda: front.replace(other),
        lambda: retriever.upsert(np.eye(2), [1, 2], [0, 1]),
        lambda: front.upsert(np.eye(2), [1, 2], [0, 1]),
    ]
    for change in changes:
        with pytest.raises(InvalidInputError, match="the catalog's groups are words, and these are numbers"):
            change()
    assert retriever.catalog.labels == front.catalog.labels == ["1", "2"]
    retriever.replace(Catalog(np.eye(2), ["1", "3"]))  # another label is a new group
    assert retriever.catalog.labels == ["1", "2", "3"]
