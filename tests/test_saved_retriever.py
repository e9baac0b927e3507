"""A retriever that is saved to a folder and loaded answers and reports as the saved one goes on to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import MemoryLedger, SqlLedger
from fairsync.policies import POLICIES, FairSync
from fairsync.promises import each
from fairsync.retriever import FairRetriever
from fairsync.search import IvfIndex
from worlds import World, make_world

if TYPE_CHECKING:
    from pathlib import Path


def small_world(seed: int = 3) -> World:
    return make_world(seed, items=60, horizon=50, tightness=0.6)


def make_retriever(world: World, **options: Any) -> FairRetriever:
    return FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=50, **options)


def check_same(one: FairRetriever, other: FairRetriever, users: Any) -> None:
    """Check that two retrievers answer and report the same, bit for bit, over more than a horizon."""
    assert one.report() == other.report()
    for start in range(0, len(users), 7):
        found, expected = (each.retrieve(users[start : start + 7]) for each in (one, other))
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.relevance.tolist() == expected.relevance.tolist()
    assert one.report() == other.report()


@pytest.mark.parametrize("index", ["exact", "one-hot", "ivf"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_loaded_retriever_continues_like_the_saved_one(policy: str, index: str, tmp_path: Path) -> None:
    """In the middle of a price batch of the second horizon."""
    world = small_world()
    retriever = make_retriever(world, policy=policy, index=index)
    retriever.retrieve(np.concatenate([world.users, world.users[:21]]))
    retriever.save(tmp_path / "saved")
    check_same(FairRetriever.load(tmp_path / "saved"), retriever, np.concatenate([world.users] * 2))


def test_changes_of_items_and_promise_are_saved(tmp_path: Path) -> None:
    """Also a group whose items are gone, with its exposures."""
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(40, 6)), ["a"] * 20 + ["b"] * 20, ids=[f"i{i}" for i in range(40)])
    retriever = FairRetriever(catalog, k=4, floors={"a": 20, "b": 5}, horizon=100)
    retriever.retrieve(rng.normal(size=(50, 6)))
    assert retriever.report().exposures["b"] >= 5
    retriever.remove([f"i{i}" for i in range(20, 40)], floors={"a": 20})
    retriever.upsert(rng.normal(size=(8, 6)), ["c"] * 8, [f"n{i}" for i in range(8)], floors={"a": 25, "c": 30})
    retriever.retrieve(rng.normal(size=(10, 6)))
    retriever.save(tmp_path / "saved")
    check_same(FairRetriever.load(tmp_path / "saved"), retriever, rng.normal(size=(30, 6)))


def test_it_is_saved_again_in_its_place(tmp_path: Path) -> None:
    world = small_world()
    retriever = make_retriever(world)
    for _ in range(3):
        retriever.retrieve(world.users[:20])
        expected = retriever.report()
        retriever.save(tmp_path / "saved")
        retriever = FairRetriever.load(tmp_path / "saved")
        assert retriever.report() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_save_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = small_world()
    retriever = make_retriever(world)
    retriever.save(tmp_path / "saved")
    before = retriever.report()
    retriever.retrieve(world.users[:20])

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("fairsync.saved_retriever.save_catalog", fail)
    with pytest.raises(OSError, match="no space"):
        retriever.save(tmp_path / "saved")
    assert FairRetriever.load(tmp_path / "saved").report() == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_counts_are_copied_to_a_ledger(tmp_path: Path) -> None:
    world = small_world()
    retriever = make_retriever(world)
    retriever.retrieve(np.concatenate([world.users, world.users[:21]]))
    retriever.save(tmp_path / "saved")
    with SqlLedger(tmp_path / "exposures.db", 4) as ledger:
        FairRetriever.load(tmp_path / "saved", ledger=ledger).close()
        again = FairRetriever.load(tmp_path / "saved", ledger=ledger)
        assert len(ledger.past()) == 1, "they are there once"
        check_same(again, retriever, world.users[:10])
        with pytest.raises(InvalidInputError, match=r"other counts than the folder.*new ledger"):
            FairRetriever.load(tmp_path / "saved", ledger=ledger)
    with pytest.raises(InvalidInputError, match="other counts"):
        FairRetriever.load(tmp_path / "saved", ledger=retriever.ledger)


def test_a_policy_object_is_given_again(tmp_path: Path) -> None:
    world, policy = small_world(), FairSync(learning_rate=0.3)
    retriever = make_retriever(world, policy=policy)
    retriever.retrieve(world.users[:21])
    retriever.save(tmp_path / "saved")
    with pytest.raises(
        InvalidInputError, match=r"policy object \(FairSync\): give one .*load\(folder, policy=\.\.\.\)"
    ):
        FairRetriever.load(tmp_path / "saved")
    check_same(FairRetriever.load(tmp_path / "saved", policy=FairSync(learning_rate=0.3)), retriever, world.users)
    with pytest.raises(InvalidInputError, match="not in the policy's state_classes"):
        FairRetriever.load(tmp_path / "saved", policy="guaranteed")


def test_an_index_object_is_given_again(tmp_path: Path) -> None:
    world = small_world()
    retriever = make_retriever(world, index=IvfIndex(world.catalog))
    retriever.retrieve(world.users[:21])
    retriever.save(tmp_path / "saved")
    with pytest.raises(InvalidInputError, match=r"index object \(IvfIndex\): give a function"):
        FairRetriever.load(tmp_path / "saved")
    check_same(FairRetriever.load(tmp_path / "saved", index=IvfIndex), retriever, world.users)
    assert "ExactIndex" in repr(FairRetriever.load(tmp_path / "saved", index="exact"))


def test_the_index_of_a_replaced_catalog_is_saved(tmp_path: Path) -> None:
    world = small_world()
    retriever = make_retriever(world, index=IvfIndex(world.catalog))
    retriever.replace(world.catalog, index="one-hot")
    retriever.save(tmp_path / "saved")
    assert "OneHotIndex" in repr(FairRetriever.load(tmp_path / "saved"))
    retriever.replace(world.catalog, index=IvfIndex)
    retriever.save(tmp_path / "saved")
    with pytest.raises(InvalidInputError, match="IvfIndex"):
        FairRetriever.load(tmp_path / "saved")


def test_other_folders_are_refused(tmp_path: Path) -> None:
    retriever = make_retriever(small_world())
    with pytest.raises(InvalidInputError, match=r"holds no retriever .*retriever\.save\(folder\)"):
        FairRetriever.load(tmp_path / "nowhere")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="is not a saved retriever: choose another folder"):
        retriever.save(tmp_path)
    with pytest.raises(InvalidInputError, match="choose another folder"):
        retriever.save(tmp_path / "mine.txt")
    retriever.save(tmp_path / "saved")
    (tmp_path / "saved" / "prices.npz").write_bytes(b"damaged")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        FairRetriever.load(tmp_path / "saved")
    (tmp_path / "saved" / "retriever.json").write_text('{"format": 99}')
    with pytest.raises(InvalidInputError, match="format 99, not 1: update FairSync"):
        FairRetriever.load(tmp_path / "saved")


def test_a_closed_retriever_can_be_saved_and_not_used(tmp_path: Path) -> None:
    world = small_world()
    with make_retriever(world, ledger=MemoryLedger(4)) as retriever:
        retriever.retrieve(world.users[:21])
    for use in (
        lambda: retriever.retrieve(world.users),
        lambda: retriever.calibrate(world.users),
        lambda: retriever.promise(0),
        lambda: retriever.remove([0]),
    ):
        with pytest.raises(FairSyncError, match="The retriever is closed: make another one over the same ledger"):
            use()
    retriever.save(tmp_path / "saved")
    assert FairRetriever.load(tmp_path / "saved").report() == retriever.report()


def test_a_ledger_is_given_by_its_url(tmp_path: Path) -> None:
    url, catalog = f"sqlite:///{tmp_path}/exposures.db", Catalog(np.eye(4), ["a", "b", "a", "b"])
    with FairRetriever(catalog, k=1, floors=1, horizon=10, ledger=url) as retriever:
        retriever.retrieve(np.eye(4))
        retriever.save(tmp_path / "saved")
    with FairRetriever(catalog, k=1, floors=1, horizon=10, ledger=url) as again:
        assert again.report().exposures == {"a": 2, "b": 2}
    with FairRetriever.load(tmp_path / "saved", ledger=f"sqlite:///{tmp_path}/other.db") as loaded:
        assert loaded.report().exposures == {"a": 2, "b": 2}
    with SqlLedger(f"{tmp_path}/other.db", 2) as ledger:  # it was closed
        assert ledger.totals().requests == 4


def test_a_ledger_of_another_catalog_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/exposures.db"
    makers: tuple[Any, ...] = (FairRetriever, Coordinator)
    for make in makers:
        with make(Catalog(np.eye(2), ["a", "b"]), k=1, horizon=10, ledger=url):
            pass
        before = (tmp_path / "exposures.db").read_bytes()
        with pytest.raises(InvalidInputError, match="counts 'b' where this catalog has 'c': it belongs to another"):
            make(Catalog(np.eye(2), ["a", "c"]), k=1, horizon=10, ledger=url)
        if make is Coordinator:
            with pytest.raises(InvalidInputError, match="belongs to another catalog"):
                make(Catalog(np.eye(3), ["a", "b", "c"]), k=1, horizon=10, ledger=url)
        assert (tmp_path / "exposures.db").read_bytes() == before


@pytest.mark.parametrize("floors", [2, {"a": 2, "b": 2}])
def test_a_ledger_is_continued_with_groups_that_came_and_went(floors: Any, tmp_path: Path) -> None:
    """As `replace` does in process: groups are counted under their labels, whatever their order in the catalog."""
    url, users = f"sqlite:///{tmp_path}/exposures.db", np.random.default_rng(0).normal(size=(12, 6))
    given: dict[str, Any] = {"k": 2, "floors": floors, "horizon": 12, "ledger": url}
    shown: list[object] = []
    for labels, part in ((["a", "a", "b", "b"], users[:4]), (["new", "b", "a", "a", "b"], users[4:8])):
        with FairRetriever(Catalog(np.eye(6)[: len(labels)], labels), **given) as retriever:
            shown += retriever.retrieve(part).groups.ravel().tolist()
            report = retriever.report()
        assert report.exposures == {label: shown.count(label) for label in report.exposures}
        assert {*labels} == {*report.exposures}
    assert report.floors == {"a": 2, "b": 2, "new": 2 if floors == 2 else 0}
    with FairRetriever(Catalog(np.eye(6)[:3], ["b", "b", "a"]), **given) as retriever:  # new ones are sold out
        shown += retriever.retrieve(users[8:]).groups.ravel().tolist()
        report = retriever.report()
    assert report.exposures == {label: shown.count(label) for label in ("a", "b", "new")}
    assert report.floors == {"a": 2, "b": 2, "new": 0}
    assert report.esp == 1.0


def test_a_ledger_is_continued_with_promises_to_labels_that_came(tmp_path: Path) -> None:
    url, users = f"sqlite:///{tmp_path}/exposures.db", np.random.default_rng(0).normal(size=(8, 6))
    for labels, part in ((["a", "a", "b", "b"], users[:4]), (["a", "a", "b", "b", "c"], users[4:])):
        catalog = Catalog(np.eye(6)[: len(labels)], labels)
        promises = each(catalog, "group", at_least=2)
        with FairRetriever(catalog, k=2, horizon=8, promises=promises, ledger=url) as retriever:
            retriever.retrieve(part)
            report = retriever.report()
    assert report.esp == 1.0
    assert report.floors == {"group=a": 2, "group=b": 2, "group=c": 2}


def test_a_load_that_fails_leaves_the_ledger_free(tmp_path: Path) -> None:
    retriever = FairRetriever(Catalog(np.eye(4), ["a", "a", "b", "b"]), k=2, floors=5, horizon=10)
    retriever.save(tmp_path / "saved")
    url = f"sqlite:///{tmp_path / 'exposures.db'}"
    with pytest.raises(InvalidInputError, match="save_seconds"):
        FairRetriever.load(tmp_path / "saved", ledger=url, save_seconds=-1)
    with pytest.raises(InvalidInputError, match="save_seconds"):
        FairRetriever(retriever.catalog, k=2, floors=5, horizon=10, ledger=url, save_seconds=-1)
    with FairRetriever.load(tmp_path / "saved", ledger=url) as loaded:
        assert loaded.report() == retriever.report()
