"""What a catalog that only an engine holds must do, on the real engine: answer as a catalog, and see what appears."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import plain
from fairsync.catalog import Catalog, Where
from fairsync.catalog.conditions import parse_conditions
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.eligibility.catalog_rules import CatalogRules
from fairsync.eligibility.hosted_rules import HostedRules
from fairsync.errors import InvalidInputError
from fairsync.promises import Promise
from fairsync.search.engines.engine import Engine, StoredItems
from fairsync.search.engines.hosted_catalog import HostedCatalog, change_of
from fairsync.search.engines.hosted_search import FoundItems, HostedIndex
from search.engines.engine_contract import HOSTILE, WHERES, shop, some_users

N, DIM, K = 160, 8, 5
SHOP = shop(31, n=N)
PROMISED, FILTERS = ["brand", "new", "tags"], ["price", "year", "sizes"]


def hosted_in(engine: Engine, **given: Any) -> HostedCatalog:
    return HostedCatalog(engine, PROMISED, filters=FILTERS, **given)


def same_shop(engine: Engine) -> Catalog:
    """The catalog as the engine stores it: Qdrant in this process has numbers for bools."""
    values = {name: SHOP.attributes[name].values() for name in (*PROMISED, *FILTERS)}
    if "folder" in engine.place:
        values["new"] = [int(one) for one in values["new"]]
    return Catalog(SHOP.embeddings, values, SHOP.ids)


def named(catalog: Any, rows: Any) -> list[list[str]]:
    return [[str(catalog.ids_of([row])[0]) if row >= 0 else "" for row in one] for one in np.asarray(rows).tolist()]


def test_combinations_are_counted(engine: Engine) -> None:
    hosted, whole = hosted_in(engine), same_shop(engine)
    assert len(hosted) == len(whole)
    assert dict(zip(hosted.labels, hosted.group_sizes.tolist(), strict=True)) == dict(
        zip(whole.labels, whole.group_sizes.tolist(), strict=True)
    )
    assert sorted(hosted.rows_of(whole.ids[:3]).tolist()) == sorted(
        hosted.rows_of(np.array([one]))[0] for one in whole.ids[:3]
    )
    for where in WHERES:
        if "folder" in engine.place and "new" in where:
            where = {**where, "new": int(where["new"])}
        selected = whole.select(where)
        sizes = hosted.selected(parse_conditions(where, hosted.conditioned_attributes))
        assert selected is not None
        assert int(sizes.sum()) == len(selected)
        by_label = np.bincount(hosted.group_of, sizes, len(hosted.labels)).astype(int)
        expected = selected.group_sizes(whole)
        assert dict(zip(hosted.labels, by_label.tolist(), strict=True)) == dict(
            zip(whole.labels, expected.tolist(), strict=True)
        )


@pytest.mark.parametrize("by", ["label", "combination"])
def test_it_finds_what_a_plain_search_finds(engine: Engine, by: str) -> None:
    """Ties, masks, K near the number of items, several interests, conditions and exclusions."""
    hosted, whole = hosted_in(engine), same_shop(engine)
    if "hnsw" in str(getattr(engine, "index", "")):
        pytest.skip("approximate")
    searched: Catalog
    if by == "label":
        searched, catalog = hosted, whole.under(hosted.labels)
    else:
        combinations = hosted.rows_of(whole.ids)
        searched, catalog = (
            hosted.regrouped(np.arange(hosted.n_rows), hosted.n_rows),
            whole.regrouped(combinations, hosted.n_rows),
        )
    rng, g = np.random.default_rng(1), catalog.n_groups
    steep = rng.normal(scale=3.0, size=g)
    masked = np.where(np.arange(g) % 3 == 0, np.inf, steep)
    only = np.where(np.arange(g) == g // 2, -1.0, np.inf)
    excluded = [whole.ids[:3].tolist(), [], [*whole.ids[5:40].tolist(), "unknown"]]
    where: list[Where | None] = [
        {"year": {"at_least": 2003}},
        None,
        {"brand": {"not": HOSTILE[0]}, "price": [2.0, 9.0]},
    ]
    for prices in (None, rng.normal(size=g), steep, masked, only):
        for interests, k in ((1, 1), (1, 12), (3, 12), (1, N)):
            users = some_users(3, DIM, seed=k) if interests == 1 else rng.normal(size=(3, interests, DIM))
            found = FoundItems(searched)
            index = HostedIndex(hosted, found)
            hits = index.search(users, prices, k)
            rows, relevance = plain.search(catalog, users, prices, k)
            assert named(found, hits.rows) == named(catalog, rows)
            np.testing.assert_array_equal(hits.relevance, relevance)
            mine = HostedRules(excluded, where, hosted, 3, allow_empty=True).eligibility_of(range(3))
            theirs = CatalogRules(excluded, where, whole, 3, allow_empty=True).eligibility_of(range(3))
            assert mine is not None
            assert theirs is not None
            assert mine.counts.tolist() == theirs.counts.tolist()
            hits = index.search(users, prices, k, mine.under(searched.group_of))
            for i in range(3):
                rows, _ = plain.search(
                    catalog, users[i : i + 1], prices, k, [set(np.flatnonzero(theirs.mask(i)).tolist())]
                )
                assert named(found, hits.rows[i : i + 1]) == named(catalog, rows)


def test_equal_vectors_are_in_the_order_of_ids(engine: Engine) -> None:
    hosted = hosted_in(engine, writes=True)
    values = {name: [same_shop(engine).attributes[name].values()[0]] * 30 for name in (*PROMISED, *FILTERS)}
    ids = [f"twin {at:02}" for at in range(30)]
    hosted = hosted.write(StoredItems(ids, np.full((30, DIM), 9.0, dtype=np.float32), values), [])
    found = FoundItems(hosted)
    hits = HostedIndex(hosted, found).search(np.ones((1, 1, DIM)), None, 7)
    assert named(found, hits.rows)[0] == ids[:7]


PROMISES: dict[str, Callable[[dict[str, Any]], list[Promise]]] = {
    "floors": lambda new: [Promise({"brand": HOSTILE[at]}, at_least=68) for at in range(3)],
    "caps": lambda new: [
        Promise({"brand": HOSTILE[0]}, at_most=20),
        Promise({"brand": HOSTILE[1]}, at_least=60, at_most=80),
    ],
    "overlapping": lambda new: [
        Promise({"brand": HOSTILE[0], **new}, at_least=70),
        Promise(new, at_least=0.45, at_most=0.6),
        Promise({"tags": HOSTILE[1]}, at_least=90),
        Promise({"brand": HOSTILE[2]}, at_most=25),
    ],
}


@pytest.mark.parametrize("rules", ["", "exclude", "where"])
@pytest.mark.parametrize("kind", PROMISES)
def test_lists_are_those_of_a_front_end_with_the_catalog(engine: Engine, kind: str, rules: str) -> None:
    """The guard is at work: promises take most slots, and all of them are kept."""
    hosted, whole = hosted_in(engine), same_shop(engine)
    promises = PROMISES[kind]({"new": 1 if "folder" in engine.place else True})
    users, found = some_users(48, DIM, seed=4), []
    best = [whole.ids_of(row[:2]).tolist() for row in np.argsort(-(users[:, 0] @ whole.embeddings.T), axis=1)]
    exclude = [*best] if rules == "exclude" else None
    where = [{"price": {"at_most": 7.25}} if i % 5 == 0 else None for i in range(48)] if rules == "where" else None
    for catalog in (whole, hosted):
        coordinator = Coordinator(catalog, k=K, promises=promises, horizon=48, batch_size=16, max_exclude=2)
        front, parts = FrontEnd(catalog, coordinator), []
        for start, stop in pairwise((0, 20, 48)):
            part = front.retrieve(
                users[start:stop],
                request_ids=[f"request {i}" for i in range(start, stop)],
                exclude=None if exclude is None else exclude[start:stop],
                where=None if where is None else where[start:stop],
            )
            parts += part.ids.tolist()
        again = front.retrieve(users[:1], request_ids=["request 0"])
        assert again.ids.tolist() == parts[:1], "answered before"
        report = coordinator.report()
        found.append((parts, [row.exposures for row in report.promises], coordinator.totals().forced))
        if not rules:
            assert all(row.kept for row in report.promises)
    assert all(row.kept for row in report.promises)
    if "hnsw" not in str(getattr(engine, "index", "")):
        assert found[0][:2] == found[1][:2]
    if rules == "exclude":
        assert all(set(one).isdisjoint(left) for one, left in zip(found[1][0], best, strict=True))


def test_changes_in_the_engine_are_seen_and_combinations_noticed(engine: Engine) -> None:
    hosted = hosted_in(engine, writes=True)
    coordinator = Coordinator(hosted, k=K, horizon=1000, promises=[Promise({"brand": HOSTILE[0]}, at_least=10)])
    front, users = FrontEnd(hosted, coordinator), some_users(1, DIM, seed=6)
    best = str(front.retrieve(users).ids[0, 0])
    nothing: dict[str, list[Any]] = {name: [] for name in (*PROMISED, *FILTERS)}
    engine.change(StoredItems([], np.empty((0, DIM), dtype=np.float32), nothing), [best])
    assert best not in front.retrieve(users).ids[0]
    assert hosted.recounted().weights.sum() == N - 1
    values = {**{name: [SHOP.attributes[name].values()[0]] for name in FILTERS}, "brand": ["a new brand"]}
    values |= {"new": [0 if "folder" in engine.place else False], "tags": [[]]}
    engine.change(StoredItems(["novelty"], 9 * users[0].astype(np.float32), values), [])
    assert not hosted.unknown_seen.is_set()
    assert "novelty" not in front.retrieve(users).ids[0], "the coordinator cannot count it yet"
    assert hosted.unknown_seen.is_set()
    after = hosted.recounted()
    assert after.labels[-1] == "a new brand"
    assert after.recounted() is after
    coordinator.promise(catalog=after)
    front.follow(change_of(after, hosted))
    found = front.retrieve(users)
    assert (found.ids[0, 0], found.groups[0, 0]) == ("novelty", "a new brand")
    assert front.count(["novelty", "nothing"]).sum() == 0


def test_what_needs_a_copy_is_refused(engine: Engine) -> None:
    hosted = hosted_in(engine)
    coordinator = Coordinator(hosted, k=K, horizon=100, promises=[Promise({"brand": HOSTILE[0]}, at_least=10)])
    front, users = FrontEnd(hosted, coordinator), some_users(2, DIM, seed=7)[:, 0]
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: front.retrieve(users, explain=True), "need a copy of the catalog"),
        (lambda: front.upsert(None, {"brand": ["x"]}, ["x"]), "in an engine only"),
        (lambda: front.remove(["x"]), "in an engine only"),
        (lambda: front.retrieve(users[:, :3]), "3 dimensions"),
        (lambda: front.retrieve(users, exclude=[["x"]]), "2 requests"),
        (lambda: front.retrieve(users, exclude=[[1], []]), "ids are words"),
        (lambda: front.retrieve(users, where={"colour": "red"}), "no attribute 'colour'"),
        (lambda: front.retrieve(users, where={"brand": "nobody"}), "no item meets"),
        (lambda: FrontEnd(hosted, coordinator, cold=[str(SHOP.ids[0])]), "needs a copy of the catalog"),
        (lambda: Coordinator(hosted, promises=[Promise({"id": str(SHOP.ids[0])}, at_least=1)]), "single items"),
        (lambda: Coordinator(hosted, promises=[Promise({"price": 2.0}, at_least=1)]), "no attribute 'price'"),
        (lambda: HostedCatalog(engine, ["price"]), "name it in filters"),
        (lambda: HostedCatalog(engine, ["maker"]), "'maker'"),
        (lambda: HostedCatalog(engine, []), "no attributes"),
        (lambda: hosted.write(StoredItems([], np.empty((0, DIM), dtype=np.float32)), ["x"]), "may not write"),
    ]
    for call, message in calls:
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert coordinator.totals().requests == 0
