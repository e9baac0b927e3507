"""What every engine must hold, on the real engine: the contracts of indexes, conditions, changes and bad input."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import fairsync as fs
import plain
from contract.test_eligibility import assert_plain as assert_plain_eligible
from contract.test_eligibility import random_eligibility
from contract.test_indexes import Build, Prices, random_case
from fairsync.catalog import Catalog, Where
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.eligibility.catalog_rules import CatalogRules
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.engines.engine import Engine, EngineQuery, Ranking
from fairsync.search.engines.engine_fetch import EngineFetch
from fairsync.search.engines.engine_index import EngineIndex
from fairsync.search.overlay import Overlay, follow

HOSTILE = [
    "o'hara",
    'say "hi"',
    "%(vector)s %s",
    "a\\b",
    "{x,y}",
    "NULL",
    "ümlaut ∀",
    "; DROP TABLE items; --",
    "",
    "0",
]
WHERES: list[Where] = [
    {"brand": HOSTILE[0]},
    {"brand": HOSTILE[2:7]},
    {"brand": {"not": HOSTILE[:8]}, "new": True},
    {"new": False, "price": {"at_most": 4.0}},
    {"price": {"at_least": 2.5, "at_most": 7.25}},
    {"price": [1.5, 2.0]},
    {"price": {"not": 1.5}},
    {"tags": HOSTILE[1]},
    {"tags": {"not": [HOSTILE[1], HOSTILE[3]]}},
    {"year": {"at_least": 2003}},
    {"year": [2001, 2003, 1900]},
    {"sizes": [40, 41]},
    {"brand": "unknown"},
    {"year": 10**30},
    {"year": {"not": [-(2**70), 2001]}},
    {"brand": {"not": "a\0b"}},
    {"price": float("inf")},
    {"price": {"at_least": float("inf")}},
    {"year": {"at_least": -float("inf"), "at_most": 1e300}},
    {"price": {"at_least": -1.0}, "year": {"not": 2002}, "sizes": {"not": 42}},
]


def shop(seed: int = 0, n: int = 600, words: bool = True) -> Catalog:
    """Items with attributes of all kinds, and with values that hurt."""
    rng = np.random.default_rng(seed)
    tags = [[HOSTILE[at] for at in rng.choice(6, size=rng.integers(0, 3), replace=False)] for _ in range(n)]
    sizes = [rng.choice([40, 41, 42, 43], size=rng.integers(0, 3), replace=False).tolist() for _ in range(n)]
    attributes = {
        "brand": [HOSTILE[at] for at in rng.integers(0, 8, n)],
        "new": rng.random(n) < 0.3,
        "price": rng.choice([1.5, 2.0, 2.5, 4.0, 7.25, 9.0], size=n),
        "year": rng.integers(2000, 2006, n),
        "tags": tags,
        "sizes": sizes,
    }
    ids = [f"it'em {i}%" for i in rng.permutation(n)] if words else rng.permutation(n)
    return Catalog(rng.standard_normal((n, 8)).astype(np.float32), attributes, ids)


def record_queries(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[EngineQuery]:
    """Return a list to which all further queries of an engine are added."""
    queries: list[EngineQuery] = []
    ask = engine.search

    def search(query: EngineQuery) -> list[Ranking]:
        queries.append(query)
        return ask(query)

    monkeypatch.setattr(engine, "search", search)
    return queries


def without_exact(index: EngineIndex) -> EngineFetch:
    """Return the search of an index, which fails if the engine's answers do not suffice."""

    class Refusing(ExactIndex):
        def search(self, *_: object) -> Hits:
            raise AssertionError("the engine should have answered")

    certified = index.certified
    certified.exact = Refusing(index.catalog)
    return certified


def check_conditions(index: EngineIndex, pushed: bool = True) -> None:
    """All kinds of conditions with exclusions, against the plainest search."""
    catalog = index.catalog
    rng = np.random.default_rng(1)
    users = rng.standard_normal((len(WHERES), 2, catalog.dim))
    best = ExactIndex(catalog).search(users, None, 30).rows
    for excluded in (False, True):
        ids = [catalog.ids_of(row[:15]).tolist() for row in best] if excluded else None
        eligible = CatalogRules(ids, WHERES, catalog, len(users), allow_empty=True).eligibility(0, len(users))
        assert eligible is not None
        assert index.certified.filters(eligible) is pushed
        for prices in (None, rng.normal(scale=0.5, size=catalog.n_groups)):
            assert_plain_eligible(index, catalog, users, prices, 10, eligible)


def check_random_eligibility(build: Build, prices: Prices) -> None:
    """Selections whose conditions are not known: the engine's answers are filtered here."""
    catalog, users = random_case(1)
    index = build(catalog)
    for seed in range(4):
        eligible = random_eligibility(np.random.default_rng(seed), 400, 6)
        assert_plain_eligible(index, catalog, users, prices, 20, eligible)


def check_atoms(make: Callable[[Catalog], EngineIndex]) -> None:
    """Atoms of promises that overlap: prices cannot be given to the engine, and the answer is the same."""
    catalog = shop(3)
    atoms = fs.FairRetriever(
        catalog,
        k=10,
        horizon=100,
        promises=[fs.Promise({"new": True}, at_least=20), fs.Promise({"brand": HOSTILE[0]}, at_least=10)],
        index=make,
    ).index
    assert isinstance(atoms, EngineIndex)
    assert atoms.catalog.n_groups > 2
    users = np.random.default_rng(4).standard_normal((4, 1, 8))
    for prices in (
        np.linspace(-0.7, 0.7, atoms.catalog.n_groups),
        np.where(np.arange(atoms.catalog.n_groups), 0, np.inf),
    ):
        hits = atoms.search(users, prices, 10)
        assert hits.rows.tolist() == plain.search(atoms.catalog, users, prices, 10)[0]


def check_floors(make: Callable[[Catalog], EngineIndex], words: bool) -> None:
    """A retriever keeps its floors on the engine, and finds the same as with exact search."""
    catalog = shop(5, words=words)
    users = np.random.default_rng(6).normal(size=(60, 8)) + 0.4
    found = []
    for index in ("exact", make):
        retriever = fs.FairRetriever(catalog, k=10, floors=50, horizon=60, batch_size=8, index=index)
        found.append(retriever.retrieve(users, where={"price": {"at_most": 8.0}}).ids)
        assert all(retriever.report().satisfied.values())
    assert (found[0] == found[1]).all()


def check_changes(make: Callable[[Catalog], EngineIndex], read: Callable[[Catalog], EngineIndex]) -> None:
    """New, changed and removed items, and changed attributes, in an index that writes and in one that may not."""
    catalog, users = shop(7), np.random.default_rng(8).standard_normal((5, 1, 8))
    writing, reading = make(catalog), read(catalog)
    ids = catalog.ids_of([3, 4]).tolist()
    changes: list[Callable[[Catalog], CatalogChange]] = [
        lambda now: upsert_items(now, None, {"price": [2.0, 2.0]}, ids),
        lambda now: upsert_items(
            now,
            3 * users[:2, 0],
            {"brand": ["new brand", HOSTILE[0]], "new": [True, False], "price": [2.0, 9.0], "year": [2001, 2009],
             "tags": [[], ["x"]], "sizes": [[40], []]},
            ["added", ids[0]],
        ),
        lambda now: remove_items(now, [ids[1], now.ids_of([77]).tolist()[0]]),
    ]  # fmt: skip
    for change in changes:
        before = writing.catalog
        made = change(before)
        after, overlaid = follow(writing, made, before), follow(reading, made, reading.catalog)
        assert isinstance(after, EngineIndex)
        catalog = made.catalog
        for index in (after, overlaid):
            for where in ({"price": 2.0}, {"brand": {"not": HOSTILE[1]}}, {}):
                eligible = CatalogRules(None, where, catalog, len(users), allow_empty=True).eligibility(0, len(users))
                prices = np.linspace(-0.5, 0.5, catalog.n_groups)
                every = Eligibility.of(len(catalog), [None] * len(users)) if eligible is None else eligible
                assert_plain_eligible(index, catalog, users, prices, 12, every)
        fresh = read(catalog)  # what was written is what a new index finds
        assert fresh.search(users, None, 12).rows.tolist() == plain.search(catalog, users, None, 12)[0]
        writing, reading = after, read(catalog)
    assert isinstance(follow(reading, upsert_items(catalog, [users[0, 0]], shop_values(), ["late"]), catalog), Overlay)


def shop_values() -> dict[str, list[object]]:
    return {"brand": [HOSTILE[0]], "new": [True], "price": [1.5], "year": [2000], "tags": [[]], "sizes": [[]]}


def check_other_items(make: Callable[[Catalog], EngineIndex]) -> None:
    """Items of the engine that are not in the catalog are ignored, and are still there later."""
    whole, users = shop(9), np.random.default_rng(10).standard_normal((5, 1, 8))
    engine = make(whole).engine
    part = Catalog(
        whole.embeddings[::3],
        {name: column.take(np.arange(0, len(whole), 3)) for name, column in whole.attributes.items()},
        whole.ids[::3],
    )
    index = make(part)
    for prices in (None, np.linspace(-0.5, 0.5, part.n_groups)):
        assert index.search(users, prices, 12).rows.tolist() == plain.search(part, users, prices, 12)[0]
    assert engine.count()[()] == len(whole)


def check_abilities(index: EngineIndex) -> None:
    """What the engine says that it can do, it does."""
    catalog, engine = index.catalog, index.engine
    sizes = dict(zip(catalog.labels, catalog.group_sizes.tolist(), strict=True))
    assert engine.count(["brand"]) == {(label,): size for label, size in sizes.items() if size}
    assert engine.count() == {(): len(catalog)}
    ids = catalog.ids_of([5, 6]).tolist()
    unknown = "nothing" if isinstance(ids[0], str) else 10**6
    found = engine.fetch([*ids, unknown])
    assert set(found.ids) == set(ids)
    rows = catalog.rows_of(np.asarray(found.ids))
    assert (found.vectors == catalog.embeddings[rows]).all()
    assert list(found.attributes["brand"]) == catalog.labels_of(catalog.group_of[rows]).tolist()
    assert not len(engine.fetch([unknown]))


def check_a_catalog_that_is_not_there(read: Callable[[Catalog], EngineIndex], there: Catalog) -> None:
    embeddings = there.embeddings.copy()
    embeddings[7] *= 2
    name = there.ids_of([7]).tolist()[0]
    attributes = dict(there.attributes)
    with pytest.raises(InvalidInputError, match=r"1 items are missing or different; item .* has another embedding"):
        read(Catalog(embeddings, attributes, there.ids))
    years = there.attributes["year"].values()
    years[7] += 1
    with pytest.raises(InvalidInputError) as caught:
        read(Catalog(there.embeddings, {**attributes, "year": years}, there.ids))
    assert f"item {name!r} has another 'year'" in str(caught.value)
    assert "upload=True" in str(caught.value)


def some_users(n: int, dim: int, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((n, 1, dim))
